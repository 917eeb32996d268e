"""Subjects and their versions."""

from __future__ import annotations

from typing import Any

from litestar import Response, delete, get, post
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
from goqueue.api.http.caller import AnyRequest, caller_of
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
from goqueue.broker.operations import Operations


def registry_subject_routes(operations: Operations) -> list[HTTPRouteHandler]:
    return [*_subject_routes(operations), *_version_routes(operations)]


def _subject_routes(operations: Operations) -> list[HTTPRouteHandler]:
    schemas = operations.schemas

    @get(both("/subjects"), **DEFAULTS, responses=documented(406), summary="List subjects")
    async def list_subjects(
        request: AnyRequest,
        subjectPrefix: Prefix = "",  # noqa: N803
        deleted: Deleted = False,
        deletedOnly: DeletedOnly = False,  # noqa: N803
        deleted_only: DeletedOnlyToo = False,
        offset: Skip = 0,
        limit: Limit = -1,
    ) -> list[str]:
        """Their names, as many as are asked for."""
        names = await schemas.names(caller_of(request), deleted=deleted, only_deleted=deletedOnly or deleted_only)
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
        request: AnyRequest,
        subject: SubjectPath,
        data: JSONBody[RegisterSchemaRequest],
        normalize: Normalize = False,
        deleted: Deleted = False,
        format: Format = "",
    ) -> SchemaVersion:
        """It is an error if there is none. Nothing is registered by it."""
        caller = caller_of(request)
        found = await schemas.find(caller, subject, draft_of(request, data), normalize=normalize, deleted=deleted)
        return await version_told(operations, caller, subject, found, format)

    @delete(
        both("/subjects/{subject:str}"),
        **DEFAULTS,
        status_code=200,
        responses=documented(406, 404, 422),
        summary="Delete a subject",
    )
    async def delete_subject(request: AnyRequest, subject: SubjectPath, permanent: Permanent = False) -> list[int]:
        """Softly, unless it is to be for good; answers with the versions that were deleted."""
        return await schemas.delete_subject(caller_of(request), subject, permanent=permanent)

    @get(both("/contexts"), **DEFAULTS, responses=documented(406), summary="List contexts")
    async def list_contexts(request: AnyRequest, offset: Skip = 0, limit: Limit = -1) -> list[str]:
        """Their names, as many as are asked for."""
        return paged(schemas.contexts(caller_of(request)), offset, limit)

    @get("/schemas/stats", **DEFAULTS, responses=documented(406), summary="How much is registered")
    async def schema_stats(request: AnyRequest) -> SchemaStats:
        """How many subjects, schemas and versions are not deleted."""
        stats = schemas.stats(caller_of(request))
        return SchemaStats(stats.subjects, stats.schemas, stats.versions)

    return [list_subjects, find_schema, delete_subject, list_contexts, schema_stats]


def _version_routes(operations: Operations) -> list[HTTPRouteHandler]:
    schemas = operations.schemas

    @get(both("/subjects/{subject:str}/versions"), **DEFAULTS, responses=documented(406, 404), summary="List versions")
    async def list_versions(
        request: AnyRequest,
        subject: SubjectPath,
        deleted: Deleted = False,
        deletedOnly: DeletedOnly = False,  # noqa: N803
        deleted_only: DeletedOnlyToo = False,
        offset: Skip = 0,
        limit: Limit = -1,
    ) -> list[int]:
        """Their numbers, as many as are asked for."""
        only_deleted = deletedOnly or deleted_only
        found = await schemas.versions(caller_of(request), subject, deleted=deleted or only_deleted)
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
        request: AnyRequest,
        subject: SubjectPath,
        data: JSONBody[RegisterSchemaRequest],
        normalize: Normalize = False,
    ) -> RegisterSchemaResponse:
        """It must fit to the versions that there are. The same schema again changes nothing and has the same id."""
        made = await schemas.register(caller_of(request), subject, draft_of(request, data), normalize=normalize)
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
        request: AnyRequest, subject: SubjectPath, version: VersionPath, deleted: Deleted = False, format: Format = ""
    ) -> SchemaVersion:
        """Its schema, and the id of that."""
        caller = caller_of(request)
        found = await schemas.version(caller, subject, version_number(version), deleted=deleted)
        return await version_told(operations, caller, subject, found, format)

    @get(
        both("/subjects/{subject:str}/versions/{version:str}/schema"),
        **DEFAULTS,
        responses=documented(406, 404, 422),
        summary="The schema of a version, and nothing else",
    )
    async def get_version_text(
        request: AnyRequest, subject: SubjectPath, version: VersionPath, deleted: Deleted = False, format: Format = ""
    ) -> Response[Any]:
        """As it was registered first, unless another format is asked for."""
        caller = caller_of(request)
        found = await schemas.version(caller, subject, version_number(version), deleted=deleted)
        return Response((await text_of(operations, caller, found.record, format)).encode(), media_type=REGISTRY_JSON)

    @get(
        both("/subjects/{subject:str}/versions/{version:str}/referencedby"),
        **DEFAULTS,
        responses=documented(406, 404, 422),
        summary="Schemas that refer to a version",
    )
    async def referenced_by(
        request: AnyRequest, subject: SubjectPath, version: VersionPath, offset: Skip = 0, limit: Limit = -1
    ) -> list[int]:
        """Their ids."""
        return paged(await schemas.referencing(caller_of(request), subject, version_number(version)), offset, limit)

    @delete(
        both("/subjects/{subject:str}/versions/{version:str}"),
        **DEFAULTS,
        status_code=200,
        responses=documented(406, 404, 422),
        summary="Delete a version",
    )
    async def delete_version(
        request: AnyRequest, subject: SubjectPath, version: VersionPath, permanent: Permanent = False
    ) -> int:
        """Softly, unless it is to be for good; answers with its number."""
        return await schemas.delete_version(caller_of(request), subject, version_number(version), permanent=permanent)

    @get(
        both("/subjects/{subject:str}/metadata"),
        **DEFAULTS,
        responses=documented(406, 404),
        summary="The latest version with this metadata",
    )
    async def latest_with_metadata(
        request: AnyRequest,
        subject: SubjectPath,
        key: MetadataKeys = None,
        value: MetadataValues = None,
        deleted: Deleted = False,
        format: Format = "",
    ) -> SchemaVersion:
        """It has all of the properties that are asked for."""
        wanted = dict(zip(key or (), value or (), strict=False))
        caller = caller_of(request)
        found = await schemas.latest_with(caller, subject, wanted, deleted=deleted)
        return await version_told(operations, caller, subject, found, format)

    return [
        list_versions,
        register_schema,
        get_version,
        get_version_text,
        referenced_by,
        delete_version,
        latest_with_metadata,
    ]
