"""Schemas by their ids, wherever they are used."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from msgspec import UNSET

from goqueue.api.http.errors import documented
from goqueue.api.http.registry_common import (
    DEFAULTS,
    MOST_LISTED,
    Count,
    Flag,
    Text,
    begins,
    id_number,
    page_of,
    paged,
    text_of,
    version_told,
)
from goqueue.api.http.registry_schemas import REGISTRY_JSON, SchemaBody, SchemaVersion, SubjectVersion, described
from goqueue.broker.broker import Broker
from goqueue.broker.schema_registry import Registered
from goqueue.coordination.schema_records import Version
from goqueue.schemas.base import KINDS


def registry_id_routes(broker: Broker) -> list[HTTPRouteHandler]:
    registry = broker.schemas

    @get("/schemas/types", **DEFAULTS, responses=documented(), summary="Which kinds of schemas there are")
    async def schema_types() -> list[str]:
        return list(KINDS)

    @get("/schemas/ids/{schema_id:str}", **DEFAULTS, responses=documented(404, 422), summary="A schema by its id")
    async def get_schema(
        schema_id: FromPath[str],
        subject: Text = "",
        format: Text = "",
        fetchMaxId: Flag = False,  # noqa: N803
    ) -> SchemaBody:
        record = await registry.record(id_number(schema_id))
        biggest = registry.state.last_id if fetchMaxId else UNSET
        if fetchMaxId:
            await registry.on_disk()
        told = described(record) | {"schema": await text_of(registry, record, format)}
        return SchemaBody(**told, guid=record.guid, maxId=biggest)

    @get("/schemas/guids/{guid:str}", **DEFAULTS, responses=documented(404), summary="A schema by its guid")
    async def get_schema_by_guid(guid: FromPath[str], format: Text = "") -> SchemaVersion:
        record = registry.state.record_by_guid(guid)
        subject, version = next(registry.state.used_by(record.schema_id, deleted=True))
        return await version_told(registry, subject, await registry.version(subject, version, deleted=True), format)

    @get("/schemas/ids/{schema_id:str}/schema", **DEFAULTS, responses=documented(404, 422), summary="Its text alone")
    async def get_schema_text(schema_id: FromPath[str], subject: Text = "", format: Text = "") -> Response[Any]:
        record = await registry.record(id_number(schema_id))
        return Response((await text_of(registry, record, format)).encode(), media_type=REGISTRY_JSON)

    @get(
        "/schemas/ids/{schema_id:str}/subjects", **DEFAULTS, responses=documented(404, 422), summary="Where it is used"
    )
    async def subjects_of_schema(
        schema_id: FromPath[str], subject: Text = "", deleted: Flag = False, offset: Count = 0, limit: Count = -1
    ) -> list[str]:
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
        responses=documented(404, 422),
        summary="The versions that it is",
    )
    async def versions_of_schema(
        schema_id: FromPath[str], subject: Text = "", deleted: Flag = False, offset: Count = 0, limit: Count = -1
    ) -> list[SubjectVersion]:
        record = await registry.record(id_number(schema_id))
        uses = registry.state.used_by(record.schema_id, deleted=deleted)
        found = page_of((each for each in uses if not subject or each[0] == subject), offset, limit)
        await registry.on_disk()
        return [SubjectVersion(name, version) for name, version in found]

    @get("/schemas", **DEFAULTS, responses=documented(), summary="List versions of all subjects")
    async def list_schemas(
        subjectPrefix: Text = "",  # noqa: N803
        deleted: Flag = False,
        latestOnly: Flag = False,  # noqa: N803
        offset: Count = 0,
        limit: Count = 1_000,
    ) -> list[SchemaVersion]:
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
