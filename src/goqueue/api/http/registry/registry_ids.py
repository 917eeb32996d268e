"""Schemas by their ids, wherever they are used."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from goqueue.api.http.bodies.answer import Answer
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
from goqueue.api.http.bodies.registry_schemas import SchemaBody, SchemaVersion, SubjectVersion, described
from goqueue.api.http.registry.registry_common import (
    RegistryController,
    begins,
    id_number,
    page_size,
    page_start,
    text_of,
    version_as_registered,
    version_told,
)
from goqueue.api.http.routing.declaration import Documented, get
from goqueue.broker.operations import SCHEMA_KINDS, Caller


class SchemaIdRoutes(RegistryController):
    """Schemas by their ids."""

    @get("/schemas/types", summary="Which kinds of schemas there are")
    async def schema_types(self) -> list[str]:
        """The names that schemaType may have."""
        return list(SCHEMA_KINDS)

    @get("/schemas/ids/{schema_id}", errors=(404, 422), summary="A schema by its id")
    async def get_schema(
        self,
        caller: Caller,
        schema_id: SchemaIdPath,
        subject: PassedOver = "",
        format: Format = "",
        fetchMaxId: FetchMaxId = False,
    ) -> SchemaBody:
        """Also one whose versions are all softly deleted."""
        number = id_number(schema_id)
        biggest: int | UnsetType = UNSET
        if fetchMaxId:
            record, biggest = await self._schemas.get_with_last_id(caller, number)
        else:
            record = await self._schemas.get(caller, number)
        told = described(record) | {"schema": await text_of(self._schemas, caller, record, format)}
        return SchemaBody(**told, guid=record.guid, maxId=biggest)

    @get("/schemas/guids/{guid}", errors=(404,), summary="A schema by its guid")
    async def get_schema_by_guid(self, caller: Caller, guid: GuidPath, format: Format = "") -> SchemaVersion:
        """As a version of one of the subjects that use it."""
        subject, found = await self._schemas.get_by_guid(caller, guid)
        return await version_told(self._schemas, caller, subject, found, format)

    @get("/schemas/ids/{schema_id}/schema", answer=Documented(kind=Any), errors=(404, 422), summary="Its text alone")
    async def get_schema_text(
        self, caller: Caller, schema_id: SchemaIdPath, subject: PassedOver = "", format: Format = ""
    ) -> Answer:
        """As it was registered first, unless another format is asked for."""
        record = await self._schemas.get(caller, id_number(schema_id))
        return Answer((await text_of(self._schemas, caller, record, format)).encode())

    @get("/schemas/ids/{schema_id}/subjects", errors=(404, 422), summary="Where it is used")
    async def subjects_of_schema(
        self,
        caller: Caller,
        schema_id: SchemaIdPath,
        subject: OnlySubject = "",
        deleted: Deleted = False,
        offset: Skip = 0,
        limit: LimitOfUses = -1,
    ) -> list[str]:
        """The names of the subjects that have it as a version."""
        return await self._schemas.subjects_using(
            caller,
            id_number(schema_id),
            subject=subject,
            deleted=deleted,
            start=page_start(offset),
            count=page_size(limit),
        )

    @get("/schemas/ids/{schema_id}/versions", errors=(404, 422), summary="The versions that it is")
    async def versions_of_schema(
        self,
        caller: Caller,
        schema_id: SchemaIdPath,
        subject: OnlySubject = "",
        deleted: Deleted = False,
        offset: Skip = 0,
        limit: LimitOfUses = -1,
    ) -> list[SubjectVersion]:
        """Subjects, and the numbers that it has in them."""
        found = await self._schemas.versions_using(
            caller,
            id_number(schema_id),
            subject=subject,
            deleted=deleted,
            start=page_start(offset),
            count=page_size(limit),
        )
        return [SubjectVersion(name, version) for name, version in found]

    @get("/schemas", summary="List versions of all subjects")
    async def list_schemas(
        self,
        caller: Caller,
        subjectPrefix: Prefix = "",
        deleted: Deleted = False,
        latestOnly: LatestOnly = False,
        offset: Skip = 0,
        limit: LimitOfSchemas = 1_000,
    ) -> list[SchemaVersion]:
        """By subject and version, page by page."""
        found = await self._schemas.all_versions(
            caller,
            lambda name: begins(name, subjectPrefix),
            deleted=deleted,
            latest_only=latestOnly,
            start=page_start(offset),
            count=page_size(limit, MOST_LISTED),
        )
        return [version_as_registered(name, each) for name, each in found]
