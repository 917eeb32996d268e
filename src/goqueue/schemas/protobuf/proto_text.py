"""Writer of ``.proto`` text: deterministic, the same text for the same descriptor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from google.protobuf import text_encoding, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FieldOptions,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from goqueue.schemas.protobuf.proto_file import MAX_ENUM_NUMBER, MAX_FIELD_NUMBER, Options, json_name
from goqueue.schemas.protobuf.proto_values import SCALAR_TYPES, FieldType, escaped_bytes, number_text

_TYPE_NAMES: dict[FieldType, str] = {number: name for name, number in SCALAR_TYPES.items()}
_LABELS = {FieldDescriptorProto.LABEL_REQUIRED: "required ", FieldDescriptorProto.LABEL_REPEATED: "repeated "}
_PLAIN_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord('"'): '\\"', ord("\\"): "\\\\"}
_ESCAPES = {code: f"\\{code:03o}" for code in (*range(32), 127)} | _PLAIN_ESCAPES


def proto_text(file: FileDescriptorProto, pool: DescriptorPool, *, normalized: bool = False) -> str:
    """Text of a descriptor, with the options that ``pool`` knows.

    Declarations stay in their order. ``normalized`` sorts those whose order has no meaning: imports, fields, enum
    values after the first, ranges, enums, services. Messages keep their order, since framed payloads identify their
    type by its index in the file.
    """
    return _Writer(file, pool, normalized).text()


def quoted(text: str) -> str:
    """A string literal."""
    return f'"{text.translate(_ESCAPES)}"'


class _Writer:
    def __init__(self, file: FileDescriptorProto, pool: DescriptorPool, normalized: bool) -> None:
        self._file = file
        self._pool = pool
        self._normalized = normalized
        self._lines: list[str] = []
        try:
            pool.FindFileByName("google/protobuf/descriptor.proto")
            self._has_custom_options = True
        except KeyError:
            self._has_custom_options = False

    def text(self) -> str:
        file = self._file
        if file.syntax == "editions":
            self._lines.append('edition = "2023";')
        else:
            self._lines.append(f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            self._lines.append(f"package {file.package};")
        self._write_imports()
        self._write_option_statements(file.options, "")
        for message in file.message_type:
            self._lines.append("")
            self._write_nested(message, file.package, "")
        self._write_enums(file.enum_type, "")
        self._write_extensions(file.extension, "")
        self._write_services(file.service)
        return "\n".join(self._lines) + "\n"

    def _write_imports(self) -> None:
        file = self._file
        lines = []
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        for index, name in enumerate(file.dependency):
            kind = "public " if index in public else "weak " if index in weak else ""
            lines.append(f"import {kind}{quoted(name)};")
        self._lines.extend(sorted(lines) if self._normalized else lines)

    def _write_message(self, message: DescriptorProto, scope: str, indent: str) -> None:
        full = f"{scope}.{message.name}" if scope else message.name
        self._write_option_statements(message.options, indent)
        self._write_ranges(message, indent)
        inner = {field.type_name for field in message.field if field.type == FieldDescriptorProto.TYPE_GROUP} | {
            f".{full}.{nested.name}" for nested in message.nested_type if nested.options.map_entry
        }
        types = {f".{full}.{nested.name}": nested for nested in message.nested_type}
        pending = iter(list(types))
        for fields in self._ordered_fields(message, free=not inner or len(inner) == len(types)):
            # The message that a map or a group declares must appear at its original index among the nested messages.
            for field in fields:
                if field.type_name in inner:
                    for name in pending:
                        if name == field.type_name:
                            break
                        if name not in inner:
                            self._write_nested(types[name], full, indent)
            self._write_fields(message, fields, types, full, indent)
        for name in pending:
            if name not in inner:
                self._write_nested(types[name], full, indent)
        self._write_enums(message.enum_type, indent)
        self._write_extensions(message.extension, indent)

    def _write_nested(self, message: DescriptorProto, scope: str, indent: str) -> None:
        self._lines.append(f"{indent}message {message.name} {{")
        self._write_message(message, scope, indent + "  ")
        self._lines.append(f"{indent}}}")

    def _ordered_fields(self, message: DescriptorProto, *, free: bool) -> list[list[FieldDescriptorProto]]:
        """Fields in the order in which they are written, those of a oneof together. A message that declares both
        messages and maps keeps its order, since map entries count in the indexes of nested messages."""
        fields: Iterable[FieldDescriptorProto] = message.field
        if self._normalized and free:
            fields = sorted(message.field, key=lambda field: field.number)
        oneofs: dict[int, list[FieldDescriptorProto]] = {}
        groups: list[list[FieldDescriptorProto]] = []
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                groups.append([field])
            elif field.oneof_index in oneofs:
                oneofs[field.oneof_index].append(field)
            else:
                groups.append(oneofs.setdefault(field.oneof_index, [field]))
        return groups

    def _write_fields(
        self,
        message: DescriptorProto,
        fields: Sequence[FieldDescriptorProto],
        types: dict[str, DescriptorProto],
        scope: str,
        indent: str,
    ) -> None:
        first = fields[0]
        if not first.HasField("oneof_index") or first.proto3_optional:
            self._write_field(first, types, scope, indent)
            return
        oneof = message.oneof_decl[first.oneof_index]
        self._lines.append(f"{indent}oneof {oneof.name} {{")
        self._write_option_statements(oneof.options, indent + "  ")
        for field in fields:
            self._write_field(field, types, scope, indent + "  ", in_oneof=True)
        self._lines.append(f"{indent}}}")

    def _write_field(
        self,
        field: FieldDescriptorProto,
        types: dict[str, DescriptorProto],
        scope: str,
        indent: str,
        *,
        in_oneof: bool = False,
    ) -> None:
        entry = types.get(field.type_name) if field.type_name else None
        label = "" if in_oneof else self._label(field)
        options = self._field_options(field)
        if field.type == FieldDescriptorProto.TYPE_GROUP and entry is not None:
            self._lines.append(f"{indent}{label}group {entry.name} = {field.number}{options} {{")
            self._write_message(entry, scope, indent + "  ")
            self._lines.append(f"{indent}}}")
            return
        if entry is not None and entry.options.map_entry:
            label = ""
            kind = f"map<{_type_name(entry.field[0])}, {_type_name(entry.field[1])}>"
        else:
            kind = _type_name(field)
        self._lines.append(f"{indent}{label}{kind} {field.name} = {field.number}{options};")

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.proto3_optional or (
            field.label == FieldDescriptorProto.LABEL_OPTIONAL and self._file.syntax in ("", "proto2")
        ):
            return "optional "
        return _LABELS.get(field.label, "")

    def _field_options(self, field: FieldDescriptorProto) -> str:
        options = []
        if field.HasField("default_value"):
            options.append(f"default = {_default(field)}")
        if field.json_name and field.json_name != json_name(field.name):
            options.append(f"json_name = {quoted(field.json_name)}")
        if field.HasField("options"):
            options.extend(self._options(field.options))
        return _in_brackets(options)

    def _write_ranges(self, message: DescriptorProto, indent: str) -> None:
        for span in message.extension_range:
            options = _in_brackets(self._options(span.options) if span.HasField("options") else ())
            # Extensions of a message set may have any number, so its ``max`` is higher.
            highest = MAX_ENUM_NUMBER - 1 if message.options.message_set_wire_format else MAX_FIELD_NUMBER
            numbers = _range(span.start, span.end - 1, highest)
            self._lines.append(f"{indent}extensions {numbers}{options};")
        spans = [(span.start, span.end - 1) for span in message.reserved_range]
        self._write_reserved(spans, message.reserved_name, MAX_FIELD_NUMBER, indent)

    def _write_reserved(self, spans: list[tuple[int, int]], names: Iterable[str], highest: int, indent: str) -> None:
        if self._normalized:
            spans = _joined(spans)
            names = sorted(set(names))
        if spans:
            ranges = ", ".join(_range(start, end, highest) for start, end in spans)
            self._lines.append(f"{indent}reserved {ranges};")
        shown = [name if self._file.syntax == "editions" else quoted(name) for name in names]
        if shown:
            self._lines.append(f"{indent}reserved {', '.join(shown)};")

    def _write_enums(self, enums: Iterable[EnumDescriptorProto], indent: str) -> None:
        for enum in sorted(enums, key=lambda enum: enum.name) if self._normalized else enums:
            if not indent:
                self._lines.append("")
            self._lines.append(f"{indent}enum {enum.name} {{")
            inner = indent + "  "
            self._write_option_statements(enum.options, inner)
            self._write_reserved(
                [(span.start, span.end) for span in enum.reserved_range], enum.reserved_name, MAX_ENUM_NUMBER, inner
            )
            values = list(enum.value)
            if self._normalized:
                # The first value is the default of proto2 fields, so it stays first.
                values[1:] = sorted(values[1:], key=lambda value: value.number)
            for value in values:
                options = _in_brackets(self._options(value.options) if value.HasField("options") else ())
                self._lines.append(f"{inner}{value.name} = {value.number}{options};")
            self._lines.append(f"{indent}}}")

    def _write_extensions(self, extensions: Iterable[FieldDescriptorProto], indent: str) -> None:
        if self._normalized:
            extensions = sorted(extensions, key=lambda field: (field.extendee, field.number))
        extendee = ""
        for field in extensions:
            if field.extendee != extendee:
                if extendee:
                    self._lines.append(f"{indent}}}")
                elif not indent:
                    self._lines.append("")
                extendee = field.extendee
                self._lines.append(f"{indent}extend {extendee} {{")
            self._write_field(field, {}, "", indent + "  ")
        if extendee:
            self._lines.append(f"{indent}}}")

    def _write_services(self, services: Iterable[ServiceDescriptorProto]) -> None:
        for service in sorted(services, key=lambda service: service.name) if self._normalized else services:
            self._lines.extend(("", f"service {service.name} {{"))
            self._write_option_statements(service.options, "  ")
            methods = sorted(service.method, key=lambda method: method.name) if self._normalized else service.method
            for method in methods:
                takes = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
                gives = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
                line = f"  rpc {method.name} ({takes}) returns ({gives})"
                options = list(self._options(method.options)) if method.HasField("options") else []
                if options:
                    self._lines.append(f"{line} {{")
                    self._lines.extend(f"    option {option};" for option in options)
                    self._lines.append("  }")
                else:
                    self._lines.append(f"{line};")
            self._lines.append("}")

    def _write_option_statements(self, options: Options, indent: str) -> None:
        self._lines.extend(f"{indent}option {option};" for option in self._options(options))

    def _options(self, options: Options) -> Iterator[str]:
        known: Message = options
        if self._has_custom_options and options.ByteSize():
            known = GetMessageClass(self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name))()
            known.MergeFromString(options.SerializeToString())
        for field, value in known.ListFields():
            if field.name in ("uninterpreted_option", "map_entry") or (
                field.is_extension and not self._has_custom_options
            ):
                continue
            # Compilers omit these options from descriptors, so they must not affect the schema's identity.
            if field.GetOptions().retention == FieldOptions.RETENTION_SOURCE:
                continue
            name = f"(.{field.full_name})" if field.is_extension else field.name
            for single in value if field.is_repeated else [value]:
                yield f"{name} = {self._option_value(field, single)}"

    def _option_value(self, field: FieldDescriptor, value: object) -> str:
        if isinstance(value, Message):
            text = text_format.MessageToString(value, as_one_line=True, descriptor_pool=self._pool)
            return f"{{ {text.strip()} }}" if text.strip() else "{}"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, bytes):
            if field.type == FieldDescriptor.TYPE_STRING:
                raise TypeError(f"the option {field.full_name} is not UTF-8")
            return f'"{escaped_bytes(value)}"'
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, float):
            return number_text(value, single=field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT)
        if field.enum_type is not None and isinstance(value, int):
            constant = field.enum_type.values_by_number.get(value)
            return constant.name if constant else str(value)
        return str(value)


def _type_name(field: FieldDescriptorProto) -> str:
    return field.type_name or _TYPE_NAMES[field.type]


def _in_brackets(options: Iterable[str]) -> str:
    joined = ", ".join(options)
    return f" [{joined}]" if joined else ""


def _default(field: FieldDescriptorProto) -> str:
    """A default in one notation, however the descriptor writes it."""
    text = field.default_value
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return quoted(text)
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return f'"{escaped_bytes(text_encoding.CUnescape(text))}"'
    if field.type in (FieldDescriptorProto.TYPE_FLOAT, FieldDescriptorProto.TYPE_DOUBLE):
        return number_text(float(text), single=field.type == FieldDescriptorProto.TYPE_FLOAT)
    return text


def _range(start: int, end: int, highest: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == highest else end}"


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges sorted, with adjacent ones merged."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
