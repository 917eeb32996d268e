"""Rules of Protobuf that hold for a file by itself, whether it was parsed from text or given as a descriptor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from google.protobuf.descriptor_pb2 import (
    EDITION_2023,
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from goqueue.schemas.base import MAX_NODES
from goqueue.schemas.protobuf.proto_file import (
    MAX_ENUM_NUMBER,
    MAX_FIELD_NUMBER,
    MAX_NAME,
    MAX_NESTING,
    json_name,
    map_entry_name,
)
from goqueue.schemas.protobuf.proto_tokens import shortened
from goqueue.schemas.protobuf.proto_values import SCALAR_TYPES

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION_MESSAGES = frozenset(
    f".google.protobuf.{name}Options"
    for name in ("File", "Message", "Field", "Oneof", "ExtensionRange", "Enum", "EnumValue", "Service", "Method")
)
_NAMED_TYPES = {FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP, FieldDescriptorProto.TYPE_ENUM}
_NO_MAP_KEYS = _NAMED_TYPES | {SCALAR_TYPES[name] for name in ("float", "double", "bytes")}


class BrokenRule(Exception):
    """A broken rule: a description, and the full name that breaks it, whose position in the text may be known."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def check_file(file: FileDescriptorProto) -> int:
    """Raises ``BrokenRule`` for the first rule that the file breaks; returns the number of nodes in the file."""
    checker = _Checker(file)
    checker.check()
    return checker.nodes


