"""Client of the schema registry: schemas, subjects, versions and compatibility checks."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from goqueue.client.connection.directory import Directory
from goqueue.client.connection.loop_thread import BlockingFace, blocking
from goqueue.client.connection.response_cache import ResponseCache
from goqueue.model.errors import InvalidRequest, InvalidSchema
from goqueue.schemas.base import MAX_DEPTH, ParsedSchema, SchemaKind
from goqueue.schemas.parsing import parse_schema, schema_kind
from goqueue.wire.proto import goqueue_pb2 as pb

SCHEMAS_KEPT = 1_000
"""Number of schemas cached by a client; an evicted one is requested again."""
_SUBJECTS_PER_PAGE = 1_000
_SMALL_SCHEMA_CHARS = 2_000
"""Length of a schema up to which it is compiled on the loop: a switch to a thread would take about as long."""
Made = TypeVar("Made")


class SchemaReference(msgspec.Struct, frozen=True):
    """A reference to a version of a subject, by the name that the referring schema uses."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True):
    """A schema. ``id`` is 0 unless it comes from a registry."""

    text: str
    kind: SchemaKind = "AVRO"
    references: tuple[SchemaReference, ...] = ()
    id: int = 0


class SchemaVersion(msgspec.Struct, frozen=True):
    """A schema as a version of a subject."""

    subject: str
    version: int
    schema: Schema

    @property
    def id(self) -> int:
        return self.schema.id


class SchemaProblem(msgspec.Struct, frozen=True):
    """Why a schema is not compatible with a version of its subject: rule, path in the schema, and explanation."""

    version: int
    rule: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.path} (version {self.version}): {self.message}"


SchemaGiven = str | Mapping[str, Any] | list[Any] | Schema
"""The schema's text, its JSON as Python objects, or a ``Schema``, which may have references."""

Version = int | Literal["latest"]


