"""What the routes of the schema registry have in common."""

from __future__ import annotations

from typing import TypeVar

from msgspec import UNSET

from goqueue.api.http.bodies.registry_parameters import MOST_IN_A_PAGE
from goqueue.api.http.bodies.registry_schemas import (
    REGISTRY_JSON,
    RegisterSchemaRequest,
    SchemaVersion,
    described,
    object_of,
    references_of,
)
from goqueue.api.http.registry.convention import RegistryConvention
from goqueue.api.http.routing.declaration import Controller
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import (
    Caller,
    Operations,
    Registered,
    SchemaDraft,
    SchemaOperations,
    SchemaRecord,
    quoted,
)
from goqueue.model.errors import InvalidSchema, InvalidVersion, NotFound
from goqueue.model.fields import shown
from goqueue.model.ids import SchemaId

MAX_BODY = 8 << 20
"""A schema of the largest size with every character escaped, and what may be sent beside it."""
_OWN_ROOT = "/schemas"
_BEHIND_ALL = 1 << 62
"""Nothing has so many items."""
Item = TypeVar("Item")


class RegistryController(Controller):
    """Routes of the schema registry."""

    tag = "Schema registry"
    media_type = REGISTRY_JSON
    errors = (406,)
    convention = RegistryConvention()

    def __init__(self, operations: Operations) -> None:
        self._schemas = operations.schemas


def both(path: str) -> tuple[str, str]:
    """Of paths that are there twice: as registries have them, and with ``/schemas`` before them."""
    return path, f"{_OWN_ROOT}{path}"


def draft_of(request: Request, body: RegisterSchemaRequest) -> SchemaDraft:
    if body.schema is UNSET:
        raise InvalidSchema("Invalid schema: the body has no field 'schema'")
    return SchemaDraft(
        body.schema,
        body.schemaType or _usual_kind(request),
        references_of(body),
        object_of("metadata", body.metadata) or None,
        object_of("ruleSet", body.ruleSet) or None,
        SchemaId(max(0, body.id or 0)),
        body.version if body.version is not None and body.version > 0 else None,
    )


def _usual_kind(request: Request) -> str | None:
    """Under ``/schemas`` come clients of the earlier server, which knew JSON Schema alone; registries mean Avro."""
    return "JSON" if request.route.startswith(_OWN_ROOT) else None


def version_number(text: str) -> int | None:
    """``None``: the latest."""
    if text in ("latest", "-1"):
        return None
    if text.isascii() and text.isdigit() and len(text) < 11 and 0 < int(text) < 1 << 31:
        return int(text)
    raise InvalidVersion(
        f"The specified version {quoted(text)} is not a valid version id. Allowed values are between [1, 2^31-1] and "
        'the string "latest"'
    )


def id_number(text: str) -> int:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 11:
        return int(text)
    raise NotFound(f"HTTP 404 Not Found: {shown(text)} is no id of a schema; that is a number")


def paged(items: list[Item], offset: int, limit: int) -> list[Item]:
    start = page_start(offset)
    return items[start:] if limit < 0 else items[start : start + limit]


def page_start(offset: int) -> int:
    """How many to skip. A client may send any number, and iterators count no further than ``sys.maxsize``."""
    return min(max(0, offset), _BEHIND_ALL)


def page_size(limit: int, most: int = MOST_IN_A_PAGE) -> int:
    """How many of what may be very many are in a page; a negative limit is none."""
    return limit if 0 <= limit < most else most


def begins(name: str, prefix: str) -> bool:
    """``:*:`` stands for every context."""
    if prefix.startswith(":*:"):
        plain = name.split(":", 2)[2] if name.startswith(":.") and name.count(":") > 1 else name
        return plain.startswith(prefix[3:])
    return name.startswith(prefix)


async def text_of(schemas: SchemaOperations, caller: Caller, record: SchemaRecord, format: str) -> str:
    if not format:
        return record.text
    return await schemas.formatted_text(caller, record, format)


async def version_told(
    schemas: SchemaOperations, caller: Caller, subject: str, found: Registered, format: str
) -> SchemaVersion:
    """A version in the format that was asked for."""
    told = version_as_registered(subject, found)
    if format:
        told.schema = await text_of(schemas, caller, found.record, format)
    return told


def version_as_registered(subject: str, found: Registered) -> SchemaVersion:
    record, version = found.record, found.version
    told = described(record)
    return SchemaVersion(
        subject=subject,
        version=version.version,
        id=record.schema_id,
        guid=record.guid,
        deleted=True if version.deleted else UNSET,
        **told,
    )