class _Checker:
    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._proto3 = file.syntax == "proto3"
        self.nodes = 0
        self._declared: set[str] = set()

    def check(self) -> None:
        file = self._file
        if file.syntax not in ("", "proto2", "proto3", "editions"):
            raise BrokenRule("", f"unknown syntax {shortened(file.syntax)}; there are proto2, proto3 and editions")
        if file.syntax == "editions" and file.edition != EDITION_2023:
            raise BrokenRule("", "only edition 2023 is supported")
        for part in file.package.split(".") if file.package else ():
            self._check_name(part, file.package)
        self._check_imports()
        for message in file.message_type:
            self._check_message(message, file.package, 0)
        self._check_enums(file.enum_type, file.package)
        self._check_extensions(file.extension, file.package)
        for service in file.service:
            full = self._declare(service.name, file.package)
            for method in service.method:
                self._declare(method.name, full)

    def _check_imports(self) -> None:
        count = len(self._file.dependency)
        self.nodes += count
        if len(set(self._file.dependency)) != count:
            raise BrokenRule("", "a file is imported twice")
        for index in (*self._file.public_dependency, *self._file.weak_dependency):
            if not 0 <= index < count:
                raise BrokenRule("", f"import number {index} is public or weak, but there are {count} imports")

    def _declare(self, name: str, scope: str) -> str:
        full = f"{scope}.{name}" if scope else name
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise BrokenRule(full, f"the schema has more than {MAX_NODES} parts")
        self._check_name(name, full)
        if full in self._declared:
            raise BrokenRule(full, f"{full} is declared twice")
        self._declared.add(full)
        return full

    @staticmethod
    def _check_name(name: str, full: str) -> None:
        if len(full) > MAX_NAME:
            raise BrokenRule(full, f"the full name {shortened(full)} is longer than {MAX_NAME} characters")
        if not _NAME.fullmatch(name):
            raise BrokenRule(full, f"{shortened(name)} is not a name; names have letters, digits and underscores")

    def _check_message(self, message: DescriptorProto, scope: str, depth: int) -> None:
        full = self._declare(message.name, scope)
        if depth > MAX_NESTING:
            raise BrokenRule(full, f"messages are declared more than {MAX_NESTING + 1} levels deep in one another")
        self._check_fields(message, full)
        self._check_ranges(message, full)
        self._check_oneofs(message, full)
        self._check_inner_messages(message, full)
        self._check_extensions(message.extension, full)
        self._check_enums(message.enum_type, full)
        for nested in message.nested_type:
            self._check_message(nested, full, depth + 1)

    def _check_fields(self, message: DescriptorProto, scope: str) -> None:
        by_number: dict[int, str] = {}
        by_json_name: dict[str, str] = {}
        reserved_names = set(message.reserved_name)
        for field in message.field:
            full = self._declare(field.name, scope)
            self._check_field(field, full)
            other = by_number.setdefault(field.number, field.name)
            if other != field.name:
                raise BrokenRule(full, f"number {field.number} is that of {other} already")
            if field.name in reserved_names:
                raise BrokenRule(full, f"the name {field.name} is reserved in {scope}")
            shown = field.json_name or json_name(field.name)
            other = by_json_name.setdefault(shown, field.name)
            if self._proto3 and other != field.name:
                raise BrokenRule(full, f"{other} and {field.name} have the same name in JSON, {shortened(shown)}")

    def _check_field(self, field: FieldDescriptorProto, full: str) -> None:
        if not 1 <= field.number <= MAX_FIELD_NUMBER and not field.extendee:
            raise BrokenRule(full, f"number {field.number} does not lie between 1 and {MAX_FIELD_NUMBER}")
        if not field.type_name and (not field.HasField("type") or field.type in _NAMED_TYPES):
            raise BrokenRule(full, "the field has no type")
        if 19000 <= field.number <= 19999:
            raise BrokenRule(full, "the numbers 19000 to 19999 are kept for protobuf itself")
        if self._proto3:
            if field.label == FieldDescriptorProto.LABEL_REQUIRED:
                raise BrokenRule(full, "there are required fields only in proto2")
            if field.HasField("default_value"):
                raise BrokenRule(full, "fields have defaults of their own only in proto2 and editions")
            if field.type == FieldDescriptorProto.TYPE_GROUP:
                raise BrokenRule(full, "there are groups only in proto2")
        if field.proto3_optional and not self._proto3:
            raise BrokenRule(full, "a proto3 optional field lies in a file that is not of proto3")

    def _check_ranges(self, message: DescriptorProto, full: str) -> None:
        if self._proto3 and message.extension_range:
            raise BrokenRule(full, "messages of proto3 cannot be extended")
        self._check_reserved_names(message.reserved_name, full)
        spans = [(span.start, span.end, "reserved") for span in message.reserved_range]
        spans += [(span.start, span.end, "kept for extensions") for span in message.extension_range]
        self.nodes += len(spans)
        for start, end, _ in spans:
            if start < 1 or end <= start:
                raise BrokenRule(full, f"the range from {start} to {end - 1} has no numbers")
        self._check_spans(spans, [(field.number, field.name) for field in message.field], full, full)

    def _check_reserved_names(self, names: Sequence[str], full: str) -> None:
        self.nodes += len(names)
        if self._file.syntax == "editions":
            for name in names:
                self._check_name(name, f"{full}.{name}")

    @staticmethod
    def _check_spans(spans: list[tuple[int, int, str]], used: Iterable[tuple[int, str]], full: str, scope: str) -> None:
        """Ranges (their ends are exclusive) must not overlap, and declared numbers must lie outside them."""
        spans.sort()
        last = None
        for start, end, _ in spans:
            if last is not None and start < last:
                raise BrokenRule(full, f"the number {start} lies in two of the ranges that are reserved or extensions")
            last = end
        numbers = sorted(used) if spans else ()
        at = 0
        for number, name in numbers:
            while at < len(spans) and spans[at][1] <= number:
                at += 1
            if at < len(spans) and spans[at][0] <= number:
                path = f"{scope}.{name}" if scope else name
                raise BrokenRule(path, f"the number {number} of {name} is {spans[at][2]} in {full}")

    def _check_oneofs(self, message: DescriptorProto, full: str) -> None:
        filled = set()
        for field in message.field:
            if field.HasField("oneof_index"):
                if not 0 <= field.oneof_index < len(message.oneof_decl):
                    raise BrokenRule(f"{full}.{field.name}", "the field lies in a oneof that there is not")
                if field.label != FieldDescriptorProto.LABEL_OPTIONAL:
                    raise BrokenRule(f"{full}.{field.name}", "a field of a oneof cannot be repeated or required")
                filled.add(field.oneof_index)
            elif field.proto3_optional:
                raise BrokenRule(f"{full}.{field.name}", "a proto3 optional field must lie in a oneof of its own")
        for index, oneof in enumerate(message.oneof_decl):
            name = self._declare(oneof.name, full)
            if index not in filled:
                raise BrokenRule(name, "a oneof needs at least one field")

    def _check_inner_messages(self, message: DescriptorProto, full: str) -> None:
        """Check the messages that a field of the same message declares implicitly: map entries and groups."""
        fields: dict[str, FieldDescriptorProto] = {}
        for field in message.field:
            if field.type in (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP):
                fields.setdefault(field.type_name, field)
        groups = {f.type_name: f.name for f in message.field if f.type == FieldDescriptorProto.TYPE_GROUP}
        for nested in message.nested_type:
            name = f".{full}.{nested.name}"
            if groups.pop(name, nested.name.lower()) != nested.name.lower():
                raise BrokenRule(name[1:], "a group's field must have the group's name in small letters")
            if nested.options.map_entry:
                user = fields.get(name)
                if user is None or map_entry_name(user.name) != nested.name:
                    raise BrokenRule(name[1:], "the message says that it is the entry of a map, but no map has it")
                self._check_map_entry(nested, user, name[1:])
        if groups:
            raise BrokenRule(next(iter(groups))[1:], "a group must lie in the message that uses it")

    @staticmethod
    def _check_map_entry(entry: DescriptorProto, user: FieldDescriptorProto, full: str) -> None:
        parts = [(field.name, field.number, field.label) for field in entry.field]
        optional = FieldDescriptorProto.LABEL_OPTIONAL
        if parts != [("key", 1, optional), ("value", 2, optional)] or (
            user.label != FieldDescriptorProto.LABEL_REPEATED
            or entry.nested_type
            or entry.enum_type
            or entry.extension
            or entry.extension_range
        ):
            raise BrokenRule(full, "the entry of a map has a key with number 1 and a value with number 2, nothing else")
        if entry.field[0].type in _NO_MAP_KEYS:
            raise BrokenRule(full, "the keys of a map are of a whole number type, bool or string")

    def _check_extensions(self, extensions: Iterable[FieldDescriptorProto], scope: str) -> None:
        for field in extensions:
            full = self._declare(field.name, scope)
            self._check_field(field, full)
            if field.type == FieldDescriptorProto.TYPE_GROUP:
                raise BrokenRule(full, "a group as an extension is not supported; declare a message and use it")
            if field.HasField("oneof_index") or field.label == FieldDescriptorProto.LABEL_REQUIRED:
                raise BrokenRule(full, "an extension cannot be required, nor lie in a oneof")
            if self._proto3 and field.extendee not in _OPTION_MESSAGES:
                raise BrokenRule(
                    full, "files of proto3 can extend only the options of google/protobuf/descriptor.proto"
                )

    def _check_enums(self, enums: Sequence[EnumDescriptorProto], scope: str) -> None:
        for enum in enums:
            full = self._declare(enum.name, scope)
            if not enum.value:
                raise BrokenRule(full, "an enum needs at least one value")
            if self._proto3 and enum.value[0].number != 0:
                raise BrokenRule(full, "the first value of an enum of proto3 has number 0")
            by_number: dict[int, str] = {}
            reserved_names = set(enum.reserved_name)
            for value in enum.value:
                self._declare(value.name, scope)
                other = by_number.setdefault(value.number, value.name)
                if other != value.name and not enum.options.allow_alias:
                    raise BrokenRule(
                        full,
                        f"{value.name} and {other} both have number {value.number}; "
                        "if that is meant, set option allow_alias = true",
                    )
                if value.name in reserved_names:
                    raise BrokenRule(full, f"the name {value.name} is reserved in {full}")
            self._check_enum_ranges(enum, full, scope)

    def _check_enum_ranges(self, enum: EnumDescriptorProto, full: str, scope: str) -> None:
        self._check_reserved_names(enum.reserved_name, full)
        spans = []
        self.nodes += len(enum.reserved_range)
        for span in enum.reserved_range:
            if span.end < span.start or span.end > MAX_ENUM_NUMBER:
                raise BrokenRule(full, f"the range from {span.start} to {span.end} has no numbers")
            spans.append((span.start, span.end + 1, "reserved"))
        self._check_spans(spans, [(value.number, value.name) for value in enum.value], full, scope)
