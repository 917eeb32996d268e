"""Which registry this is, and whether a schema would be compatible."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from goqueue.api.http.bodies.registry_parameters import Normalize, SubjectPath, Verbose, VersionPath
from goqueue.api.http.bodies.registry_schemas import CompatibilityResponse, RegisterSchemaRequest
from goqueue.api.http.registry.registry_common import MAX_BODY, RegistryController, both, draft_of, version_number
from goqueue.api.http.routing.declaration import get, post
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import Verdict
from goqueue.version import __version__


class RegistryMetadataRoutes(RegistryController):
    """What clients ask to find out whether there is a registry, and which."""

    @get("/metadata/id", summary="Which registry it is")
    async def get_registry_id(self) -> dict[str, Any]:
        """The name of its cluster, as registries tell it."""
        return {"id": "", "scope": {"path": [], "clusters": {"schema-registry-cluster": "goqueue"}}}

    @get("/metadata/version", summary="The version of the registry")
    async def get_registry_version(self) -> dict[str, str]:
        """That of the broker, which the registry is part of."""
        return {"version": __version__, "commitId": ""}


class CompatibilityRoutes(RegistryController):
    """Whether schemas could be registered."""

    @post(
        *both("/compatibility/subjects/{subject}/versions/{version}"),
        max_body_bytes=MAX_BODY,
        errors=(404, 422),
        summary="Whether a schema fits to a version",
    )
    async def check_version(
        self,
        request: Request,
        subject: SubjectPath,
        version: VersionPath,
        data: RegisterSchemaRequest,
        verbose: Verbose = False,
        normalize: Normalize = False,
    ) -> CompatibilityResponse:
        """By the compatibility that holds for the subject, compared with that version alone."""
        draft, number = draft_of(request, data), version_number(version)
        found = self._schemas.verdict(request.caller, subject, draft, number, against_all=False, normalize=normalize)
        return _answer(await found, verbose)

    @post(
        *both("/compatibility/subjects/{subject}/versions"),
        max_body_bytes=MAX_BODY,
        errors=(404, 422),
        summary="Whether a schema fits to a subject",
    )
    async def check_subject_versions(
        self,
        request: Request,
        subject: SubjectPath,
        data: RegisterSchemaRequest,
        verbose: Verbose = False,
        normalize: Normalize = False,
    ) -> CompatibilityResponse:
        """By the compatibility that holds for the subject, compared with all versions that it asks for."""
        draft = draft_of(request, data)
        found = self._schemas.verdict(request.caller, subject, draft, None, against_all=True, normalize=normalize)
        return _answer(await found, verbose)


def _answer(verdict: Verdict, verbose: bool) -> CompatibilityResponse:
    return CompatibilityResponse(verdict.is_compatible, verdict.messages() if verbose else UNSET)
