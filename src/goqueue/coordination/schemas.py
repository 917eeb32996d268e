"""Decisions of the schema registry: which schemas may be registered or deleted, and which settings may change.

Pure: ``decide_*`` return events or raise, and do not change the state. Texts are in canonical form, and their
compatibility was checked before.
"""

from __future__ import annotations

from typing import Any

import msgspec

from goqueue.coordination.schema_records import (
    GLOBAL,
    MAX_ID,
    READ_ONLY,
    ConfigSet,
    IdsSkipped,
    ModeSet,
    SchemaAdded,
    SchemaRecord,
    SchemasEvent,
    VersionAdded,
    VersionsDeleted,
    quoted,
)
from goqueue.coordination.schema_state import SchemaState, size_of
from goqueue.model import errors
from goqueue.model.config import SchemasConfig
from goqueue.model.ids import SchemaId

_SOFT_DELETED = "was soft deleted.Set permanent=true to delete permanently"
"""The exact words of other registries, which clients search for."""
_NOT_DELETED = "was not deleted first before being permanently deleted"


class Schemas(SchemaState):
    """The state machine of ``__schemas``."""

    def decide_register(
        self, name: str, record: SchemaRecord, version: int | None = None, *, limits: SchemasConfig
    ) -> list[SchemasEvent]:
        """Register a version. ``record.schema_id`` is 0 and ``version`` is ``None`` unless they are imported."""
        self._check_can_register(name, has_place=bool(record.schema_id or version is not None))
        self._check_references(record)
        events: list[SchemasEvent] = []
        schema_id = self._ids.get(record.fingerprint)
        self._check_room(name, record, schema_id, limits)
        if schema_id is None:
            schema_id = record.schema_id or SchemaId(self._last_id + 1)
            if schema_id in self.records:
                raise errors.SchemaIdTaken(
                    f"Overwrite new schema with id {schema_id} is not permitted: the id stands for another one already"
                )
            if schema_id > MAX_ID:
                raise errors.InvalidRequest(f"the last id is {self._last_id}, and ids go up to {MAX_ID}")
            events.append(SchemaAdded(msgspec.structs.replace(record, schema_id=schema_id)))
        elif record.schema_id not in (0, schema_id):
            raise errors.SchemaIdTaken(
                f"the schema has id {schema_id} already, and cannot have id {record.schema_id} as well"
            )
        subject = self.subjects.get(name)
        versions = {} if subject is None else subject.versions
        if version is None:
            live = [each for each in versions.values() if each.schema_id == schema_id and not each.deleted]
            if live:
                return events
            version = 1 if subject is None else subject.last_version + 1
        elif version in versions:
            if versions[version].schema_id == schema_id and not versions[version].deleted:
                return events
            raise errors.SchemaIdTaken(f"version {version} of subject {name[:300]!r} exists already")
        if len(versions) >= limits.max_versions:
            raise errors.InvalidRequest(
                f"subject {name[:300]!r} has {len(versions)} versions, the most that schemas.max_versions allows"
            )
        return [*events, VersionAdded(name, version, schema_id)]

    def decide_delete_version(self, name: str, version: int | None, *, permanent: bool) -> list[SchemasEvent]:
        self._check_writable(name)
        found = self.version(name, version, deleted=True)
        if found.deleted and not permanent:
            raise errors.VersionSoftDeleted(f"Subject {quoted(name)} Version {found.version} {_SOFT_DELETED}")
        if permanent and not found.deleted:
            raise errors.VersionNotSoftDeleted(f"Subject {quoted(name)} Version {found.version} {_NOT_DELETED}")
        return self._deletion(name, [found.version], permanent=permanent)

    def decide_delete_subject(self, name: str, *, permanent: bool) -> list[SchemasEvent]:
        self._check_writable(name)
        subject = self.subject(name, deleted=True)
        live = [each.version for each in subject.live()]
        if permanent and live:
            raise errors.SubjectNotSoftDeleted(f"Subject {quoted(name)} {_NOT_DELETED}")
        if not permanent and not live:
            raise errors.SubjectSoftDeleted(f"Subject {quoted(name)} {_SOFT_DELETED}")
        versions = sorted(subject.versions) if permanent else sorted(live)
        return self._deletion(name, versions, permanent=permanent)

    def _deletion(self, name: str, versions: list[int], *, permanent: bool) -> list[SchemasEvent]:
        for version in versions:
            # A soft-deleted schema can still be fetched, and is then parsed with all that it refers to.
            if referring := self.referencing(name, version, deleted=permanent):
                raise errors.SchemaIsReferenced(
                    "One or more references exist to the schema "
                    f"{{magic=1,keytype=SCHEMA,subject={name[:300]},version={version}}}. These schemas refer to it: "
                    f"{', '.join(map(str, referring[:10]))}"
                )
        events: list[SchemasEvent] = [VersionsDeleted(name, versions, permanent)]
        if {each.version for each in self.subjects[name].live()} <= set(versions):
            # A subject that is registered again starts with the defaults.
            if self.own_config(name) is not None:
                events.append(ConfigSet(name, None))
            if self.own_mode(name) is not None:
                events.append(ModeSet(name, None))
        return events

    def decide_config(self, name: str, config: dict[str, Any] | None, *, limits: SchemasConfig) -> list[SchemasEvent]:
        if config is not None:
            self._check_room_for_settings(name, limits)
        return [ConfigSet(name, config)]

    def decide_mode(self, name: str, mode: str | None, *, force: bool, limits: SchemasConfig) -> list[SchemasEvent]:
        if mode is not None:
            self._check_room_for_settings(name, limits)
        if mode == "IMPORT" and not force and self._has_schemas(name):
            raise errors.SubjectReadOnly(
                "Cannot import since found existing subjects; mode IMPORT needs a registry, or a subject, without "
                "schemas; force=true changes it anyway"
            )
        return [ModeSet(name, mode)]

    def decide_skip(self, count: int) -> list[SchemasEvent]:
        """Skip ``count`` ids that may have been assigned before; skip nothing if fewer are left."""
        return [IdsSkipped(self._last_id + count)] if self._last_id + count < MAX_ID else []

    def _has_schemas(self, name: str) -> bool:
        return bool(self._live_names) if name == GLOBAL else name in self._live_names

    def _check_room(self, name: str, record: SchemaRecord, schema_id: SchemaId | None, limits: SchemasConfig) -> None:
        """Check the limits. ``schema_id`` is the id of the schema if it is registered already."""
        if schema_id not in self._uses and len(self._uses) >= limits.max_schemas:
            raise errors.InvalidRequest(
                f"there are {len(self._uses)} schemas; schemas.max_schemas allows {limits.max_schemas}"
            )
        if name not in self.subjects and len(self.subjects) >= limits.max_schemas:
            raise errors.InvalidRequest(
                f"there are {len(self.subjects)} subjects; schemas.max_schemas allows {limits.max_schemas}"
            )
        if schema_id is None and self.size + size_of(record) > limits.max_bytes:
            raise errors.InvalidRequest(
                f"all schemas have {self.size} bytes, and this one {size_of(record)}; schemas.max_bytes allows "
                f"{limits.max_bytes}. Those that were deleted for good count as well: their ids are not given again"
            )

    def _check_room_for_settings(self, name: str, limits: SchemasConfig) -> None:
        """Check the limit on subjects with settings, which may be set before the subject exists."""
        if name in self.configs or name in self.modes:
            return
        if max(len(self.configs), len(self.modes)) >= limits.max_schemas:
            raise errors.InvalidRequest(
                f"so many subjects have settings of their own that schemas.max_schemas ({limits.max_schemas}) "
                "allows no more"
            )

    def _check_writable(self, name: str) -> None:
        mode = self.mode(name)
        if mode in READ_ONLY:
            raise errors.SubjectReadOnly(
                f"Subject {name[:300]} is in read-only mode: it is in mode {mode}, and nothing can be deleted"
            )

    def _check_can_register(self, name: str, *, has_place: bool) -> None:
        mode = self.mode(name)
        if mode in READ_ONLY:
            raise errors.SubjectReadOnly(
                f"Subject {name[:300]} is in read-only mode: it is in mode {mode}, and nothing can be registered"
            )
        if has_place and mode != "IMPORT":
            raise errors.SubjectReadOnly(
                f"Subject {name[:300]} is not in import mode: it is in mode {mode}, and an id or a version can be "
                "given in IMPORT only"
            )
        if mode == "IMPORT" and not has_place:
            raise errors.SubjectReadOnly(
                f"Subject {name[:300]} is not in read-write mode: it is in mode IMPORT, and schemas can be registered "
                "with the id that they have only"
            )

    def _check_references(self, record: SchemaRecord) -> None:
        """Check that all references still exist: they did when the schema was parsed."""
        for each in record.references:
            try:
                found = self.version(each.subject, each.version)
                if found.schema_id != each.schema_id:
                    raise errors.VersionNotFound(
                        f"Version {each.version} not found. It was deleted from subject {quoted(each.subject)}"
                    )
            except errors.GoQueueError as error:
                raise errors.InvalidSchema(f"reference {each.name[:300]!r}: {error}") from None
