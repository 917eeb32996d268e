"""What ``goqueue schema`` asks the registry of a broker for, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from goqueue.cli.connection.broker_http import BrokerHttp, NoBroker, Parameters
from goqueue.model.errors import (
    GoQueueError,
    InvalidSchema,
    SchemaIsReferenced,
    SchemaNotFound,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from goqueue.schemas.base import MAX_DEPTH, ParsedSchema
from goqueue.schemas.parsing import parse_schema, schema_kind

LATEST = "latest"
_PAGE = 1_000
Answer = TypeVar("Answer")


class SubjectInUse(SubjectNotSoftDeleted):
    """This and what follows: as the broker's, with what helps whoever sits at a terminal."""

    remedy = "Delete it without --permanent first."


class VersionInUse(VersionNotSoftDeleted):
    remedy = "Delete it without --permanent first."


class SubjectIsDeleted(SubjectSoftDeleted):
    remedy = "Delete it with --permanent to delete it for good."


class VersionIsDeleted(VersionSoftDeleted):
    remedy = "Delete it with --permanent to delete it for good."


class IsReferenced(SchemaIsReferenced):
    remedy = "Delete those first; 'goqueue schema show --id N' shows one."


_AT_A_TERMINAL: dict[type[GoQueueError], type[GoQueueError]] = {
    SubjectNotSoftDeleted: SubjectInUse,
    VersionNotSoftDeleted: VersionInUse,
    SubjectSoftDeleted: SubjectIsDeleted,
    VersionSoftDeleted: VersionIsDeleted,
    SchemaIsReferenced: IsReferenced,
}


class Reference(msgspec.Struct, frozen=True):
    """A version of a subject, under the name that a schema uses for it; -1 is the latest."""

    name: str
    subject: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}={self.subject}:{self.version if self.version > 0 else LATEST}"


class Schema(msgspec.Struct, frozen=True, rename={"text": "schema", "kind": "schemaType", "schema_id": "id"}):
    """A schema; a version of a subject unless it was asked for by its id."""

    text: str
    kind: str = "AVRO"
    references: list[Reference] = []
    subject: str = ""
    version: int = 0
    schema_id: int = 0
    deleted: bool = False


class Registered(msgspec.Struct, frozen=True, rename={"schema_id": "id"}):
    schema_id: int
    version: int


class Verdict(msgspec.Struct, frozen=True):
    """``messages`` say why not."""

    is_compatible: bool
    messages: list[str] = []


class Settings(msgspec.Struct, frozen=True, rename={"level": "compatibilityLevel"}):
    level: str


def known(answer: Any, kind: type[Answer]) -> Answer:
    """An answer in the form that it must have."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise NoBroker(f"the answer is not one of a broker that this command knows: {error}") from None


@dataclass(frozen=True, slots=True)
class Registry:
    """The calls, each by its name. What ``Any`` is returned as is for ``--json``."""

    http: BrokerHttp

    def _send(
        self,
        method: str,
        path: Sequence[str],
        parameters: Parameters | None = None,
        body: Mapping[str, object] | None = None,
    ) -> Any:
        try:
            return self.http.send(method, path, parameters, body)
        except GoQueueError as error:
            told = _AT_A_TERMINAL.get(type(error))
            if told is None:
                raise
            raise told(str(error)) from None

    def latest(self, *, deleted: bool) -> Iterator[Schema]:
        """The latest version of each subject."""
        offset = 0
        while True:
            parameters: dict[str, str | int] = {
                "latestOnly": "true",
                "deleted": _flag(deleted),
                "offset": offset,
                "limit": _PAGE,
            }
            found = known(self._send("GET", ("schemas",), parameters), list[Schema])
            yield from found
            offset += len(found)
            if len(found) < _PAGE:
                return

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        parameters = {"deleted": _flag(deleted), "deletedOnly": _flag(deleted_only)}
        return known(self._send("GET", ("subjects", subject, "versions"), parameters), list[int])

    def version(self, subject: str, version: str | int, *, deleted: bool = False) -> Any:
        parameters = {"deleted": _flag(deleted)}
        return self._send("GET", ("subjects", subject, "versions", str(version)), parameters)

    def by_id(self, schema_id: int) -> Any:
        return self._send("GET", ("schemas", "ids", str(schema_id)))

    def find(self, subject: str, draft: Mapping[str, object], *, normalize: bool) -> Registered | None:
        """The version that a schema is already, if it is one."""
        try:
            answer = self._send("POST", ("subjects", subject), {"normalize": _flag(normalize)}, draft)
        except (SubjectNotFound, SchemaNotFound):
            return None
        return known(answer, Registered)

    def register(self, subject: str, draft: Mapping[str, object], *, normalize: bool) -> Any:
        parameters = {"normalize": _flag(normalize)}
        return self._send("POST", ("subjects", subject, "versions"), parameters, draft)

    def verdict(self, subject: str, draft: Mapping[str, object], version: str | int | None = None) -> Verdict:
        """Without a version, compared with those that registering it compares it with."""
        path = ("compatibility", "subjects", subject, "versions", *([] if version is None else [str(version)]))
        return known(self._send("POST", path, {"verbose": "true"}, draft), Verdict)

    def level(self, subject: str) -> str:
        """The compatibility that holds for a subject."""
        return known(self.settings("GET", subject), Settings).level

    def settings(self, method: str, subject: str | None, body: Mapping[str, object] | None = None) -> Any:
        """Of a subject, or of all that do not say otherwise. What is got is what holds, whoever says so."""
        if subject is None:
            return self._send(method, ("config",), None, body)
        parameters = {"defaultToGlobal": "true"} if method == "GET" else None
        return self._send(method, ("config", subject), parameters, body)

    def delete(self, subject: str, version: str | None, *, permanent: bool) -> list[int]:
        """The versions that are deleted now."""
        parameters = {"permanent": _flag(permanent)}
        if version is None:
            return known(self._send("DELETE", ("subjects", subject), parameters), list[int])
        return [known(self._send("DELETE", ("subjects", subject, "versions", version), parameters), int)]

    def parsed(self, schema: Schema) -> ParsedSchema:
        """Understood, with whatever it refers to."""
        return self._parsed(schema, 0, {})

    def _parsed(self, schema: Schema, depth: int, seen: dict[tuple[str, int], ParsedSchema]) -> ParsedSchema:
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"references lead through more than {MAX_DEPTH} schemas")
        references = {}
        for each in schema.references:
            place = each.subject, each.version
            if place not in seen:
                version = each.version if each.version > 0 else LATEST
                # What a schema refers to may be softly deleted.
                found = known(self.version(each.subject, version, deleted=True), Schema)
                seen[place] = self._parsed(found, depth + 1, seen)
            references[each.name] = seen[place]
        return parse_schema(schema_kind(schema.kind), schema.text, references, is_registered=True)


def _flag(value: bool) -> str:
    return "true" if value else "false"
