"""The schema registry under the paths that its existing clients use, at the root and under ``/schemas``."""

from __future__ import annotations

from typing import Any

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import UNSET

from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.registry_parameters import Normalize, SubjectPath, Verbose, VersionPath
from goqueue.api.http.bodies.registry_schemas import CompatibilityResponse, RegisterSchemaRequest
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.api.http.registry.registry_common import DEFAULTS, MAX_BODY, both, draft_of, version_number
from goqueue.api.http.registry.registry_ids import registry_id_routes
from goqueue.api.http.registry.registry_settings import registry_settings_routes
from goqueue.api.http.registry.registry_subjects import registry_subject_routes
from goqueue.broker.operations import Operations
from goqueue.version import __version__


def registry_routes(operations: Operations) -> list[HTTPRouteHandler]:
    """Each path twice: as registries have it, and with ``/schemas`` before it."""
    return [
        *_about_routes(),
        *registry_subject_routes(operations),
        *registry_id_routes(operations),
        *_compatibility_routes(operations),
        *registry_settings_routes(operations),
    ]


def _about_routes() -> list[HTTPRouteHandler]:
    """What clients ask to find out whether there is a registry, and which."""

    @get("/metadata/id", **DEFAULTS, responses=documented(406), summary="Which registry it is")
    async def get_registry_id() -> dict[str, Any]:
        """The name of its cluster, as registries tell it."""
        return {"id": "", "scope": {"path": [], "clusters": {"schema-registry-cluster": "goqueue"}}}

    @get("/metadata/version", **DEFAULTS, responses=documented(406), summary="The version of the registry")
    async def get_registry_version() -> dict[str, str]:
        """That of the broker, which the registry is part of."""
        return {"version": __version__, "commitId": ""}

    return [get_registry_id, get_registry_version]


def _compatibility_routes(operations: Operations) -> list[HTTPRouteHandler]:
    schemas = operations.schemas

    @post(
        both("/compatibility/subjects/{subject:str}/versions/{version:str}"),
        **DEFAULTS,
        status_code=200,
        request_max_body_size=MAX_BODY,
        responses=documented(406, 404, 422),
        summary="Whether a schema fits to a version",
    )
    async def check_version(
        request: AnyRequest,
        subject: SubjectPath,
        version: VersionPath,
        data: JSONBody[RegisterSchemaRequest],
        verbose: Verbose = False,
        normalize: Normalize = False,
    ) -> CompatibilityResponse:
        """By the compatibility that holds for the subject, compared with that version alone."""
        verdict = await schemas.verdict(
            caller_of(request),
            subject,
            draft_of(request, data),
            version_number(version),
            against_all=False,
            normalize=normalize,
        )
        return CompatibilityResponse(verdict.is_compatible, verdict.messages() if verbose else UNSET)

    @post(
        both("/compatibility/subjects/{subject:str}/versions"),
        **DEFAULTS,
        status_code=200,
        request_max_body_size=MAX_BODY,
        responses=documented(406, 404, 422),
        summary="Whether a schema fits to a subject",
    )
    async def check_subject_versions(
        request: AnyRequest,
        subject: SubjectPath,
        data: JSONBody[RegisterSchemaRequest],
        verbose: Verbose = False,
        normalize: Normalize = False,
    ) -> CompatibilityResponse:
        """By the compatibility that holds for the subject, compared with all versions that it asks for."""
        verdict = await schemas.verdict(
            caller_of(request), subject, draft_of(request, data), None, against_all=True, normalize=normalize
        )
        return CompatibilityResponse(verdict.is_compatible, verdict.messages() if verbose else UNSET)

    return [check_version, check_subject_versions]
