"""Subjects and their versions."""

from __future__ import annotations

from typing import Any

from goqueue.api.http.bodies.answer import Answer
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
    RegisterSchemaRequest,
    RegisterSchemaResponse,
    SchemaStats,
    SchemaVersion,
    described,
)
from goqueue.api.http.registry.registry_common import (
    MAX_BODY,
    RegistryController,
    begins,
    both,
    draft_of,
    paged,
    text_of,
    version_number,
    version_told,
)
from goqueue.api.http.routing.declaration import Documented, delete, get, post
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import Caller


class SubjectRoutes(RegistryController):
    """Subjects."""

    @get(*both("/subjects"), summary="List subjects")
    async def list_subjects(
        self,
        caller: Caller,
        subjectPrefix: Prefix = "",
        deleted: Deleted = False,
        deletedOnly: DeletedOnly = False,
        deleted_only: DeletedOnlyToo = False,
        offset: Skip = 0,
        limit: Limit = -1,
    ) -> list[str]:
        """Their names, as many as are asked for."""
        names = await self._schemas.names(caller, deleted=deleted, only_deleted=deletedOnly or deleted_only)
        return paged([name for name in names if begins(name, subjectPrefix)], offset, limit)

    @post(
        *both("/subjects/{subject}"),
        max_body_bytes=MAX_BODY,
        errors=(404, 422),
        summary="Find the version of a subject that is a schema",
    )
    async def find_schema(
        self,
        request: Request,
        subject: SubjectPath,
        data: RegisterSchemaRequest,
        normalize: Normalize = False,
        deleted: Deleted = False,
        format: Format = "",
    ) -> SchemaVersion:
        """It is an error if there is none. Nothing is registered by it."""
        found = await self._schemas.find(
            request.caller, subject, draft_of(request, data), normalize=normalize, deleted=deleted
        )
        return await version_told(self._schemas, request.caller, subject, found, format)

    @delete(*both("/subjects/{subject}"), errors=(404, 422), summary="Delete a subject")
    async def delete_subject(self, caller: Caller, subject: SubjectPath, permanent: Permanent = False) -> list[int]:
        """Softly, unless it is to be for good; answers with the versions that were deleted."""
        return await self._schemas.delete_subject(caller, subject, permanent=permanent)

    @get(*both("/contexts"), summary="List contexts")
    async def list_contexts(self, caller: Caller, offset: Skip = 0, limit: Limit = -1) -> list[str]:
        """Their names, as many as are asked for."""
        return paged(self._schemas.contexts(caller), offset, limit)

    @get("/schemas/stats", summary="How much is registered")
    async def schema_stats(self, caller: Caller) -> SchemaStats:
        """How many subjects, schemas and versions are not deleted."""
        stats = self._schemas.stats(caller)
        return SchemaStats(stats.subjects, stats.schemas, stats.versions)


class SubjectVersionRoutes(RegistryController):
    """Versions of subjects."""

    @get(*both("/subjects/{subject}/versions"), errors=(404,), summary="List versions")
    async def list_versions(
        self,
        caller: Caller,
        subject: SubjectPath,
        deleted: Deleted = False,
        deletedOnly: DeletedOnly = False,
        deleted_only: DeletedOnlyToo = False,
        offset: Skip = 0,
        limit: Limit = -1,
    ) -> list[int]:
        """Their numbers, as many as are asked for."""
        only_deleted = deletedOnly or deleted_only
        found = await self._schemas.versions(caller, subject, deleted=deleted or only_deleted)
        return paged([each.version for each in found if each.deleted or not only_deleted], offset, limit)

    @post(
        *both("/subjects/{subject}/versions"), max_body_bytes=MAX_BODY, errors=(409, 422), summary="Register a schema"
    )
    async def register_schema(
        self, request: Request, subject: SubjectPath, data: RegisterSchemaRequest, normalize: Normalize = False
    ) -> RegisterSchemaResponse:
        """It must fit to the versions that there are. The same schema again changes nothing and has the same id."""
        made = await self._schemas.register(request.caller, subject, draft_of(request, data), normalize=normalize)
        return RegisterSchemaResponse(
            id=made.version.schema_id, version=made.version.version, guid=made.record.guid, **described(made.record)
        )

    @get(*both("/subjects/{subject}/versions/{version}"), errors=(404, 422), summary="Look at a version")
    async def get_version(
        self, caller: Caller, subject: SubjectPath, version: VersionPath, deleted: Deleted = False, format: Format = ""
    ) -> SchemaVersion:
        """Its schema, and the id of that."""
        found = await self._schemas.version(caller, subject, version_number(version), deleted=deleted)
        return await version_told(self._schemas, caller, subject, found, format)

    @get(
        *both("/subjects/{subject}/versions/{version}/schema"),
        answer=Documented(kind=Any),
        errors=(404, 422),
        summary="The schema of a version, and nothing else",
    )
    async def get_version_text(
        self, caller: Caller, subject: SubjectPath, version: VersionPath, deleted: Deleted = False, format: Format = ""
    ) -> Answer:
        """As it was registered first, unless another format is asked for."""
        found = await self._schemas.version(caller, subject, version_number(version), deleted=deleted)
        return Answer((await text_of(self._schemas, caller, found.record, format)).encode())

    @get(
        *both("/subjects/{subject}/versions/{version}/referencedby"),
        errors=(404, 422),
        summary="Schemas that refer to a version",
    )
    async def referenced_by(
        self, caller: Caller, subject: SubjectPath, version: VersionPath, offset: Skip = 0, limit: Limit = -1
    ) -> list[int]:
        """Their ids."""
        found: list[int] = [*await self._schemas.referencing(caller, subject, version_number(version))]
        return paged(found, offset, limit)

    @delete(*both("/subjects/{subject}/versions/{version}"), errors=(404, 422), summary="Delete a version")
    async def delete_version(
        self, caller: Caller, subject: SubjectPath, version: VersionPath, permanent: Permanent = False
    ) -> int:
        """Softly, unless it is to be for good; answers with its number."""
        return await self._schemas.delete_version(caller, subject, version_number(version), permanent=permanent)

    @get(*both("/subjects/{subject}/metadata"), errors=(404,), summary="The latest version with this metadata")
    async def latest_with_metadata(
        self,
        caller: Caller,
        subject: SubjectPath,
        key: MetadataKeys = None,
        value: MetadataValues = None,
        deleted: Deleted = False,
        format: Format = "",
    ) -> SchemaVersion:
        """It has all of the properties that are asked for."""
        wanted = dict(zip(key or (), value or (), strict=False))
        found = await self._schemas.latest_with(caller, subject, wanted, deleted=deleted)
        return await version_told(self._schemas, caller, subject, found, format)
