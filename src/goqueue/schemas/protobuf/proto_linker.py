"""Resolves the names used in a ``.proto`` text, within the file and in its imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.protobuf.proto_file import ParsedFile

MESSAGE, ENUM, SCOPE, OTHER = "message", "enum", "scope", "other"

Symbols = Mapping[str, str]
"""Kind of each full name: a message, an enum, another scope (a package, a service), or anything else."""


def symbols_of(file: FileDescriptorProto) -> dict[str, str]:
    """Every full name that a file declares, including those of its package."""
    symbols: dict[str, str] = {}
    package = file.package
    prefix = f"{package}." if package else ""
    for message in file.message_type:
        _collect(message, prefix, symbols)
    _collect_enums(file.enum_type, prefix, symbols)
    for extension in file.extension:
        symbols[prefix + extension.name] = OTHER
    for service in file.service:
        symbols[prefix + service.name] = SCOPE
        for method in service.method:
            symbols[f"{prefix}{service.name}.{method.name}"] = OTHER
    while package:
        symbols[package] = SCOPE
        package = package.rpartition(".")[0]
    return symbols


def _collect(message: DescriptorProto, prefix: str, symbols: dict[str, str]) -> None:
    full = prefix + message.name
    inside = f"{full}."
    symbols[full] = MESSAGE
    for field in (*message.field, *message.extension):
        symbols[inside + field.name] = OTHER
    for oneof in message.oneof_decl:
        symbols[inside + oneof.name] = OTHER
    _collect_enums(message.enum_type, inside, symbols)
    for nested in message.nested_type:
        _collect(nested, inside, symbols)


def _collect_enums(enums: Iterable[EnumDescriptorProto], prefix: str, symbols: dict[str, str]) -> None:
    for enum in enums:
        symbols[prefix + enum.name] = ENUM
        for value in enum.value:
            symbols[prefix + value.name] = OTHER


def visible_files(file: FileDescriptorProto, files: Mapping[str, FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    """Files whose names a file may use: its imports, and their public imports."""
    pending = list(file.dependency)
    seen = set(pending)
    while pending:
        imported = files[pending.pop()]
        yield imported
        for index in imported.public_dependency:
            name = imported.dependency[index]
            if name not in seen:
                seen.add(name)
                pending.append(name)


def find(name: str, scope: str, symbols: Symbols, kinds: tuple[str, ...]) -> str | None:
    """Resolve a name in a scope to its full name: the innermost scope that declares its first part decides."""
    if name.startswith("."):
        return name[1:] if symbols.get(name[1:]) in kinds else None
    first, dot, rest = name.partition(".")
    while True:
        candidate = f"{scope}.{first}" if scope else first
        kind = symbols.get(candidate)
        if kind is not None:
            if not dot:
                if kind in kinds:
                    return candidate
            elif kind != OTHER:
                candidate = f"{candidate}.{rest}"
                return candidate if symbols.get(candidate) in kinds else None
        if not scope:
            return None
        scope = scope.rpartition(".")[0]


def link_types(parsed: ParsedFile, symbols: Symbols) -> None:
    """Set the full name of every type that the text refers to, and the kind of type of each field."""
    known: dict[tuple[str, str], str | None] = {}
    for use in parsed.types:
        name: str = getattr(use.target, use.attribute)
        key = (use.scope, name)
        if key not in known:
            known[key] = find(name, use.scope, symbols, (MESSAGE, ENUM))
        full = known[key]
        if full is None:
            raise parsed.tokens.error(
                f"{name} is not defined here, nor in a file that is imported (which must also be a reference)", use.at
            )
        problem = set_type(use.target, use.attribute, full, symbols[full])
        if problem:
            raise parsed.tokens.error(problem, use.at)


def set_type(target: FieldDescriptorProto | MethodDescriptorProto, attribute: str, full: str, kind: str) -> str | None:
    """Set a resolved type; returns the problem if there is one."""
    if attribute != "type_name" and kind != MESSAGE:
        return f"{full} is an enum, but a message is needed here"
    setattr(target, attribute, f".{full}")
    if isinstance(target, FieldDescriptorProto) and attribute == "type_name":
        if kind == ENUM:
            target.type = FieldDescriptorProto.TYPE_ENUM
        elif target.HasField("default_value"):
            return "a message cannot have a default"
        elif target.type != FieldDescriptorProto.TYPE_GROUP:
            target.type = FieldDescriptorProto.TYPE_MESSAGE
    return None


def link_descriptor(file: FileDescriptorProto, symbols: Symbols) -> None:
    """Resolve the types of a file given as a descriptor. Compilers write full names, so most need no lookup."""

    def link(target: FieldDescriptorProto | MethodDescriptorProto, attribute: str, scope: str) -> None:
        name: str = getattr(target, attribute)
        full = find(name, scope, symbols, (MESSAGE, ENUM))
        problem = f"{name} is not defined" if full is None else set_type(target, attribute, full, symbols[full])
        if problem:
            raise InvalidSchema(f"{scope}.{target.name}: {problem}")

    def link_fields(fields: Iterable[FieldDescriptorProto], scope: str) -> None:
        for field in fields:
            if field.type_name:
                link(field, "type_name", scope)
            if field.extendee:
                link(field, "extendee", scope)

    def link_message(message: DescriptorProto, scope: str) -> None:
        full = f"{scope}.{message.name}" if scope else message.name
        link_fields(message.field, full)
        link_fields(message.extension, full)
        for nested in message.nested_type:
            link_message(nested, full)

    for message in file.message_type:
        link_message(message, file.package)
    link_fields(file.extension, file.package)
    for service in file.service:
        for method in service.method:
            scope = f"{file.package}.{service.name}" if file.package else service.name
            link(method, "input_type", scope)
            link(method, "output_type", scope)
