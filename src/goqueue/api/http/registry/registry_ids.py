"""Schemas by their ids, wherever they are used."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET

from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.registry_parameters import (
    MOST_LISTED,
    Deleted,
    FetchMaxId,
    Format,
    GuidPath,
    LatestOnly,
    LimitOfSchemas,
    LimitOfUses,
    OnlySubject,
    PassedOver,
    Prefix,
    SchemaIdPath,
    Skip,
)
from goqueue.api.http.bodies.registry_schemas import REGISTRY_JSON, SchemaBody, SchemaVersion, SubjectVersion, described
from goqueue.api.http.registry.registry_common import (
    DEFAULTS,
    begins,
    id_number,
    page_of,
    paged,
    text_of,
    version_told,
)
from goqueue.broker.broker import Broker
from goqueue.broker.registry.schema_registry import Registered
from goqueue.coordination.schema_records import Version
from goqueue.schemas.base import KINDS


def registry_id_routes(broker: Broker) -> list[HTTPRouteHandler]:
    registry = broker.schemas

    @get("/schemas/types", **DEFAULTS, responses=documented(406), summary="Which kinds of schemas there are")
    async def schema_types() -> list[str]:
        """The names that schemaType may have."""
        return list(KINDS)

    @get("/schemas/ids/{schema_id:str}", **DEFAULTS, responses=documented(406, 404, 422), summary="A schema by its id")
    async def get_schema(
        schema_id: SchemaIdPath,
        subject: PassedOver = "",
        format: Format = "",
        fetchMaxId: FetchMaxId = False,  # noqa: N803
    ) -> SchemaBody:
        """Also one whose versions are all softly deleted."""
        record = await registry.record(id_number(schema_id))
        biggest = registry.state.last_id if fetchMaxId else UNSET
        if fetchMaxId:
            await registry.on_disk()
        told = described(record) | {"schema": await text_of(registry, record, format)}
        return SchemaBody(**told, guid=record.guid, maxId=biggest)

    @get("/schemas/guids/{guid:str}", **DEFAULTS, responses=documented(406, 404), summary="A schema by its guid")
    async def get_schema_by_guid(guid: GuidPath, format: Format = "") -> SchemaVersion:
        """As a version of one of the subjects that use it."""
        record = registry.state.record_by_guid(guid)
        subject, version = next(registry.state.used_by(record.schema_id, deleted=True))
        return await version_told(registry, subject, await registry.version(subject, version, deleted=True), format)

    @get(
        "/schemas/ids/{schema_id:str}/schema", **DEFAULTS, responses=documented(406, 404, 422), summary="Its text alone"
    )
    async def get_schema_text(schema_id: SchemaIdPath, subject: PassedOver = "", format: Format = "") -> Response[Any]:
        """As it was registered first, unless another format is asked for."""
        record = await registry.record(id_number(schema_id))
        return Response((await text_of(registry, record, format)).encode(), media_type=REGISTRY_JSON)

    @get(
        "/schemas/ids/{schema_id:str}/subjects",
        **DEFAULTS,
        responses=documented(406, 404, 422),
        summary="Where it is used",
    )
    async def subjects_of_schema(
        schema_id: SchemaIdPath,
        subject: OnlySubject = "",
        deleted: Deleted = False,
        offset: Skip = 0,
        limit: LimitOfUses = -1,
    ) -> list[str]:
        """The names of the subjects that have it as a version."""
        record = await registry.record(id_number(schema_id))
        uses = registry.state.used_by(record.schema_id, deleted=deleted)
        # They come in order, and a subject may be there with several versions.
        names = (name for name, _ in groupby(uses, key=itemgetter(0)) if not subject or name == subject)
        found = page_of(names, offset, limit)
        await registry.on_disk()
        return found

    @get(
        "/schemas/ids/{schema_id:str}/versions",
        **DEFAULTS,
        responses=documented(406, 404, 422),
        summary="The versions that it is",
    )
    async def versions_of_schema(
        schema_id: SchemaIdPath,
        subject: OnlySubject = "",
        deleted: Deleted = False,
        offset: Skip = 0,
        limit: LimitOfUses = -1,
    ) -> list[SubjectVersion]:
        """Subjects, and the numbers that it has in them."""
        record = await registry.record(id_number(schema_id))
        uses = registry.state.used_by(record.schema_id, deleted=deleted)
        found = page_of((each for each in uses if not subject or each[0] == subject), offset, limit)
        await registry.on_disk()
        return [SubjectVersion(name, version) for name, version in found]

    @get("/schemas", **DEFAULTS, responses=documented(406), summary="List versions of all subjects")
    async def list_schemas(
        subjectPrefix: Prefix = "",  # noqa: N803
        deleted: Deleted = False,
        latestOnly: LatestOnly = False,  # noqa: N803
        offset: Skip = 0,
        limit: LimitOfSchemas = 1_000,
    ) -> list[SchemaVersion]:
        """By subject and version, page by page."""
        chosen: list[tuple[str, Version]] = []
        for name in registry.state.names(deleted=deleted):
            if begins(name, subjectPrefix):
                found = registry.state.versions(name, deleted=deleted)
                chosen += ((name, each) for each in (found[-1:] if latestOnly else found))
        shown = paged(chosen, offset, limit if 0 <= limit < MOST_LISTED else MOST_LISTED)
        records = registry.state.records
        told = [(name, Registered(records[each.schema_id], each)) for name, each in shown]
        await registry.on_disk()
        return [await version_told(registry, name, each) for name, each in told]

    return [
        schema_types,
        get_schema,
        get_schema_by_guid,
        get_schema_text,
        subjects_of_schema,
        versions_of_schema,
        list_schemas,
    ]
