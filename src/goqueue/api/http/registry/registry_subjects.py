"""Subjects and their versions."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.registry_parameters import (
    Deleted,
    DeletedOnly,
    DeletedOnlyToo,
    Format,
    Limit,
    MetadataKeys,
    MetadataValues,
    Normalize,
    Permanent,
    Prefix,
    Skip,
    SubjectPath,
    VersionPath,
)
from goqueue.api.http.bodies.registry_schemas import (
    REGISTRY_JSON,
    RegisterSchemaRequest,
    RegisterSchemaResponse,
    SchemaStats,
    SchemaVersion,
    described,
)
from goqueue.api.http.registry.registry_common import (
    DEFAULTS,
    MAX_BODY,
    begins,
    both,
    draft_of,
    paged,
    text_of,
    version_number,
    version_told,
)
from goqueue.broker.broker import Broker


def registry_subject_routes(broker: Broker) -> list[HTTPRouteHandler]:
    return [*_subject_routes(broker), *_version_routes(broker)]


def _subject_routes(broker: Broker) -> list[HTTPRouteHandler]:
    registry = broker.schemas

    @get(both("/subjects"), **DEFAULTS, responses=documented(406), summary="List subjects")
    async def list_subjects(
        subjectPrefix: Prefix = "",  # noqa: N803
        deleted: Deleted = False,
        deletedOnly: DeletedOnly = False,  # noqa: N803
        deleted_only: DeletedOnlyToo = False,
        offset: Skip = 0,
        limit: Limit = -1,
    ) -> list[str]:
        """Their names, as many as are asked for."""
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
        responses=documented(406, 404, 422),
        summary="Find the version of a subject that is a schema",
    )
    async def find_schema(
        request: Request[Any, Any, Any],
        subject: SubjectPath,
        data: JSONBody[RegisterSchemaRequest],
        normalize: Normalize = False,
        deleted: Deleted = False,
        format: Format = "",
    ) -> SchemaVersion:
        """It is an error if there is none. Nothing is registered by it."""
        found = await registry.find(subject, draft_of(request, data), normalize=normalize, deleted=deleted)
        return await version_told(registry, subject, found, format)

    @delete(
        both("/subjects/{subject:str}"),
        **DEFAULTS,
        status_code=200,
        responses=documented(406, 404, 422),
        summary="Delete a subject",
    )
    async def delete_subject(subject: SubjectPath, permanent: Permanent = False) -> list[int]:
        """Softly, unless it is to be for good; answers with the versions that were deleted."""
        return await registry.delete_subject(subject, permanent=permanent)

    @get(both("/contexts"), **DEFAULTS, responses=documented(406), summary="List contexts")
    async def list_contexts(offset: Skip = 0, limit: Limit = -1) -> list[str]:
        """Their names, as many as are asked for."""
        return paged(registry.state.contexts(), offset, limit)

    @get("/schemas/stats", **DEFAULTS, responses=documented(406), summary="How much is registered")
    async def schema_stats() -> SchemaStats:
        """How many subjects, schemas and versions are not deleted."""
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

    @get(both("/subjects/{subject:str}/versions"), **DEFAULTS, responses=documented(406, 404), summary="List versions")
    async def list_versions(
        subject: SubjectPath,
        deleted: Deleted = False,
        deletedOnly: DeletedOnly = False,  # noqa: N803
        deleted_only: DeletedOnlyToo = False,
        offset: Skip = 0,
        limit: Limit = -1,
    ) -> list[int]:
        """Their numbers, as many as are asked for."""
        only_deleted = deletedOnly or deleted_only
        found = registry.state.versions(subject, deleted=deleted or only_deleted)
        await registry.on_disk()
        return paged([each.version for each in found if each.deleted or not only_deleted], offset, limit)

    @post(
        both("/subjects/{subject:str}/versions"),
        **DEFAULTS,
        status_code=200,
        request_max_body_size=MAX_BODY,
        responses=documented(406, 409, 422),
        summary="Register a schema",
    )
    async def register_schema(
        request: Request[Any, Any, Any],
        subject: SubjectPath,
        data: JSONBody[RegisterSchemaRequest],
        normalize: Normalize = False,
    ) -> RegisterSchemaResponse:
        """It must fit to the versions that there are. The same schema again changes nothing and has the same id."""
        made = await registry.register(subject, draft_of(request, data), normalize=normalize)
        return RegisterSchemaResponse(
            id=made.version.schema_id, version=made.version.version, guid=made.record.guid, **described(made.record)
        )

    @get(
        both("/subjects/{subject:str}/versions/{version:str}"),
        **DEFAULTS,
        responses=documented(406, 404, 422),
        summary="Look at a version",
    )
    async def get_version(
        subject: SubjectPath, version: VersionPath, deleted: Deleted = False, format: Format = ""
    ) -> SchemaVersion:
        """Its schema, and the id of that."""
        found = await registry.version(subject, version_number(version), deleted=deleted)
        return await version_told(registry, subject, found, format)

    @get(
        both("/subjects/{subject:str}/versions/{version:str}/schema"),
        **DEFAULTS,
        responses=documented(406, 404, 422),
        summary="The schema of a version, and nothing else",
    )
    async def get_version_text(
        subject: SubjectPath, version: VersionPath, deleted: Deleted = False, format: Format = ""
    ) -> Response[Any]:
        """As it was registered first, unless another format is asked for."""
        found = await registry.version(subject, version_number(version), deleted=deleted)
        return Response((await text_of(registry, found.record, format)).encode(), media_type=REGISTRY_JSON)

    @get(
        both("/subjects/{subject:str}/versions/{version:str}/referencedby"),
        **DEFAULTS,
        responses=documented(406, 404, 422),
        summary="Schemas that refer to a version",
    )
    async def referenced_by(
        subject: SubjectPath, version: VersionPath, offset: Skip = 0, limit: Limit = -1
    ) -> list[int]:
        """Their ids."""
        found = await registry.version(subject, version_number(version))
        return paged(registry.state.referencing(subject, found.version.version), offset, limit)

    @delete(
        both("/subjects/{subject:str}/versions/{version:str}"),
        **DEFAULTS,
        status_code=200,
        responses=documented(406, 404, 422),
        summary="Delete a version",
    )
    async def delete_version(subject: SubjectPath, version: VersionPath, permanent: Permanent = False) -> int:
        """Softly, unless it is to be for good; answers with its number."""
        return await registry.delete_version(subject, version_number(version), permanent=permanent)

    @get(
        both("/subjects/{subject:str}/metadata"),
        **DEFAULTS,
        responses=documented(406, 404),
        summary="The latest version with this metadata",
    )
    async def latest_with_metadata(
        subject: SubjectPath,
        key: MetadataKeys = None,
        value: MetadataValues = None,
        deleted: Deleted = False,
        format: Format = "",
    ) -> SchemaVersion:
        """It has all of the properties that are asked for."""
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
