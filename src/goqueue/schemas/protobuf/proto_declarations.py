"""Parser for the declarations that files and messages of a ``.proto`` text share: options, ranges, enums, services."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, MethodDescriptorProto

from goqueue.schemas.base import MAX_NODES
from goqueue.schemas.protobuf.proto_file import (
    MAX_ENUM_NUMBER,
    MAX_FIELD_NUMBER,
    MAX_NAME,
    MIN_ENUM_NUMBER,
    OPEN_END,
    Options,
    OptionUse,
    ParsedFile,
    TypeUse,
)
from goqueue.schemas.protobuf.proto_tokens import NUMBER, STRING, WORD, Tokens, shortened
from goqueue.schemas.protobuf.proto_values import read_option_name, read_option_value


class DeclarationReader:
    """Parses one text, and counts its declarations."""

    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text)
        self.file = ParsedFile(self.tokens)
        self.syntax = "proto2"
        self._nodes = 0

    def count(self, at: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self.tokens.error(f"the schema has more than {MAX_NODES} parts", at)

    def declare(self, scope: str, what: str) -> tuple[str, str]:
        """Consume the name of a declaration; returns the name itself and the full name."""
        at = self.tokens.at
        name = self.tokens.word(f"the name of the {what}")
        self.count(at)
        full = f"{scope}.{name}" if scope else name
        self.check_length(full, at)
        self.file.places[full] = at
        return name, full

    def check_length(self, name: str, at: int) -> None:
        if len(name) > MAX_NAME:
            raise self.tokens.error(f"the full name {shortened(name)} is longer than {MAX_NAME} characters", at)

    def read_option_statement(self, owner: Options, scope: str) -> None:
        self.read_option(owner, scope)
        self.tokens.expect(";", " after the option")

    def read_option(self, owner: Options, scope: str) -> None:
        tokens = self.tokens
        at = tokens.at
        self.count(at)
        name = read_option_name(tokens)
        tokens.expect("=", " and the option's value")
        self.file.options.append(OptionUse(owner, name, read_option_value(tokens), scope, at))

    def read_range_end(self, start: int, lowest: int, *, exclusive: bool) -> int:
        """Consume ``to 5`` or ``to max`` if present."""
        tokens = self.tokens
        if not tokens.take("to"):
            return start + 1 if exclusive else start
        if tokens.take("max"):
            return OPEN_END if exclusive else MAX_ENUM_NUMBER
        end = tokens.whole_number("the end of the range", lowest, MAX_ENUM_NUMBER - 1 if exclusive else MAX_ENUM_NUMBER)
        return end + 1 if exclusive else end

    def read_reserved(self, parent: DescriptorProto | EnumDescriptorProto) -> None:
        tokens = self.tokens
        if tokens.kind in (STRING, WORD):
            if tokens.kind == WORD and self.syntax != "editions":
                raise tokens.error("reserved names stand in quotes")
            if tokens.kind == STRING and self.syntax == "editions":
                raise tokens.error("in an edition reserved names stand without quotes")
            for _ in tokens.listed():
                self.count(tokens.at)
                name = tokens.string("a reserved name") if tokens.kind == STRING else tokens.word("a reserved name")
                parent.reserved_name.append(name)
        elif tokens.kind == NUMBER or tokens.text == "-":
            for _ in tokens.listed():
                self.count(tokens.at)
                if isinstance(parent, EnumDescriptorProto):
                    start = tokens.whole_number("a reserved number", MIN_ENUM_NUMBER, MAX_ENUM_NUMBER)
                    end = self.read_range_end(start, MIN_ENUM_NUMBER, exclusive=False)
                    parent.reserved_range.add(start=start, end=end)
                else:
                    start = tokens.whole_number("a reserved number", 1, MAX_FIELD_NUMBER)
                    end = self.read_range_end(start, 1, exclusive=True)
                    parent.reserved_range.add(start=start, end=end)
        else:
            raise tokens.error(f"expected reserved numbers or names, but {tokens.found()}")
        tokens.expect(";", " after what is reserved")

    def read_enum(self, enum: EnumDescriptorProto, scope: str) -> None:
        tokens = self.tokens
        enum.name, _ = self.declare(scope, "enum")
        for _ in tokens.block():
            if tokens.take("option"):
                self.read_option_statement(enum.options, scope)
            elif tokens.take("reserved"):
                self.read_reserved(enum)
            else:
                value = enum.value.add()
                # Enum values are declared in the scope that encloses the enum, not inside the enum.
                value.name, _ = self.declare(scope, "value")
                tokens.expect("=", " and the value's number")
                value.number = tokens.whole_number("the value's number", MIN_ENUM_NUMBER, MAX_ENUM_NUMBER)
                if tokens.take("["):
                    for _ in tokens.listed():
                        self.read_option(value.options, scope)
                    tokens.expect("]", " after the value's options")
                tokens.expect(";", " after the value")

    def read_service(self, scope: str) -> None:
        tokens = self.tokens
        service = self.file.descriptor.service.add()
        service.name, full = self.declare(scope, "service")
        for _ in tokens.block():
            if tokens.take("option"):
                self.read_option_statement(service.options, full)
                continue
            tokens.expect("rpc", ", option or the service's end")
            method = service.method.add()
            method.name, _ = self.declare(full, "method")
            if self._read_method_type(method, "input_type", full):
                method.client_streaming = True
            tokens.expect("returns")
            if self._read_method_type(method, "output_type", full):
                method.server_streaming = True
            if tokens.text == "{":
                # Braces set the method's options, even if they are empty.
                method.options.SetInParent()
                for _ in tokens.block():
                    tokens.expect("option", " or the method's end")
                    self.read_option_statement(method.options, full)
            else:
                tokens.expect(";", " after the method")

    def _read_method_type(self, method: MethodDescriptorProto, attribute: str, scope: str) -> bool:
        """Consume ``(stream Order)``; returns whether the method streams."""
        tokens = self.tokens
        tokens.expect("(")
        at = tokens.at
        streams = tokens.take("stream") and tokens.text != ")"
        name = tokens.dotted("the name of a message", leading_dot=True)
        tokens.expect(")")
        setattr(method, attribute, name)
        self.file.types.append(TypeUse(method, attribute, scope, at))
        return streams
