"""Operations of the schema registry. What they answer is durable: an id is never given to another schema later."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.gate import Resource, ResourceOperations, Served, operation
from goqueue.broker.registry.compatibility_check import Verdict
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.broker.registry.schema_registry import Registered
from goqueue.coordination.schema_records import GLOBAL, SchemaRecord, Version
from goqueue.model.ids import SchemaId
from goqueue.schemas.parsing import formatted


@dataclass(frozen=True, slots=True)
class RegistryStats:
    """How much is registered and not deleted."""

    subjects: int
    schemas: int
    versions: int


class SchemaOperations(ResourceOperations):
    """Schemas by id and guid, subjects and their versions, compatibility, settings."""

    # Schemas

    @operation("schemas.get", Resource.SCHEMA)
    def get(self, caller: Caller, schema_id: int) -> Coroutine[Any, Any, SchemaRecord]:
        """A schema by its id, also one whose versions are all softly deleted."""
        return self._host.schemas.record(SchemaId(schema_id))

    @operation("schemas.get_with_last_id", Resource.SCHEMA)
    async def get_with_last_id(self, caller: Caller, schema_id: int) -> tuple[SchemaRecord, int]:
        """The same, and the largest id that was given."""
        registry = self._host.schemas
        record = await registry.record(SchemaId(schema_id))
        last_id = registry.state.last_id
        await registry.on_disk()
        return record, last_id

    @operation("schemas.get_by_guid", Resource.SCHEMA)
    async def get_by_guid(self, caller: Caller, guid: str) -> tuple[str, Registered]:
        """A schema as a version of one of the subjects that use it, and that subject."""
        registry = self._host.schemas
        record = registry.state.record_by_guid(guid)
        subject, version = next(registry.state.used_by(record.schema_id, deleted=True))
        return subject, await registry.version(subject, version, deleted=True)

    @operation("schemas.format", Resource.SCHEMA)
    async def formatted_text(self, caller: Caller, record: SchemaRecord, wanted: str) -> str:
        """The text of a registered schema in another format, as far as its kind has that."""
        registry = self._host.schemas
        parsed = await registry.ready(record.schema_id)
        return await registry.in_thread(formatted, parsed, record.text, wanted)

    @operation("schemas.list_subjects_using", Resource.SCHEMA)
    async def subjects_using(
        self, caller: Caller, schema_id: int, *, subject: str, deleted: bool, start: int, count: int
    ) -> list[str]:
        """The names of subjects that have the schema as a version; only ``subject`` unless that is empty."""
        registry = self._host.schemas
        record = await registry.record(SchemaId(schema_id))
        # They come in order, and a subject may be there with several versions.
        names = (name for name, _ in groupby(self._uses(record, subject, deleted), key=itemgetter(0)))
        found = list(islice(names, start, start + count))
        await registry.on_disk()
        return found

    @operation("schemas.list_versions_using", Resource.SCHEMA)
    async def versions_using(
        self, caller: Caller, schema_id: int, *, subject: str, deleted: bool, start: int, count: int
    ) -> list[tuple[str, int]]:
        """The same with the version numbers."""
        registry = self._host.schemas
        record = await registry.record(SchemaId(schema_id))
        found = list(islice(self._uses(record, subject, deleted), start, start + count))
        await registry.on_disk()
        return found

    def _uses(self, record: SchemaRecord, subject: str, deleted: bool) -> Iterator[tuple[str, int]]:
        uses = self._host.schemas.state.used_by(record.schema_id, deleted=deleted)
        return (each for each in uses if not subject or each[0] == subject)

    # Subjects

    @operation("subjects.list", Resource.BROKER)
    async def names(self, caller: Caller, *, deleted: bool = False, only_deleted: bool = False) -> list[str]:
        """Subjects with a version, sorted; ``deleted``: also those whose versions are all softly deleted."""
        registry = self._host.schemas
        names = registry.state.names(deleted=deleted or only_deleted)
        await registry.on_disk()
        if not only_deleted:
            return names
        live = set(registry.state.names())
        return [name for name in names if name not in live]

    @operation("subjects.list_contexts", Resource.BROKER)
    def contexts(self, caller: Caller) -> list[str]:
        """The contexts of subjects, sorted."""
        return self._host.schemas.state.contexts()

    @operation("subjects.stats", Resource.BROKER)
    def stats(self, caller: Caller) -> RegistryStats:
        """How many subjects, schemas and versions are not deleted."""
        live = [subject.live() for subject in self._host.schemas.state.subjects.values()]
        return RegistryStats(
            sum(bool(each) for each in live),
            len({version.schema_id for each in live for version in each}),
            sum(map(len, live)),
        )

    @operation("subjects.delete", Resource.SUBJECT, Served.WHILE_ACCEPTING)
    def delete_subject(self, caller: Caller, subject: str, *, permanent: bool) -> Coroutine[Any, Any, list[int]]:
        """Delete the versions of a subject, softly or for good; return their numbers."""
        return self._host.schemas.delete_subject(subject, permanent=permanent)

    # Versions

    @operation("versions.list", Resource.SUBJECT)
    async def versions(self, caller: Caller, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, in order."""
        registry = self._host.schemas
        found = registry.state.versions(subject, deleted=deleted)
        await registry.on_disk()
        return found

    @operation("versions.list_all", Resource.BROKER)
    async def all_versions(
        self, caller: Caller, wanted: Callable[[str], bool], *, deleted: bool, latest_only: bool, start: int, count: int
    ) -> list[tuple[str, Registered]]:
        """Versions of all subjects whose names are wanted, by subject and version."""
        registry = self._host.schemas
        chosen: list[tuple[str, Version]] = []
        for name in registry.state.names(deleted=deleted):
            if wanted(name):
                found = registry.state.versions(name, deleted=deleted)
                chosen += ((name, each) for each in (found[-1:] if latest_only else found))
        records = registry.state.records
        shown = [(name, Registered(records[each.schema_id], each)) for name, each in chosen[start : start + count]]
        await registry.on_disk()
        return shown

    @operation("versions.get", Resource.SUBJECT)
    def version(
        self, caller: Caller, subject: str, version: int | None, *, deleted: bool = False
    ) -> Coroutine[Any, Any, Registered]:
        """A version of a subject; ``None``: the latest."""
        return self._host.schemas.version(subject, version, deleted=deleted)

    @operation("versions.get_by_metadata", Resource.SUBJECT)
    async def latest_with(self, caller: Caller, subject: str, metadata: dict[str, str], *, deleted: bool) -> Registered:
        """The latest version of a subject whose metadata has these properties."""
        registry = self._host.schemas
        chosen = registry.latest_with(subject, metadata, deleted=deleted)
        return await registry.version(subject, chosen.version, deleted=deleted)

    @operation("versions.find", Resource.SUBJECT)
    def find(
        self, caller: Caller, subject: str, draft: SchemaDraft, *, normalize: bool, deleted: bool
    ) -> Coroutine[Any, Any, Registered]:
        """The version of a subject that is this very schema."""
        return self._host.schemas.find(subject, draft, normalize=normalize, deleted=deleted)

    @operation("versions.list_referencing", Resource.SUBJECT)
    async def referencing(self, caller: Caller, subject: str, version: int | None) -> list[SchemaId]:
        """Ids of the schemas that refer to a version."""
        registry = self._host.schemas
        found = await registry.version(subject, version)
        return registry.state.referencing(subject, found.version.version)

    @operation("versions.register", Resource.SUBJECT, Served.WHILE_ACCEPTING)
    def register(
        self, caller: Caller, subject: str, draft: SchemaDraft, *, normalize: bool = False
    ) -> Coroutine[Any, Any, Registered]:
        """Register a schema, which must be compatible. The same schema again changes nothing and has the same id."""
        return self._host.schemas.register(subject, draft, normalize=normalize)

    @operation("versions.check_compatibility", Resource.SUBJECT)
    def verdict(
        self,
        caller: Caller,
        subject: str,
        draft: SchemaDraft,
        version: int | None,
        *,
        against_all: bool,
        normalize: bool,
    ) -> Coroutine[Any, Any, Verdict]:
        """Whether a schema could be registered, compared with one version or with all that matter."""
        return self._host.schemas.verdict(subject, draft, version, against_all=against_all, normalize=normalize)

    @operation("versions.delete", Resource.SUBJECT, Served.WHILE_ACCEPTING)
    def delete_version(
        self, caller: Caller, subject: str, version: int | None, *, permanent: bool
    ) -> Coroutine[Any, Any, int]:
        """Delete a version, softly or for good; return its number. ``None``: the latest that can be deleted so."""
        return self._host.schemas.delete_version(subject, version, permanent=permanent)

    # Settings: those of the registry itself are under ``WHOLE_REGISTRY``

    @operation("registry.get_config", Resource.SUBJECT)
    def config(self, caller: Caller, subject: str) -> dict[str, Any]:
        """The configuration in effect for a subject."""
        return self._host.schemas.state.config(subject)

    @operation("registry.get_own_config", Resource.SUBJECT)
    def own_config(self, caller: Caller, subject: str) -> dict[str, Any] | None:
        """What was configured for the subject itself."""
        return self._host.schemas.state.own_config(subject)

    @operation("registry.set_config", Resource.SUBJECT, Served.WHILE_ACCEPTING)
    def configure(self, caller: Caller, subject: str, config: dict[str, Any] | None) -> Coroutine[Any, Any, None]:
        """Replace the subject's own configuration; ``None`` removes it."""
        return self._host.schemas.configure(subject, config)

    @operation("registry.get_mode", Resource.SUBJECT)
    def mode(self, caller: Caller, subject: str) -> str:
        """The mode in effect for a subject."""
        return self._host.schemas.state.mode(subject)

    @operation("registry.get_own_mode", Resource.SUBJECT)
    def own_mode(self, caller: Caller, subject: str) -> str | None:
        """The mode that was set for the subject itself."""
        return self._host.schemas.state.own_mode(subject)

    @operation("registry.set_mode", Resource.SUBJECT, Served.WHILE_ACCEPTING)
    def set_mode(
        self, caller: Caller, subject: str, mode: str | None, *, force: bool = False
    ) -> Coroutine[Any, Any, None]:
        """Set the subject's own mode; ``None`` removes it."""
        return self._host.schemas.set_mode(subject, mode, force=force)


WHOLE_REGISTRY = GLOBAL
"""In place of a subject: the registry's own settings."""
