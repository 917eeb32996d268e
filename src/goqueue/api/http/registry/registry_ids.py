"""Schemas by their ids, wherever they are used."""

from __future__ import annotations

from typing import Any

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET, UnsetType

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
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.api.http.registry.registry_common import (
    DEFAULTS,
    begins,
    id_number,
    page_size,
    text_of,
    version_as_registered,
    version_told,
)
from goqueue.broker.operations import SCHEMA_KINDS, Operations


def registry_id_routes(operations: Operations) -> list[HTTPRouteHandler]:
    schemas = operations.schemas

    @get("/schemas/types", **DEFAULTS, responses=documented(406), summary="Which kinds of schemas there are")
    async def schema_types() -> list[str]:
        """The names that schemaType may have."""
        return list(SCHEMA_KINDS)

    @get("/schemas/ids/{schema_id:str}", **DEFAULTS, responses=documented(406, 404, 422), summary="A schema by its id")
    async def get_schema(
        request: AnyRequest,
        schema_id: SchemaIdPath,
        subject: PassedOver = "",
        format: Format = "",
        fetchMaxId: FetchMaxId = False,  # noqa: N803
    ) -> SchemaBody:
        """Also one whose versions are all softly deleted."""
        caller, number = caller_of(request), id_number(schema_id)
        biggest: int | UnsetType = UNSET
        if fetchMaxId:
            record, biggest = await schemas.get_with_last_id(caller, number)
        else:
            record = await schemas.get(caller, number)
        told = described(record) | {"schema": await text_of(operations, caller, record, format)}
        return SchemaBody(**told, guid=record.guid, maxId=biggest)

    @get("/schemas/guids/{guid:str}", **DEFAULTS, responses=documented(406, 404), summary="A schema by its guid")
    async def get_schema_by_guid(request: AnyRequest, guid: GuidPath, format: Format = "") -> SchemaVersion:
        """As a version of one of the subjects that use it."""
        caller = caller_of(request)
        subject, found = await schemas.get_by_guid(caller, guid)
        return await version_told(operations, caller, subject, found, format)

    @get(
        "/schemas/ids/{schema_id:str}/schema", **DEFAULTS, responses=documented(406, 404, 422), summary="Its text alone"
    )
    async def get_schema_text(
        request: AnyRequest, schema_id: SchemaIdPath, subject: PassedOver = "", format: Format = ""
    ) -> Response[Any]:
        """As it was registered first, unless another format is asked for."""
        caller = caller_of(request)
        record = await schemas.get(caller, id_number(schema_id))
        return Response((await text_of(operations, caller, record, format)).encode(), media_type=REGISTRY_JSON)

    @get(
        "/schemas/ids/{schema_id:str}/subjects",
        **DEFAULTS,
        responses=documented(406, 404, 422),
        summary="Where it is used",
    )
    async def subjects_of_schema(
        request: AnyRequest,
        schema_id: SchemaIdPath,
        subject: OnlySubject = "",
        deleted: Deleted = False,
        offset: Skip = 0,
        limit: LimitOfUses = -1,
    ) -> list[str]:
        """The names of the subjects that have it as a version."""
        return await schemas.subjects_using(
            caller_of(request),
            id_number(schema_id),
            subject=subject,
            deleted=deleted,
            start=max(0, offset),
            count=page_size(limit),
        )

    @get(
        "/schemas/ids/{schema_id:str}/versions",
        **DEFAULTS,
        responses=documented(406, 404, 422),
        summary="The versions that it is",
    )
    async def versions_of_schema(
        request: AnyRequest,
        schema_id: SchemaIdPath,
        subject: OnlySubject = "",
        deleted: Deleted = False,
        offset: Skip = 0,
        limit: LimitOfUses = -1,
    ) -> list[SubjectVersion]:
        """Subjects, and the numbers that it has in them."""
        found = await schemas.versions_using(
            caller_of(request),
            id_number(schema_id),
            subject=subject,
            deleted=deleted,
            start=max(0, offset),
            count=page_size(limit),
        )
        return [SubjectVersion(name, version) for name, version in found]

    @get("/schemas", **DEFAULTS, responses=documented(406), summary="List versions of all subjects")
    async def list_schemas(
        request: AnyRequest,
        subjectPrefix: Prefix = "",  # noqa: N803
        deleted: Deleted = False,
        latestOnly: LatestOnly = False,  # noqa: N803
        offset: Skip = 0,
        limit: LimitOfSchemas = 1_000,
    ) -> list[SchemaVersion]:
        """By subject and version, page by page."""
        found = await schemas.all_versions(
            caller_of(request),
            lambda name: begins(name, subjectPrefix),
            deleted=deleted,
            latest_only=latestOnly,
            start=max(0, offset),
            count=page_size(limit, MOST_LISTED),
        )
        return [version_as_registered(name, each) for name, each in found]

    return [
        schema_types,
        get_schema,
        get_schema_by_guid,
        get_schema_text,
        subjects_of_schema,
        versions_of_schema,
        list_schemas,
    ]
