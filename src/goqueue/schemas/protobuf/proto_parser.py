"""Parser for ``.proto`` text (proto2, proto3, edition 2023) into a descriptor whose names are not resolved yet."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import EDITION_2023, DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from goqueue.schemas.protobuf.proto_declarations import DeclarationReader
from goqueue.schemas.protobuf.proto_file import (
    MAX_ENUM_NUMBER,
    MAX_FIELD_NUMBER,
    MAX_NESTING,
    OPEN_END,
    OptionUse,
    ParsedFile,
    TypeUse,
    json_name,
    map_entry_name,
)
from goqueue.schemas.protobuf.proto_tokens import END, WORD, shortened
from goqueue.schemas.protobuf.proto_values import SCALAR_TYPES, NamePart, read_default

_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_MESSAGE_SET = (NamePart("message_set_wire_format", False),)


def parse_proto(text: str) -> ParsedFile:
    """Parse a ``.proto`` text; ``InvalidSchema`` gives the line and the column of an error."""
    return _Parser(text).parse()


class _Parser(DeclarationReader):
    def parse(self) -> ParsedFile:
        tokens = self.tokens
        descriptor = self.file.descriptor
        if tokens.text in ("syntax", "edition") and tokens.kind == WORD:
            self._read_syntax()
        while tokens.kind != END:
            scope = descriptor.package
            if tokens.take(";"):
                continue
            if tokens.take("message"):
                self._read_message(descriptor.message_type.add(), scope, 0)
            elif tokens.take("enum"):
                self.read_enum(descriptor.enum_type.add(), scope)
            elif tokens.take("service"):
                self.read_service(scope)
            elif tokens.take("extend"):
                self._read_extend(descriptor, scope)
            elif tokens.take("import"):
                self._read_import()
            elif tokens.take("package"):
                self._read_package()
            elif tokens.take("option"):
                self.read_option_statement(descriptor.options, scope)
            else:
                raise tokens.error(
                    "expected a declaration (message, enum, service, extend, import, package, option), but "
                    + tokens.found()
                )
        return self.file

    def _read_syntax(self) -> None:
        tokens = self.tokens
        statement = tokens.word("syntax")
        tokens.expect("=")
        at = tokens.at
        value = tokens.string(f"the {statement}")
        tokens.expect(";")
        if statement == "syntax":
            if value not in ("proto2", "proto3"):
                raise tokens.error(f"unknown syntax {shortened(value)}; there are proto2 and proto3", at)
            self.syntax = value
            if value == "proto3":
                self.file.descriptor.syntax = value
        else:
            if value != "2023":
                raise tokens.error(f"edition {shortened(value)} is not supported; edition 2023 is", at)
            self.syntax = "editions"
            self.file.descriptor.syntax = "editions"
            self.file.descriptor.edition = EDITION_2023

    def _read_package(self) -> None:
        at = self.tokens.at
        if self.file.descriptor.package:
            raise self.tokens.error("a file has only one package", at)
        if self.file.descriptor.message_type or self.file.descriptor.enum_type or self.file.types:
            raise self.tokens.error("the package must be named before the first declaration", at)
        package = self.tokens.dotted("the package's name")
        self.check_length(package, at)
        self.file.descriptor.package = package
        self.tokens.expect(";")

    def _read_import(self) -> None:
        tokens = self.tokens
        descriptor = self.file.descriptor
        kind = tokens.word("import") if tokens.text in ("public", "weak", "option") else ""
        if kind == "option":
            raise tokens.error("'import option' is not supported; import the file plainly")
        at = tokens.at
        name = tokens.string("the name of the file to import")
        if name in descriptor.dependency:
            raise tokens.error(f"{shortened(name)} is imported twice", at)
        self.count(at)
        self.file.places[name] = at
        if kind:
            indexes = descriptor.public_dependency if kind == "public" else descriptor.weak_dependency
            indexes.append(len(descriptor.dependency))
        descriptor.dependency.append(name)
        tokens.expect(";")

    def _read_message(self, message: DescriptorProto, scope: str, depth: int) -> None:
        if depth > MAX_NESTING:
            raise self.tokens.error(f"messages are declared more than {MAX_NESTING + 1} levels deep in one another")
        message.name, full = self.declare(scope, "message")
        self._read_message_body(message, full, depth)

    def _read_message_body(self, message: DescriptorProto, scope: str, depth: int) -> None:
        tokens = self.tokens
        is_set = False
        for _ in tokens.block():
            if tokens.take("message"):
                self._read_message(message.nested_type.add(), scope, depth + 1)
            elif tokens.take("enum"):
                self.read_enum(message.enum_type.add(), scope)
            elif tokens.take("extensions"):
                self._read_extensions(message, scope)
            elif tokens.take("reserved"):
                self.read_reserved(message)
            elif tokens.take("extend"):
                self._read_extend(message, scope)
            elif tokens.take("option"):
                self.read_option_statement(message.options, scope)
                option = self.file.options[-1]
                is_set = is_set or (option.name == _MESSAGE_SET and option.value.text == "true")
            elif tokens.take("oneof"):
                self._read_oneof(message, scope, depth)
            else:
                self._read_field(message, message.field.add(), scope, depth)
        self._close_ranges(message, is_set=is_set)
        self._add_synthetic_oneofs(message)

    @staticmethod
    def _close_ranges(message: DescriptorProto, *, is_set: bool) -> None:
        highest = MAX_ENUM_NUMBER if is_set else MAX_FIELD_NUMBER + 1
        for span in message.extension_range:
            if span.end == OPEN_END:
                span.end = highest
        for reserved in message.reserved_range:
            if reserved.end == OPEN_END:
                reserved.end = highest

    def _add_synthetic_oneofs(self, message: DescriptorProto) -> None:
        """Declare the synthetic oneof that each proto3 ``optional`` field is in alone."""
        optional = [item for item in message.field if item.proto3_optional]
        if not optional:
            return
        taken = {item.name for item in message.field} | {item.name for item in message.oneof_decl}
        for item in optional:
            name = item.name if item.name.startswith("_") else f"_{item.name}"
            while name in taken:
                name = f"X{name}"
            taken.add(name)
            item.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)

    def _read_oneof(self, message: DescriptorProto, scope: str, depth: int) -> None:
        tokens = self.tokens
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add()
        oneof.name, _ = self.declare(scope, "oneof")
        for _ in tokens.block():
            if tokens.take("option"):
                self.read_option_statement(oneof.options, scope)
                continue
            if tokens.text in _LABELS:
                raise tokens.error(f"a field of a oneof has no label; leave {tokens.text!r} out")
            item = message.field.add(oneof_index=index)
            self._read_field(message, item, scope, depth, in_oneof=True)

    def _read_extend(self, parent: DescriptorProto | FileDescriptorProto, scope: str) -> None:
        tokens = self.tokens
        at = tokens.at
        extendee = tokens.dotted("the name of the message to extend", leading_dot=True)
        for _ in tokens.block():
            item = parent.extension.add(extendee=extendee)
            self.file.types.append(TypeUse(item, "extendee", scope, at))
            self._read_field(None, item, scope, 0)

    def _read_field(
        self,
        message: DescriptorProto | None,
        item: FieldDescriptorProto,
        scope: str,
        depth: int,
        *,
        in_oneof: bool = False,
    ) -> None:
        """Parse a field. ``message`` is ``None`` for an extension, which cannot declare maps and groups."""
        tokens = self.tokens
        at = tokens.at
        item.label = FieldDescriptorProto.LABEL_OPTIONAL
        label = tokens.text if tokens.kind == WORD and tokens.text in _LABELS else ""
        if label:
            self._read_label(item, label)
        if tokens.kind == WORD and tokens.text == "group" and (label or in_oneof):
            self._read_group(message, item, scope, depth)
            return
        type_at = tokens.at
        type_name = tokens.dotted("a field's type", leading_dot=True)
        if type_name == "map" and tokens.text == "<":
            if label or in_oneof or message is None:
                raise tokens.error("a map has no label and is no part of a oneof or an extension", at)
            self._read_map(message, item, scope, type_at)
            return
        if not label and self.syntax == "proto2" and not in_oneof:
            raise tokens.error("expected optional, required or repeated in front of the field's type", at)
        self._set_type(item, type_name, scope, type_at)
        self._read_field_end(item, scope)

    def _read_label(self, item: FieldDescriptorProto, label: str) -> None:
        tokens = self.tokens
        if label == "required" and self.syntax != "proto2":
            raise tokens.error("there are required fields only in proto2; leave 'required' out")
        if label == "optional" and self.syntax == "editions":
            raise tokens.error("in an edition a field is optional by itself; leave 'optional' out")
        tokens.advance()
        item.label = _LABELS[label]
        if label == "optional" and self.syntax == "proto3":
            item.proto3_optional = True

    def _set_type(self, item: FieldDescriptorProto, name: str, scope: str, at: int) -> None:
        scalar = SCALAR_TYPES.get(name)
        if scalar is not None:
            item.type = scalar
        else:
            item.type_name = name
            self.file.types.append(TypeUse(item, "type_name", scope, at))

    def _read_field_end(self, item: FieldDescriptorProto, scope: str) -> None:
        """Parse a field from its name to its semicolon."""
        item.name, _ = self.declare(scope, "field")
        self._read_number(item)
        self._read_field_options(item, scope)
        self.tokens.expect(";", " after the field")

    def _read_number(self, item: FieldDescriptorProto) -> None:
        self.tokens.expect("=", " and the field's number")
        item.number = self.tokens.whole_number("the field's number", 1, MAX_ENUM_NUMBER)

    def _read_field_options(self, item: FieldDescriptorProto, scope: str) -> None:
        tokens = self.tokens
        if tokens.take("["):
            for _ in tokens.listed():
                at = tokens.at
                if tokens.text == "default":
                    self._read_field_default(item, at)
                elif tokens.text == "json_name":
                    tokens.advance()
                    tokens.expect("=")
                    if item.HasField("json_name"):
                        raise tokens.error("the field's json_name is set twice", at)
                    item.json_name = tokens.string("the json_name")
                else:
                    self.read_option(item.options, scope)
            tokens.expect("]", " after the field's options")
        if not item.HasField("json_name"):
            item.json_name = json_name(item.name)

    def _read_field_default(self, item: FieldDescriptorProto, at: int) -> None:
        tokens = self.tokens
        tokens.advance()
        tokens.expect("=")
        if item.HasField("default_value"):
            raise tokens.error("the field's default is set twice", at)
        if item.label == FieldDescriptorProto.LABEL_REPEATED:
            raise tokens.error("a repeated field cannot have a default", at)
        item.default_value = read_default(tokens, item.type if item.HasField("type") else None)

    def _read_map(self, message: DescriptorProto, item: FieldDescriptorProto, scope: str, at: int) -> None:
        tokens = self.tokens
        tokens.expect("<")
        key_at = tokens.at
        key_type = tokens.dotted("the type of the map's keys", leading_dot=True)
        tokens.expect(",")
        value_at = tokens.at
        value_type = tokens.dotted("the type of the map's values", leading_dot=True)
        tokens.expect(">")
        if key_type not in SCALAR_TYPES or key_type in ("float", "double", "bytes"):
            raise tokens.error("the keys of a map are of a whole number type, bool or string", key_at)
        name_at = tokens.at
        item.label = FieldDescriptorProto.LABEL_REPEATED
        item.type = FieldDescriptorProto.TYPE_MESSAGE
        item.name, _ = self.declare(scope, "field")
        self.count(name_at)
        entry = message.nested_type.add(name=map_entry_name(item.name))
        entry.options.map_entry = True
        full = f"{scope}.{entry.name}"
        self.file.places.setdefault(full, name_at)
        item.type_name = f".{full}"
        for number, name, type_name, type_at in ((1, "key", key_type, key_at), (2, "value", value_type, value_at)):
            part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL, json_name=name)
            self._set_type(part, type_name, full, type_at)
        self._read_number(item)
        self._read_field_options(item, scope)
        tokens.expect(";", " after the field")

    def _read_group(self, message: DescriptorProto | None, item: FieldDescriptorProto, scope: str, depth: int) -> None:
        tokens = self.tokens
        at = tokens.at
        if message is None:
            raise tokens.error("a group as an extension is not supported; declare a message and use it")
        if self.syntax != "proto2":
            raise tokens.error("there are groups only in proto2; declare a message and use it")
        if depth >= MAX_NESTING:
            raise tokens.error(f"messages are declared more than {MAX_NESTING + 1} levels deep in one another")
        tokens.advance()
        group = message.nested_type.add()
        group.name, full = self.declare(scope, "group")
        if not group.name[0].isupper():
            raise tokens.error("the name of a group begins with a capital letter", at)
        item.name = group.name.lower()
        self.file.places.setdefault(f"{scope}.{item.name}", at)
        item.type = FieldDescriptorProto.TYPE_GROUP
        item.type_name = f".{full}"
        self._read_number(item)
        self._read_field_options(item, scope)
        self._read_message_body(group, full, depth + 1)

    def _read_extensions(self, message: DescriptorProto, scope: str) -> None:
        tokens = self.tokens
        first = len(message.extension_range)
        for _ in tokens.listed():
            self.count(tokens.at)
            start = tokens.whole_number("the number of an extension", 1, MAX_ENUM_NUMBER)
            message.extension_range.add(start=start, end=self.read_range_end(start, 1, exclusive=True))
        if tokens.text == "[":
            uses = len(self.file.options)
            tokens.advance()
            for _ in tokens.listed():
                self.read_option(message.extension_range[first].options, scope)
            tokens.expect("]")
            # The options are written once after the ranges and apply to each of them.
            for use in self.file.options[uses:]:
                for span in message.extension_range[first + 1 :]:
                    self.count(use.at)
                    self.file.options.append(OptionUse(span.options, use.name, use.value, use.scope, use.at))
        tokens.expect(";", " after the extension numbers")
