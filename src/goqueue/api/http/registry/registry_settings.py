"""What is allowed of schemas: compatibility and mode, of the whole registry or of a subject."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import delete, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import UNSET

from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.bodies.registry_parameters import Force, OrGlobal, SubjectPath
from goqueue.api.http.bodies.registry_schemas import ConfigBody, ModeBody
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.api.http.registry.registry_common import DEFAULTS, both
from goqueue.broker.operations import WHOLE_REGISTRY, Caller, Operations, quoted
from goqueue.model.errors import ModeNotConfigured, SubjectNotConfigured


def registry_settings_routes(operations: Operations) -> list[HTTPRouteHandler]:
    return [*_config_routes(operations), *_mode_routes(operations)]


def _config_routes(operations: Operations) -> list[HTTPRouteHandler]:
    schemas = operations.schemas

    async def change(caller: Caller, subject: str, data: ConfigBody) -> ConfigBody:
        given: dict[str, Any] = {
            name: value for name, value in msgspec.structs.asdict(data).items() if value is not UNSET
        }
        level = given.pop("compatibility", None)
        if level is not None:
            given["compatibilityLevel"] = level
        if isinstance(given.get("compatibilityLevel"), str):
            given["compatibilityLevel"] = given["compatibilityLevel"].upper()
        before = schemas.own_config(caller, subject) or {}
        config = {name: value for name, value in {**before, **given}.items() if value is not None}
        await schemas.configure(caller, subject, config)
        # Clients look for what they have sent under the name that they have sent it.
        told = dict(config)
        if "compatibilityLevel" in told:
            told["compatibility"] = told["compatibilityLevel"]
        return ConfigBody(**told)

    @get(both("/config"), **DEFAULTS, responses=documented(406), summary="What holds unless a subject says otherwise")
    async def get_config(request: AnyRequest) -> ConfigBody:
        """The compatibility that new versions must have, and what clients have set besides."""
        return ConfigBody(**schemas.config(caller_of(request), WHOLE_REGISTRY))

    @put(both("/config"), **DEFAULTS, responses=documented(406, 422), summary="Change it")
    async def set_config(request: AnyRequest, data: JSONBody[ConfigBody]) -> ConfigBody:
        """What is left out stays as it is."""
        return await change(caller_of(request), WHOLE_REGISTRY, data)

    @delete(both("/config"), **DEFAULTS, status_code=200, responses=documented(406), summary="Go back to the default")
    async def delete_config(request: AnyRequest) -> ConfigBody:
        """Answers with what held before."""
        before = schemas.config(caller_of(request), WHOLE_REGISTRY)
        await schemas.configure(caller_of(request), WHOLE_REGISTRY, None)
        return ConfigBody(**before)

    @get(both("/config/{subject:str}"), **DEFAULTS, responses=documented(406, 404), summary="What holds for a subject")
    async def get_subject_config(
        request: AnyRequest,
        subject: SubjectPath,
        defaultToGlobal: OrGlobal = False,  # noqa: N803
    ) -> ConfigBody:
        """It is an error if the subject has none of its own, unless it is to default to the registry's."""
        if schemas.own_config(caller_of(request), subject) is None and not defaultToGlobal:
            raise SubjectNotConfigured(
                f"Subject {quoted(subject)} does not have subject-level compatibility configured"
            )
        return ConfigBody(**schemas.config(caller_of(request), subject))

    @put(both("/config/{subject:str}"), **DEFAULTS, responses=documented(406, 422), summary="Change it for a subject")
    async def set_subject_config(request: AnyRequest, subject: SubjectPath, data: JSONBody[ConfigBody]) -> ConfigBody:
        """What is left out stays as it is."""
        return await change(caller_of(request), subject, data)

    @delete(
        both("/config/{subject:str}"),
        **DEFAULTS,
        status_code=200,
        responses=documented(406, 404),
        summary="Let a subject follow the others",
    )
    async def delete_subject_config(request: AnyRequest, subject: SubjectPath) -> ConfigBody:
        """Answers with what held before."""
        if schemas.own_config(caller_of(request), subject) is None:
            raise SubjectNotConfigured(
                f"Subject {quoted(subject)} does not have subject-level compatibility configured"
            )
        before = schemas.config(caller_of(request), subject)
        await schemas.configure(caller_of(request), subject, None)
        return ConfigBody(**before)

    return [get_config, set_config, delete_config, get_subject_config, set_subject_config, delete_subject_config]


def _mode_routes(operations: Operations) -> list[HTTPRouteHandler]:
    schemas = operations.schemas

    @get(both("/mode"), **DEFAULTS, responses=documented(406), summary="What may be done with schemas")
    async def get_mode(request: AnyRequest) -> ModeBody:
        """The mode of the whole registry."""
        return ModeBody(schemas.mode(caller_of(request), WHOLE_REGISTRY))

    @put(both("/mode"), **DEFAULTS, responses=documented(406, 422), summary="Change it")
    async def set_mode(request: AnyRequest, data: JSONBody[ModeBody], force: Force = False) -> ModeBody:
        """For all subjects that have none of their own."""
        await schemas.set_mode(caller_of(request), WHOLE_REGISTRY, data.mode.upper(), force=force)
        return ModeBody(data.mode.upper())

    @delete(both("/mode"), **DEFAULTS, status_code=200, responses=documented(406), summary="Go back to the default")
    async def delete_mode(request: AnyRequest) -> ModeBody:
        """Answers with the mode that held before."""
        before = schemas.mode(caller_of(request), WHOLE_REGISTRY)
        await schemas.set_mode(caller_of(request), WHOLE_REGISTRY, None)
        return ModeBody(before)

    @get(both("/mode/{subject:str}"), **DEFAULTS, responses=documented(406, 404), summary="The same for a subject")
    async def get_subject_mode(
        request: AnyRequest,
        subject: SubjectPath,
        defaultToGlobal: OrGlobal = False,  # noqa: N803
    ) -> ModeBody:
        """It is an error if the subject has none of its own, unless it is to default to the registry's."""
        found = (
            schemas.mode(caller_of(request), subject)
            if defaultToGlobal
            else schemas.own_mode(caller_of(request), subject)
        )
        if found is None:
            raise ModeNotConfigured(f"Subject {quoted(subject)} does not have subject-level mode configured")
        return ModeBody(found)

    @put(both("/mode/{subject:str}"), **DEFAULTS, responses=documented(406, 422), summary="Change it for a subject")
    async def set_subject_mode(
        request: AnyRequest, subject: SubjectPath, data: JSONBody[ModeBody], force: Force = False
    ) -> ModeBody:
        """For this subject only."""
        await schemas.set_mode(caller_of(request), subject, data.mode.upper(), force=force)
        return ModeBody(data.mode.upper())

    @delete(
        both("/mode/{subject:str}"),
        **DEFAULTS,
        status_code=200,
        responses=documented(406, 404),
        summary="Let a subject follow the others",
    )
    async def delete_subject_mode(request: AnyRequest, subject: SubjectPath) -> ModeBody:
        """Answers with the mode that held before."""
        before = schemas.own_mode(caller_of(request), subject)
        if before is None:
            raise ModeNotConfigured(f"Subject {quoted(subject)} does not have subject-level mode configured")
        await schemas.set_mode(caller_of(request), subject, None)
        return ModeBody(before)

    return [get_mode, set_mode, delete_mode, get_subject_mode, set_subject_mode, delete_subject_mode]
