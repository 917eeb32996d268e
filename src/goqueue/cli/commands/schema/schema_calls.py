"""Calls to the schema registry of a broker, with the types of its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from goqueue.cli.connection.broker_http import BrokerHttp
from goqueue.cli.connection.broker_http import convert as convert
from goqueue.model.errors import InvalidSchema, SchemaNotFound, SubjectNotFound
from goqueue.schemas.base import MAX_DEPTH, ParsedSchema
from goqueue.schemas.parsing import parse_schema, schema_kind

LATEST = "latest"
_PAGE = 1_000


class Reference(msgspec.Struct, frozen=True):
    """A version of a subject, under the name that a schema uses for it; -1 is the latest."""

    name: str
    subject: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}={self.subject}:{self.version if self.version > 0 else LATEST}"


class Schema(msgspec.Struct, frozen=True, rename={"text": "schema", "kind": "schemaType", "schema_id": "id"}):
    """A schema. ``subject`` and ``version`` are empty if it was fetched by its id."""

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
    """The result of a compatibility check. ``messages`` give the reasons against."""

    is_compatible: bool
    messages: list[str] = []


class Settings(msgspec.Struct, frozen=True, rename={"level": "compatibilityLevel"}):
    level: str


@dataclass(frozen=True, slots=True)
class Registry:
    """Registry calls, one method each. Methods that return ``Any`` return the answer unchanged, for ``--json``."""

    http: BrokerHttp

    def latest(self, *, deleted: bool) -> Iterator[Schema]:
        """The latest version of each subject."""
        offset = 0
        while True:
            parameters: dict[str, str | int] = {
                "latestOnly": "true",
                "deleted": _bool_text(deleted),
                "offset": offset,
                "limit": _PAGE,
            }
            found = convert(self.http.send("GET", ("schemas",), parameters), list[Schema])
            yield from found
            offset += len(found)
            if len(found) < _PAGE:
                return

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        parameters = {"deleted": _bool_text(deleted), "deletedOnly": _bool_text(deleted_only)}
        return convert(self.http.send("GET", ("subjects", subject, "versions"), parameters), list[int])

    def version(self, subject: str, version: str | int, *, deleted: bool = False) -> Any:
        parameters = {"deleted": _bool_text(deleted)}
        return self.http.send("GET", ("subjects", subject, "versions", str(version)), parameters)

    def by_id(self, schema_id: int) -> Any:
        return self.http.send("GET", ("schemas", "ids", str(schema_id)))

    def find(self, subject: str, draft: Mapping[str, object], *, normalize: bool) -> Registered | None:
        """The version under which a schema is registered already, if any."""
        try:
            answer = self.http.send("POST", ("subjects", subject), {"normalize": _bool_text(normalize)}, draft)
        except (SubjectNotFound, SchemaNotFound):
            return None
        return convert(answer, Registered)

    def register(self, subject: str, draft: Mapping[str, object], *, normalize: bool) -> Any:
        parameters = {"normalize": _bool_text(normalize)}
        return self.http.send("POST", ("subjects", subject, "versions"), parameters, draft)

    def verdict(self, subject: str, draft: Mapping[str, object], version: str | int | None = None) -> Verdict:
        """Check compatibility with ``version``, or by default with the versions that registration checks."""
        path = ("compatibility", "subjects", subject, "versions", *([] if version is None else [str(version)]))
        return convert(self.http.send("POST", path, {"verbose": "true"}, draft), Verdict)

    def level(self, subject: str) -> str:
        """The compatibility level in effect for a subject."""
        return convert(self.settings("GET", subject), Settings).level

    def settings(self, method: str, subject: str | None, body: Mapping[str, object] | None = None) -> Any:
        """Settings of a subject, or of all without their own. A GET returns the effective value, from whichever
        level."""
        if subject is None:
            return self.http.send(method, ("config",), None, body)
        parameters = {"defaultToGlobal": "true"} if method == "GET" else None
        return self.http.send(method, ("config", subject), parameters, body)

    def delete(self, subject: str, version: str | None, *, permanent: bool) -> list[int]:
        """Delete, and return the versions deleted."""
        parameters = {"permanent": _bool_text(permanent)}
        if version is None:
            return convert(self.http.send("DELETE", ("subjects", subject), parameters), list[int])
        return [convert(self.http.send("DELETE", ("subjects", subject, "versions", version), parameters), int)]

    def parse(self, schema: Schema) -> ParsedSchema:
        """Parse a schema and everything it refers to."""
        return self._parse(schema, 0, {})

    def _parse(self, schema: Schema, depth: int, seen: dict[tuple[str, int], ParsedSchema]) -> ParsedSchema:
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"references lead through more than {MAX_DEPTH} schemas")
        references = {}
        for each in schema.references:
            key = each.subject, each.version
            if key not in seen:
                version = each.version if each.version > 0 else LATEST
                # References may be softly deleted.
                found = convert(self.version(each.subject, version, deleted=True), Schema)
                seen[key] = self._parse(found, depth + 1, seen)
            references[each.name] = seen[key]
        return parse_schema(schema_kind(schema.kind), schema.text, references, is_registered=True)


def _bool_text(value: bool) -> str:
    return "true" if value else "false"
