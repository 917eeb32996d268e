"""``docs/reference/grpc.md``, from ``goqueue.proto`` and its comments."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from reference_pages.markdown import anchor, code, link, page, sentences, table

SOURCE = Path(__file__).parents[2] / "src"
PROTO = "goqueue/wire/proto/goqueue.proto"

_INTRO = """\
# gRPC API

{about}

The file is [goqueue.proto](../../src/goqueue/wire/proto/goqueue.proto): a client in any language is made from it. The
package is `{package}`. [Groups](../groups.md) and [the Python client](../client.md) tell how calls play together."""

# Where the parts of a file are: the numbers of their fields in descriptor.proto.
_SYNTAX, _MESSAGE, _ENUM, _SERVICE = 12, 4, 5, 6
_FIELD, _NESTED_ENUM, _VALUE, _METHOD = 2, 4, 2, 2

Path_ = tuple[int, ...]


def grpc_page() -> str:
    """The text of the page."""
    return GrpcPage(described()).text()


def described() -> FileDescriptorProto:
    """The file, with its comments."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "described"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCE}", "--include_source_info"]
        subprocess.run([*command, f"--descriptor_set_out={out}", PROTO], check=True, cwd=SOURCE)
        [file] = FileDescriptorSet.FromString(out.read_bytes()).file
    return file


class GrpcPage:
    """Services with their calls, then messages and enumerations by name."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._comments: dict[Path_, str] = {}
        self._about: list[str] = []
        for location in file.source_code_info.location:
            own = location.leading_comments or location.trailing_comments
            self._comments[tuple(location.path)] = sentences(own)
            if tuple(location.path) == (_SYNTAX,):
                self._about = [*location.leading_detached_comments, location.leading_comments]

    def text(self) -> str:
        about = "\n\n".join(sentences(part) for text in self._about for part in text.split("\n\n") if part.strip())
        parts = [_INTRO.format(about=about, package=self._file.package)]
        for number, service in enumerate(self._file.service):
            place = (_SERVICE, number)
            rows = [
                self._call(method, self._said(*place, _METHOD, index)) for index, method in enumerate(service.method)
            ]
            parts += [f"## Service {service.name}", self._said(*place)]
            parts.append(table(("Call", "Takes", "Answers with", "Meaning"), rows))
        parts.append("## Messages and enumerations")
        for _, text in sorted(self._types()):
            parts.append(text)
        return page(*parts)

    def _types(self) -> Iterator[tuple[str, str]]:
        for number, message in enumerate(self._file.message_type):
            yield message.name, self._message(message, (_MESSAGE, number))
            for index, enum in enumerate(message.enum_type):
                place = (_MESSAGE, number, _NESTED_ENUM, index)
                yield f"{message.name}.{enum.name}", self._enum(enum, place, f"{message.name}.{enum.name}")
        for number, enum in enumerate(self._file.enum_type):
            yield enum.name, self._enum(enum, (_ENUM, number), enum.name)

    def _call(self, method: MethodDescriptorProto, said: str) -> tuple[str, ...]:
        takes = ("a stream of " if method.client_streaming else "") + self._reference(method.input_type)
        answers = ("a stream of " if method.server_streaming else "") + self._reference(method.output_type)
        return code(method.name), takes, answers, said

    def _message(self, message: DescriptorProto, place: Path_) -> str:
        rows = []
        for number, field in enumerate(message.field):
            said = self._said(*place, _FIELD, number)
            if field.HasField("oneof_index") and not field.proto3_optional:
                said = f"One of `{message.oneof_decl[field.oneof_index].name}`. {said}"
            rows.append((code(field.name), self._type(message, field), str(field.number), said.strip()))
        fields = table(("Field", "Type", "No.", "Meaning"), rows) or "Has no fields."
        return "\n\n".join(part for part in (f"### {message.name}", self._said(*place), fields) if part)

    def _enum(self, enum: EnumDescriptorProto, place: Path_, name: str) -> str:
        rows = [
            (code(value.name), str(value.number), self._said(*place, _VALUE, number))
            for number, value in enumerate(enum.value)
        ]
        parts = (f"### {name}", self._said(*place), table(("Value", "No.", "Meaning"), rows))
        return "\n\n".join(part for part in parts if part)

    def _type(self, message: DescriptorProto, field: FieldDescriptorProto) -> str:
        for nested in message.nested_type:
            if nested.options.map_entry and field.type_name.endswith(f".{message.name}.{nested.name}"):
                key, value = nested.field
                return f"map of {self._type(nested, key)} to {self._type(nested, value)}"
        if field.type_name:
            kind = self._reference(field.type_name)
        else:
            kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return f"list of {kind}"
        return f"{kind}, may be absent" if field.proto3_optional else kind

    def _reference(self, full_name: str) -> str:
        name = full_name.removeprefix(f".{self._file.package}.")
        return link(name, anchor(name))

    def _said(self, *place: int) -> str:
        return self._comments.get(place, "")
