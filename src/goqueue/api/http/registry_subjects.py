"""Subjects and their versions."""

from __future__ import annotations

from typing import Any

from litestar import Response, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody

from goqueue.api.http.errors import documented
from goqueue.api.http.registry_common import (
    DEFAULTS,
    MAX_BODY,
    Count,
    Flag,
    Text,
    Texts,
    begins,
    both,
    draft_of,
    paged,
    text_of,
    version_number,
    version_told,
)
from goqueue.api.http.registry_schemas import (
    REGISTRY_JSON,
    RegisterSchemaRequest,
    RegisterSchemaResponse,
    SchemaStats,
    SchemaVersion,
    described,
)
from goqueue.broker.broker import Broker


def registry_subject_routes(broker: Broker) -> list[HTTPRouteHandler]:
    return [*_subject_routes(broker), *_version_routes(broker)]


def _subject_routes(broker: Broker) -> list[HTTPRouteHandler]:
    registry = broker.schemas

    @get(both("/subjects"), **DEFAULTS, responses=documented(), summary="List subjects")
    async def list_subjects(
        subjectPrefix: Text = "",  # noqa: N803
        deleted: Flag = False,
        deletedOnly: Flag = False,  # noqa: N803
        deleted_only: Flag = False,
        offset: Count = 0,
        limit: Count = -1,
    ) -> list[str]:
        only_deleted = deletedOnly or deleted_only
        names = registry.state.names(deleted=deleted or only_deleted)
        await registry.on_disk()
        if only_deleted:
            live = set(registry.state.names())
            names = [name for name in names if name not in live]
        return paged([name for name in names if begins(name, subjectPrefix)], offset, limit)

    @post(
        both("/subjects/{subject:str}"),
        **DEFAULTS,
        status_code=200,
        request_max_body_size=MAX_BODY,
        responses=documented(404, 422),
        summary="Find the version of a subject that is a schema",
    )
    async def find_schema(
        subject: FromPath[str],
        data: JSONBody[RegisterSchemaRequest],
        normalize: Flag = False,
        deleted: Flag = False,
        format: Text = "",
    ) -> SchemaVersion:
        found = await registry.find(subject, draft_of(data), normalize=normalize, deleted=deleted)
        return await version_told(registry, subject, found, format)

    @delete(
        both("/subjects/{subject:str}"),
        **DEFAULTS,
        status_code=200,
        responses=documented(404, 422),
        summary="Delete a subject",
    )
    async def delete_subject(subject: FromPath[str], permanent: Flag = False) -> list[int]:
        return await registry.delete_subject(subject, permanent=permanent)

    @get(both("/contexts"), **DEFAULTS, responses=documented(), summary="List contexts")
    async def list_contexts(offset: Count = 0, limit: Count = -1) -> list[str]:
        return paged(registry.state.contexts(), offset, limit)

    @get("/schemas/stats", **DEFAULTS, responses=documented(), summary="How much is registered")
    async def schema_stats() -> SchemaStats:
        state = registry.state
        live = [subject.live() for subject in state.subjects.values()]
        return SchemaStats(
            subjects=sum(bool(each) for each in live),
            schemas=len({version.schema_id for each in live for version in each}),
            versions=sum(map(len, live)),
        )

    return [list_subjects, find_schema, delete_subject, list_contexts, schema_stats]


def _version_routes(broker: Broker) -> list[HTTPRouteHandler]:
    registry = broker.schemas

    @get(both("/subjects/{subject:str}/versions"), **DEFAULTS, responses=documented(404), summary="List versions")
    async def list_versions(
        subject: FromPath[str],
        deleted: Flag = False,
        deletedOnly: Flag = False,  # noqa: N803
        deleted_only: Flag = False,
        offset: Count = 0,
        limit: Count = -1,
    ) -> list[int]:
        only_deleted = deletedOnly or deleted_only
        found = registry.state.versions(subject, deleted=deleted or only_deleted)
        await registry.on_disk()
        return paged([each.version for each in found if each.deleted or not only_deleted], offset, limit)

    @post(
        both("/subjects/{subject:str}/versions"),
        **DEFAULTS,
        status_code=200,
        request_max_body_size=MAX_BODY,
        responses=documented(409, 422),
        summary="Register a schema",
    )
    async def register_schema(
        subject: FromPath[str], data: JSONBody[RegisterSchemaRequest], normalize: Flag = False
    ) -> RegisterSchemaResponse:
        made = await registry.register(subject, draft_of(data), normalize=normalize)
        return RegisterSchemaResponse(
            id=made.version.schema_id, version=made.version.version, guid=made.record.guid, **described(made.record)
        )

    @get(
        both("/subjects/{subject:str}/versions/{version:str}"),
        **DEFAULTS,
        responses=documented(404, 422),
        summary="Look at a version",
    )
    async def get_version(
        subject: FromPath[str], version: FromPath[str], deleted: Flag = False, format: Text = ""
    ) -> SchemaVersion:
        found = await registry.version(subject, version_number(version), deleted=deleted)
        return await version_told(registry, subject, found, format)

    @get(
        both("/subjects/{subject:str}/versions/{version:str}/schema"),
        **DEFAULTS,
        responses=documented(404, 422),
        summary="The schema of a version, and nothing else",
    )
    async def get_version_text(
        subject: FromPath[str], version: FromPath[str], deleted: Flag = False, format: Text = ""
    ) -> Response[Any]:
        found = await registry.version(subject, version_number(version), deleted=deleted)
        return Response((await text_of(registry, found.record, format)).encode(), media_type=REGISTRY_JSON)

    @get(
        both("/subjects/{subject:str}/versions/{version:str}/referencedby"),
        **DEFAULTS,
        responses=documented(404, 422),
        summary="Schemas that refer to a version",
    )
    async def referenced_by(
        subject: FromPath[str], version: FromPath[str], offset: Count = 0, limit: Count = -1
    ) -> list[int]:
        found = await registry.version(subject, version_number(version))
        return paged(registry.state.referencing(subject, found.version.version), offset, limit)

    @delete(
        both("/subjects/{subject:str}/versions/{version:str}"),
        **DEFAULTS,
        status_code=200,
        responses=documented(404, 422),
        summary="Delete a version",
    )
    async def delete_version(subject: FromPath[str], version: FromPath[str], permanent: Flag = False) -> int:
        return await registry.delete_version(subject, version_number(version), permanent=permanent)

    @get(
        both("/subjects/{subject:str}/metadata"),
        **DEFAULTS,
        responses=documented(404),
        summary="The latest version with this metadata",
    )
    async def latest_with_metadata(
        subject: FromPath[str],
        key: Texts = None,
        value: Texts = None,
        deleted: Flag = False,
        format: Text = "",
    ) -> SchemaVersion:
        wanted = dict(zip(key or (), value or (), strict=False))
        chosen = registry.latest_with(subject, wanted, deleted=deleted)
        found = await registry.version(subject, chosen.version, deleted=deleted)
        return await version_told(registry, subject, found, format)

    return [
        list_versions,
        register_schema,
        get_version,
        get_version_text,
        referenced_by,
        delete_version,
        latest_with_metadata,
    ]
