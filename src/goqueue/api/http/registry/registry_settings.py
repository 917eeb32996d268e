"""What is allowed of schemas: compatibility and mode, of the whole registry or of a subject."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from goqueue.api.http.bodies.registry_parameters import Force, OrGlobal, SubjectPath
from goqueue.api.http.bodies.registry_schemas import ConfigBody, ModeBody, object_of
from goqueue.api.http.registry.registry_common import RegistryController, both
from goqueue.api.http.routing.declaration import delete, get, put
from goqueue.broker.operations import WHOLE_REGISTRY, Caller, quoted
from goqueue.broker.operations.limits import MAX_EXTRA_BYTES
from goqueue.model.errors import InvalidRequest, ModeNotConfigured, SubjectNotConfigured


class RegistryConfigRoutes(RegistryController):
    """Compatibility, of the whole registry or of a subject."""

    @get(*both("/config"), summary="What holds unless a subject says otherwise")
    async def get_config(self, caller: Caller) -> ConfigBody:
        """The compatibility that new versions must have, and what clients have set besides."""
        return ConfigBody(**self._schemas.config(caller, WHOLE_REGISTRY))

    @put(*both("/config"), errors=(422,), summary="Change it")
    async def set_config(self, caller: Caller, data: ConfigBody) -> ConfigBody:
        """What is left out stays as it is."""
        return await self._change(caller, WHOLE_REGISTRY, data)

    @delete(*both("/config"), summary="Go back to the default")
    async def delete_config(self, caller: Caller) -> ConfigBody:
        """Answers with what held before."""
        return await self._reset(caller, WHOLE_REGISTRY)

    @get(*both("/config/{subject}"), errors=(404,), summary="What holds for a subject")
    async def get_subject_config(
        self, caller: Caller, subject: SubjectPath, defaultToGlobal: OrGlobal = False
    ) -> ConfigBody:
        """It is an error if the subject has none of its own, unless it is to default to the registry's."""
        if not defaultToGlobal:
            self._check_configured(caller, subject)
        return ConfigBody(**self._schemas.config(caller, subject))

    @put(*both("/config/{subject}"), errors=(422,), summary="Change it for a subject")
    async def set_subject_config(self, caller: Caller, subject: SubjectPath, data: ConfigBody) -> ConfigBody:
        """What is left out stays as it is."""
        return await self._change(caller, subject, data)

    @delete(*both("/config/{subject}"), errors=(404,), summary="Let a subject follow the others")
    async def delete_subject_config(self, caller: Caller, subject: SubjectPath) -> ConfigBody:
        """Answers with what held before."""
        self._check_configured(caller, subject)
        return await self._reset(caller, subject)

    def _check_configured(self, caller: Caller, subject: str) -> None:
        if self._schemas.own_config(caller, subject) is None:
            raise SubjectNotConfigured(
                f"Subject {quoted(subject)} does not have subject-level compatibility configured"
            )

    async def _reset(self, caller: Caller, subject: str) -> ConfigBody:
        before = self._schemas.config(caller, subject)
        await self._schemas.configure(caller, subject, None)
        return ConfigBody(**before)

    async def _change(self, caller: Caller, subject: str, data: ConfigBody) -> ConfigBody:
        given: dict[str, Any] = {
            name: value for name, value in msgspec.structs.asdict(data).items() if value is not UNSET
        }
        sent = {name: value for name, value in given.items() if isinstance(value, Raw)}
        if sum(map(len, sent.values())) > MAX_EXTRA_BYTES:
            raise InvalidRequest(f"the configuration has more than {MAX_EXTRA_BYTES} bytes")
        given |= {name: object_of(name, value) for name, value in sent.items()}
        level = given.pop("compatibility", None)
        if level is not None:
            given["compatibilityLevel"] = level
        if isinstance(given.get("compatibilityLevel"), str):
            given["compatibilityLevel"] = given["compatibilityLevel"].upper()
        before = self._schemas.own_config(caller, subject) or {}
        config = {name: value for name, value in {**before, **given}.items() if value is not None}
        await self._schemas.configure(caller, subject, config)
        # Clients look for what they have sent under the name that they have sent it.
        told = dict(config)
        if "compatibilityLevel" in told:
            told["compatibility"] = told["compatibilityLevel"]
        return ConfigBody(**told)


class RegistryModeRoutes(RegistryController):
    """The mode, of the whole registry or of a subject."""

    @get(*both("/mode"), summary="What may be done with schemas")
    async def get_mode(self, caller: Caller) -> ModeBody:
        """The mode of the whole registry."""
        return ModeBody(self._schemas.mode(caller, WHOLE_REGISTRY))

    @put(*both("/mode"), errors=(422,), summary="Change it")
    async def set_mode(self, caller: Caller, data: ModeBody, force: Force = False) -> ModeBody:
        """For all subjects that have none of their own."""
        await self._schemas.set_mode(caller, WHOLE_REGISTRY, data.mode.upper(), force=force)
        return ModeBody(data.mode.upper())

    @delete(*both("/mode"), summary="Go back to the default")
    async def delete_mode(self, caller: Caller) -> ModeBody:
        """Answers with the mode that held before."""
        before = self._schemas.mode(caller, WHOLE_REGISTRY)
        await self._schemas.set_mode(caller, WHOLE_REGISTRY, None)
        return ModeBody(before)

    @get(*both("/mode/{subject}"), errors=(404,), summary="The same for a subject")
    async def get_subject_mode(
        self, caller: Caller, subject: SubjectPath, defaultToGlobal: OrGlobal = False
    ) -> ModeBody:
        """It is an error if the subject has none of its own, unless it is to default to the registry's."""
        return ModeBody(self._schemas.mode(caller, subject) if defaultToGlobal else self._own(caller, subject))

    @put(*both("/mode/{subject}"), errors=(422,), summary="Change it for a subject")
    async def set_subject_mode(
        self, caller: Caller, subject: SubjectPath, data: ModeBody, force: Force = False
    ) -> ModeBody:
        """For this subject only."""
        await self._schemas.set_mode(caller, subject, data.mode.upper(), force=force)
        return ModeBody(data.mode.upper())

    @delete(*both("/mode/{subject}"), errors=(404,), summary="Let a subject follow the others")
    async def delete_subject_mode(self, caller: Caller, subject: SubjectPath) -> ModeBody:
        """Answers with the mode that held before."""
        before = self._own(caller, subject)
        await self._schemas.set_mode(caller, subject, None)
        return ModeBody(before)

    def _own(self, caller: Caller, subject: str) -> str:
        found = self._schemas.own_mode(caller, subject)
        if found is None:
            raise ModeNotConfigured(f"Subject {quoted(subject)} does not have subject-level mode configured")
        return found
