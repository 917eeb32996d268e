"""Protobuf format: schemas from ``.proto`` text, or from a serialized file descriptor in base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.base import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_SCHEMA_BYTES,
    Incompatibility,
    ParsedSchema,
    References,
    SchemaKind,
)
from goqueue.schemas.protobuf.proto_checks import BrokenRule, check_file
from goqueue.schemas.protobuf.proto_file import ParsedFile
from goqueue.schemas.protobuf.proto_linker import link_descriptor, link_types, symbols_of, visible_files
from goqueue.schemas.protobuf.proto_options import set_custom_options, set_known_options
from goqueue.schemas.protobuf.proto_parser import parse_proto
from goqueue.schemas.protobuf.proto_text import proto_text
from goqueue.schemas.protobuf.proto_tokens import shortened
from goqueue.schemas.protobuf.protobuf_builtins import builtin_files
from goqueue.schemas.protobuf.protobuf_compatibility import cannot_read
from goqueue.schemas.protobuf.protobuf_types import TypeIndex
from goqueue.schemas.protobuf.protobuf_validator import ProtobufValidator

if TYPE_CHECKING:
    from goqueue.schemas.base import Validator

_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]+={0,2}[\r\n]*")
_FULL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_OWN_NAME = "schema.proto"


class ProtobufSchema:
    """A parsed schema, whose file descriptor was checked together with all its imports."""

    kind: SchemaKind = "PROTOBUF"

    def __init__(self, descriptor: FileDescriptorProto, imports: _Imports, nodes: int) -> None:
        self.descriptor = descriptor
        """Descriptor of the file itself. Must not be modified."""
        self.files: Mapping[str, FileDescriptorProto] = imports.files
        """Every file needed, by import name; each comes after its own imports."""
        self.nodes = nodes
        """Number of nodes in the file and in its imports, built-in files excluded."""
        self.import_depth = imports.depth
        self._pool = _pool_of(imports.files.values())
        _add(self._pool, descriptor, None)
        self._validators: dict[str, ProtobufValidator] = {}

    @cached_property
    def _canonical(self) -> str:
        return proto_text(self.descriptor, self._pool)

    @cached_property
    def _normalized(self) -> str:
        return proto_text(self.descriptor, self._pool, normalized=True)

    @cached_property
    def types(self) -> TypeIndex:
        """Messages and enums of this file and of all its imports, by full name."""
        return TypeIndex(self.descriptor, self.files.values(), self._pool)

    def canonical(self) -> str:
        """Canonical ``.proto`` text, whichever way the schema was given."""
        return self._canonical

    def normalized(self) -> str:
        """Canonical text with everything sorted whose order has no meaning."""
        return self._normalized

    def serialized(self) -> str:
        """Serialized file descriptor of the schema, in base64."""
        return base64.b64encode(self.descriptor.SerializeToString(deterministic=True)).decode("ascii")

    def first_message(self) -> Descriptor | None:
        """The default message, used where none is named. ``None`` if the file declares no messages."""
        return self.message_at([0]) if self.descriptor.message_type else None

    def message_at(self, indexes: Sequence[int]) -> Descriptor | None:
        """The message at a path of indexes in Confluent's framing: ``[2, 0]`` is the first message declared in the
        third message of the file. Map entries count, as in a descriptor. ``None`` if there is none."""
        messages = self.descriptor.message_type
        names = [self.descriptor.package] if self.descriptor.package else []
        if not 1 <= len(indexes) <= MAX_DEPTH:
            return None
        for index in indexes:
            if not 0 <= index < len(messages):
                return None
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return self._pool.FindMessageTypeByName(".".join(names))

    def own_messages(self) -> Iterator[Descriptor]:
        """Every message that the file declares itself."""
        return map(self._pool.FindMessageTypeByName, (name[1:] for name in self.types.own))

    def message_named(self, full_name: str) -> Descriptor | None:
        """A message by its full name, from this file or from an import."""
        try:
            return self._pool.FindMessageTypeByName(full_name)
        except KeyError:
            return None

    def cannot_read(self, writer: ParsedSchema) -> list[Incompatibility]:
        """Reasons why this schema cannot read data written with ``writer``."""
        if not isinstance(writer, ProtobufSchema):
            return [Incompatibility("TYPE_MISMATCH", "#/", f"a Protobuf schema cannot read {writer.kind} data")]
        return cannot_read(self.types, writer.types)

    def validator(self) -> Validator:
        """Validator for payloads of the first message, without framing."""
        return self.validator_for(self.first_message())

    def validator_for(self, message: Descriptor | None) -> ProtobufValidator:
        """Validator for payloads of a message of this schema. With ``None``, every payload is refused."""
        name = message.full_name if message else ""
        found = self._validators.get(name)
        if found is None:
            found = self._validators[name] = ProtobufValidator(message)
        return found


def parse_protobuf(text: str, references: References) -> ProtobufSchema:
    """Parse a schema; raises ``InvalidSchema``. References are looked up by the names that the schema imports."""
    if len(text) > MAX_SCHEMA_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schema is larger than {MAX_SCHEMA_BYTES} bytes")
    if not text.strip():
        raise InvalidSchema("the schema is empty; it is .proto text or a serialized file descriptor in base64")
    if _BASE64.fullmatch(text):
        return _from_base64(text, references)
    return _from_text(parse_proto(text.removeprefix("\ufeff")), references)


def _from_text(parsed: ParsedFile, references: References) -> ProtobufSchema:
    descriptor = parsed.descriptor
    imports = _Imports(descriptor, references, parsed)
    custom = set_known_options(parsed)
    symbols = _symbols(descriptor, imports.files)
    link_types(parsed, symbols)
    try:
        nodes = check_file(descriptor)
    except BrokenRule as broken:
        raise _located(broken.message, broken.path, parsed) from None
    if custom:
        pool = _pool_of(imports.files.values())
        _add(pool, descriptor, parsed)
        set_custom_options(parsed, custom, symbols, pool)
    return _finished(descriptor, imports, nodes, parsed)


def _from_base64(text: str, references: References) -> ProtobufSchema:
    try:
        descriptor = FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    except (binascii.Error, DecodeError):
        raise InvalidSchema(
            "the schema is neither .proto text nor the base64 of a serialized file descriptor"
        ) from None
    try:
        descriptor.ClearField("source_code_info")
        imports = _Imports(descriptor, references, None)
        # Checked before names are resolved, so that the limits hold for that step too.
        nodes = check_file(descriptor)
        link_descriptor(descriptor, _symbols(descriptor, imports.files))
        check_file(descriptor)
        schema = _finished(descriptor, imports, nodes, None)
        schema.canonical()
        return schema
    except BrokenRule as broken:
        raise _located(broken.message, broken.path, None) from None
    except (TypeError, UnicodeError):
        # A descriptor returns text that is not UTF-8 as bytes, which no later step accepts.
        raise InvalidSchema("a name or an option of the file descriptor is not UTF-8") from None


def _finished(
    descriptor: FileDescriptorProto, imports: _Imports, nodes: int, parsed: ParsedFile | None
) -> ProtobufSchema:
    if nodes + imports.nodes > MAX_NODES:
        raise InvalidSchema(f"the schema and what it imports have more than {MAX_NODES} parts")
    name = _OWN_NAME
    while name in imports.files:
        name = f"_{name}"
    descriptor.name = name
    try:
        return ProtobufSchema(descriptor, imports, nodes + imports.nodes)
    except InvalidSchema as error:
        raise _located(str(error), "", parsed) from None


class _Imports:
    """The direct and indirect imports of a file."""

    def __init__(self, descriptor: FileDescriptorProto, references: References, parsed: ParsedFile | None) -> None:
        self.files: dict[str, FileDescriptorProto] = {}
        self.nodes = 0
        self.depth = 0
        self._references = references
        for name in descriptor.dependency:
            if not self._import(name):
                problem = f"the import {shortened(name)} is not known; add a reference of that name"
                raise _located(problem, name, parsed)
        if self.depth > MAX_DEPTH:
            raise InvalidSchema(f"the files import one another more than {MAX_DEPTH} levels deep")

    def _import(self, name: str) -> bool:
        if name in builtin_files():
            self._add_builtin(name)
            return True
        schema = self._references.get(name)
        if schema is not None:
            if not isinstance(schema, ProtobufSchema):
                raise InvalidSchema(f"the reference {shortened(name)} is a schema of another kind, {schema.kind}")
            self._add_files_of(schema)
            file = FileDescriptorProto()
            file.CopyFrom(schema.descriptor)
            file.name = name
            self._add(name, file)
            return True
        for other in self._references.values():
            # Imports of a reference can be imported without being listed as references.
            if isinstance(other, ProtobufSchema) and name in other.files:
                self._add_files_of(other)
                return True
        return False

    def _add_files_of(self, schema: ProtobufSchema) -> None:
        self.depth = max(self.depth, schema.import_depth + 1)
        for name, file in schema.files.items():
            self._add(name, file)

    def _add_builtin(self, name: str) -> None:
        for needed in builtin_files()[name].dependency:
            self._add_builtin(needed)
        self.files.setdefault(name, builtin_files()[name])

    def _add(self, name: str, file: FileDescriptorProto) -> None:
        if name in builtin_files():
            self.files.setdefault(name, file)
            return
        known = self.files.get(name)
        if known is None:
            self.files[name] = file
            self.nodes += check_file(file)
            if self.nodes > MAX_NODES:
                raise InvalidSchema(f"the schema and what it imports have more than {MAX_NODES} parts")
        elif known is not file and known != file:
            raise InvalidSchema(
                f"two references bring different schemas for the import {shortened(name)}; use one version of it"
            )


def _symbols(descriptor: FileDescriptorProto, files: Mapping[str, FileDescriptorProto]) -> dict[str, str]:
    symbols: dict[str, str] = {}
    for file in visible_files(descriptor, files):
        symbols |= symbols_of(file)
    symbols |= symbols_of(descriptor)
    return symbols


def _pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    pool = DescriptorPool()
    for file in files:
        _add(pool, file, None)
    return pool


def _add(pool: DescriptorPool, file: FileDescriptorProto, parsed: ParsedFile | None) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError, DecodeError) as error:
        reason = str(error).rpartition("descriptor pool: ")[2] or str(error)
        raise _located(f"the file is not valid: {reason[:300]}", "", parsed) from None


def _located(message: str, path: str, parsed: ParsedFile | None) -> InvalidSchema:
    """An error with its position in the text: that of ``path``, or of the first name in the message."""
    if parsed is not None:
        for name in (path, *(_FULL_NAME.findall(message) if not path else ())):
            if name in parsed.places:
                return parsed.tokens.error(message, parsed.places[name])
    return InvalidSchema(f"{path}: {message}" if path and path not in message else message)