class AsyncSchemas:
    """The registry: ``AsyncClient.schemas``. Immutable answers are cached: a schema by its id, and the id of a
    schema."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._by_id: ResponseCache[int, Schema] = ResponseCache(SCHEMAS_KEPT)
        self._by_schema: ResponseCache[tuple[str, Schema, bool], SchemaVersion] = ResponseCache(SCHEMAS_KEPT)
        self._parsed: ResponseCache[Schema, ParsedSchema] = ResponseCache(SCHEMAS_KEPT)
        self._followers: weakref.WeakSet[ResponseCache[str, Any]] = weakref.WeakSet()

    async def register(
        self, subject: str, schema: SchemaGiven, kind: SchemaKind = "AVRO", *, normalize: bool = False
    ) -> SchemaVersion:
        """Register a schema as a version of the subject, unless it is one already. ``IncompatibleSchema`` if it is not
        compatible."""
        ask = partial(self._directory.command, "schemas", "RegisterSchema")
        return await self._identify(ask, pb.RegisterSchemaRequest, subject, to_schema(schema, kind), normalize)

    async def find(
        self, subject: str, schema: SchemaGiven, kind: SchemaKind = "AVRO", *, normalize: bool = False
    ) -> SchemaVersion:
        """The version of the subject that is exactly this schema. ``SchemaNotFound`` if there is none."""
        ask = partial(self._query, "FindSchema")
        return await self._identify(ask, pb.FindSchemaRequest, subject, to_schema(schema, kind), normalize)

    async def get(self, schema_id: int) -> Schema:
        """The schema with this id. ``SchemaNotFound`` if there is none."""

        async def fetch() -> Schema:
            return _to_schema(await self._query("GetSchema", _make(lambda: pb.GetSchemaRequest(id=schema_id))))

        return await self._by_id.get(schema_id, fetch)

    async def version(self, subject: str, version: Version, *, deleted: bool = False) -> SchemaVersion:
        """A version of a subject. ``deleted``: include soft-deleted versions."""
        number = _version_number(version)
        request = _make(lambda: pb.GetSchemaVersionRequest(subject=subject, version=number, deleted=deleted))
        return self._keep(await self._query("GetSchemaVersion", request))

    async def latest(self, subject: str) -> SchemaVersion:
        """The latest version. ``SubjectNotFound`` if the subject has no schema."""
        return await self.version(subject, "latest")

    async def versions(self, subject: str) -> list[int]:
        """Version numbers of a subject, in ascending order."""
        request = _make(lambda: pb.ListSchemaVersionsRequest(subject=subject))
        return list((await self._query("ListSchemaVersions", request)).versions)

    async def subjects(self, prefix: str = "") -> list[str]:
        """Names of subjects, in alphabetical order."""
        names: list[str] = []
        while True:
            after = names[-1] if names else ""
            request = _make(lambda: pb.ListSubjectsRequest(prefix=prefix, limit=_SUBJECTS_PER_PAGE, after=after))  # noqa: B023
            found = await self._query("ListSubjects", request)
            names += found.names
            if not found.more or not found.names:
                return names

    async def check(
        self, subject: str, schema: SchemaGiven, kind: SchemaKind = "AVRO", *, version: Version | None = None
    ) -> list[SchemaProblem]:
        """Compatibility problems of a schema; empty if it could be registered. Compared with one version, or all that
        matter."""
        given = to_schema(schema, kind)
        number = None if version is None else _version_number(version)
        request = _make(lambda: pb.CheckCompatibilityRequest(subject=subject, schema=_to_wire(given), version=number))
        found = await self._query("CheckCompatibility", request)
        return [SchemaProblem(each.version, each.rule, each.path, each.message) for each in found.problems]

    async def delete(self, subject: str, version: Version | None = None, *, permanent: bool = False) -> list[int]:
        """Soft-delete a version or a whole subject; return the versions deleted. Their messages can still be read.

        ``permanent``: remove versions that are soft-deleted already; their messages cannot be read afterwards.
        """
        if version is None:
            method = "DeleteSubject"
            request = _make(lambda: pb.DeleteSubjectRequest(subject=subject, permanent=permanent))
        else:
            number = _version_number(version)
            method = "DeleteSchemaVersion"
            request = _make(lambda: pb.DeleteSchemaVersionRequest(subject=subject, version=number, permanent=permanent))
        try:
            found = await self._directory.command("schemas", method, request)
        finally:
            # After the call, since a concurrent caller may have cached the answer from before. Also after an error,
            # since the broker may have carried out the deletion.
            self._forget(subject)
        return list(found.versions)

    def follow(self, by_subject: ResponseCache[str, Any]) -> None:
        """Invalidate entries of this cache as well when part of their subject is deleted."""
        self._followers.add(by_subject)

    def _forget(self, subject: str) -> None:
        self._by_schema.forget(lambda key: key[0] == subject)
        # A version number in a reference may now denote another schema.
        self._parsed.forget(lambda schema: bool(schema.references))
        for cache in list(self._followers):
            cache.forget(lambda key: key == subject)

    async def parsed(self, schema: Schema) -> ParsedSchema:
        """A schema compiled for use, with its references."""
        return await self._parse(schema, 0)

    async def _parse(self, schema: Schema, depth: int) -> ParsedSchema:
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"references lead through more than {MAX_DEPTH} schemas")

        async def fetch() -> ParsedSchema:
            references = {}
            for each in schema.references:
                found = await self.version(each.subject, each.version or "latest", deleted=True)
                references[each.name] = await self._parse(found.schema, depth + 1)
            # Parsing a large schema takes long, so it is done in a thread.
            return await asyncio.to_thread(parse_schema, schema.kind, schema.text, references)

        return await self._parsed.get(schema, fetch)

    async def _identify(
        self, ask: Callable[[Any], Awaitable[Any]], request: type[Any], subject: str, given: Schema, normalize: bool
    ) -> SchemaVersion:
        async def fetch() -> SchemaVersion:
            made = _make(lambda: request(subject=subject, schema=_to_wire(given), normalize=normalize))
            return self._keep(await ask(made))

        return await self._by_schema.get((subject, given, normalize), fetch)

    async def _query(self, method: str, request: Any) -> Any:
        return await self._directory.query("schemas", method, request)

    def _keep(self, found: pb.SchemaVersion) -> SchemaVersion:
        schema = _to_schema(found.schema)
        self._by_id.put(schema.id, schema)
        return SchemaVersion(found.subject, found.version, schema)

    async def _close(self) -> None:
        for cache in (self._by_id, self._by_schema, self._parsed):
            await cache.close()


class Schemas(BlockingFace[AsyncSchemas]):
    """The registry: ``Client.schemas``; the methods of ``AsyncSchemas``, blocking."""

    register = blocking(AsyncSchemas.register)
    find = blocking(AsyncSchemas.find)
    get = blocking(AsyncSchemas.get)
    version = blocking(AsyncSchemas.version)
    latest = blocking(AsyncSchemas.latest)
    versions = blocking(AsyncSchemas.versions)
    subjects = blocking(AsyncSchemas.subjects)
    check = blocking(AsyncSchemas.check)
    delete = blocking(AsyncSchemas.delete)


async def build_in_thread_if_large(schemas: Iterable[Schema | None], make: Callable[..., Made], *given: Any) -> Made:
    """``make(*given)``, in a thread if the schemas are large, so that the loop is not blocked."""
    present = [each for each in schemas if each is not None]
    if any(each.references for each in present) or sum(len(each.text) for each in present) > _SMALL_SCHEMA_CHARS:
        return await asyncio.to_thread(make, *given)
    return make(*given)


def to_schema(given: SchemaGiven, kind: SchemaKind) -> Schema:
    if isinstance(given, Schema):
        return Schema(given.text, schema_kind(given.kind), tuple(given.references))
    if isinstance(given, str):
        return Schema(given, schema_kind(kind))
    try:
        return Schema(json.dumps(given), schema_kind(kind))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSchema(f"the schema is neither a text nor JSON: {error}") from None


def _to_wire(schema: Schema) -> pb.Schema:
    references = [
        pb.SchemaReference(name=each.name, subject=each.subject, version=each.version) for each in schema.references
    ]
    return pb.Schema(kind=schema.kind, text=schema.text, references=references)


def _to_schema(schema: pb.Schema) -> Schema:
    references = tuple(SchemaReference(each.name, each.subject, each.version) for each in schema.references)
    return Schema(schema.text, schema_kind(schema.kind), references, schema.id)


def _version_number(version: Version) -> int:
    """0 stands for the latest."""
    if version == "latest":
        return 0
    if not isinstance(version, int) or version < 1:
        raise InvalidRequest(f"version is {version!r}; a number from 1 on, or 'latest', is one")
    return version


def _make(make: Callable[[], Any]) -> Any:
    """Build a request from the user's arguments."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"the registry cannot be asked for this: {error}") from None
