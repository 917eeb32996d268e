"""The state of the schema registry: schemas, subjects and their versions, compatibility levels and modes.

``SchemaState`` answers queries and applies events; ``schemas`` decides which events are allowed. Texts of schemas are
not parsed here.

The schema of an id never changes. A schema that no version uses any more keeps its id, but cannot be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from goqueue.coordination import schema_records as records
from goqueue.coordination.schema_records import (
    GLOBAL,
    SchemaRecord,
    SchemasEvent,
    Setting,
    Subject,
    Version,
    context_of,
    quoted,
)
from goqueue.model.errors import SchemaNotFound, SubjectNotFound, VersionNotFound
from goqueue.model.ids import SchemaId

_SETTINGS = "settings "
_SCHEMA = "schema "
_SUBJECT = "subject "
_IDS = "ids"
_RECORD_BYTES = 500
"""The assumed size of a schema beside its text and its references."""


class SchemaState:
    """The state after all events of the journal ``__schemas``."""

    def __init__(self) -> None:
        self.records: dict[SchemaId, SchemaRecord] = {}
        self.subjects: dict[str, Subject] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.modes: dict[str, str] = {}
        """By subject, like ``configs``; ``GLOBAL`` is the key of the registry's own."""
        self.size = 0
        """The total size of all schemas in bytes, including those that no version uses any more."""
        self._ids: dict[str, SchemaId] = {}
        """By fingerprint."""
        self._guids: dict[str, SchemaId] = {}
        self._last_id = 0
        self._skipped_to = 0
        self._referrers: dict[tuple[str, int], set[SchemaId]] = {}
        """By subject and version: the schemas that refer to it, in use or not."""
        self._uses: dict[SchemaId, SortedSet[tuple[str, int]]] = {}
        """By schema: the subjects and versions that use it, deleted or not."""
        self._names: SortedSet[str] = SortedSet()
        self._live_names: SortedSet[str] = SortedSet()

    # Queries

    def names(self, *, deleted: bool = False) -> list[str]:
        """Subjects with a version, sorted; with ``deleted``, also those whose versions are all soft-deleted."""
        return (self._names if deleted else self._live_names).ordered()

    def subject(self, name: str, *, deleted: bool = False) -> Subject:
        found = self.subjects.get(name)
        if found is None or not (deleted or name in self._live_names):
            raise SubjectNotFound(
                f"Subject {quoted(name)} not found. Nothing is registered under it, or all of it is deleted"
            )
        return found

    def versions(self, name: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, in ascending order."""
        subject = self.subject(name, deleted=deleted)
        return [
            subject.versions[number]
            for number in sorted(subject.versions)
            if deleted or not subject.versions[number].deleted
        ]

    def version(self, name: str, version: int | None, *, deleted: bool = False) -> Version:
        """One version of a subject; the latest for ``None``."""
        versions = self.versions(name, deleted=deleted)
        if version is None:
            return versions[-1]
        for each in versions:
            if each.version == version:
                return each
        there = "" if deleted else " that is not deleted"
        raise VersionNotFound(f"Version {version} not found. Subject {quoted(name)} has no such version{there}")

    def record(self, schema_id: SchemaId) -> SchemaRecord:
        """A schema that a version uses, even if the version is soft-deleted."""
        found = self.records.get(schema_id)
        if found is None or schema_id not in self._uses:
            raise SchemaNotFound(f"Schema not found: there is none with id {schema_id}")
        return found

    def record_by_guid(self, guid: str) -> SchemaRecord:
        schema_id = self._guids.get(guid.lower())
        if schema_id is None:
            raise SchemaNotFound(f"Schema not found: there is none with guid {guid[:100]!r}")
        return self.record(schema_id)

    @property
    def last_id(self) -> int:
        """The largest id that was assigned, or may have been."""
        return self._last_id

    def contexts(self) -> list[str]:
        """All contexts. A subject ``:.context:subject`` is in the context ``.context``, any other one in ``.``."""
        return sorted({".", *(context_of(name) for name in self.names())})

    def used_by(self, schema_id: SchemaId, *, deleted: bool = False) -> Iterator[tuple[str, int]]:
        """The subjects and versions that use a schema, sorted."""
        known = self._uses.get(schema_id)
        for name, version in () if known is None else known.ordered():
            if deleted or not self.subjects[name].versions[version].deleted:
                yield name, version

    def is_used(self, schema_id: SchemaId, *, deleted: bool = False) -> bool:
        """Whether a version uses the schema."""
        known = self._uses.get(schema_id)
        if known is None or deleted:
            return known is not None
        return any(not self.subjects[name].versions[version].deleted for name, version in known.unordered())

    def same_as(
        self, name: str, record: SchemaRecord, version: int | None = None, *, deleted: bool = False
    ) -> Version | None:
        """The latest version of a subject with exactly this schema, or ``version`` if it has this schema."""
        schema_id = self._ids.get(record.fingerprint)
        if schema_id is None or name not in self.subjects:
            return None
        found = [
            each
            for each in self.subjects[name].versions.values()
            if each.schema_id == schema_id and (deleted or not each.deleted) and version in (None, each.version)
        ]
        return max(found, key=lambda each: each.version, default=None)

    def referencing(self, name: str, version: int, *, deleted: bool = False) -> list[SchemaId]:
        """Ids of the schemas in use that refer to this version, sorted."""
        found = self._referrers.get((name, version), ())
        return sorted(each for each in found if self.is_used(each, deleted=deleted))

    def own_config(self, name: str) -> dict[str, Any] | None:
        """The settings of the subject itself, without inherited ones."""
        return self.configs.get(name)

    def config(self, name: str) -> dict[str, Any]:
        """The settings in effect for a subject: its own, else those of its context, else those of the registry."""
        found: dict[str, Any] = {"compatibilityLevel": "BACKWARD"}
        for each in _scopes(name):
            found |= self.configs.get(each, {})
        return found

    def compatibility(self, name: str) -> str:
        return str(self.config(name)["compatibilityLevel"])

    def own_mode(self, name: str) -> str | None:
        return self.modes.get(name)

    def mode(self, name: str) -> str:
        """The mode in effect for a subject."""
        found = "READWRITE"
        for each in _scopes(name):
            found = self.modes.get(each, found)
            if found == "READONLY_OVERRIDE":
                break
        return found

    # Events

    def apply(self, event: SchemasEvent) -> None:
        match event:
            case records.SchemaAdded(record):
                self.records[record.schema_id] = record
                self._ids[record.fingerprint] = self._guids[record.guid] = record.schema_id
                self._last_id = max(self._last_id, record.schema_id)
                self.size += size_of(record)
                for each in record.references:
                    self._referrers.setdefault((each.subject, each.version), set()).add(record.schema_id)
            case records.VersionAdded(name, version, schema_id):
                subject = self.subjects.setdefault(name, Subject())
                subject.versions[version] = Version(version, schema_id)
                subject.last_version = max(subject.last_version, version)
                self._note_use(schema_id, name, version)
                self._note_name(name)
            case records.VersionsDeleted(name, versions, permanent):
                self._delete(name, versions, permanent=permanent)
            case records.ConfigSet(name, config):
                _set(self.configs, name, config)
            case records.ModeSet(name, mode):
                _set(self.modes, name, mode)
            case records.IdsSkipped(last_id):
                self._skipped_to = last_id
                self._last_id = max(self._last_id, last_id)

    def _delete(self, name: str, versions: list[int], *, permanent: bool) -> None:
        subject = self.subjects[name]
        for version in versions:
            if permanent:
                self._forget_use(subject.versions.pop(version).schema_id, name, version)
            else:
                subject.versions[version] = msgspec.structs.replace(subject.versions[version], deleted=True)
        if not subject.versions:
            del self.subjects[name]
        self._note_name(name)

    def _note_name(self, name: str) -> None:
        subject = self.subjects.get(name)
        for names, belongs in (
            (self._names, subject is not None),
            (self._live_names, bool(subject and subject.live())),
        ):
            if belongs:
                names.add(name)
            else:
                names.discard(name)

    def _note_use(self, schema_id: SchemaId, name: str, version: int) -> None:
        known = self._uses.get(schema_id)
        if known is None:
            known = self._uses[schema_id] = SortedSet()
        known.add((name, version))

    def _forget_use(self, schema_id: SchemaId, name: str, version: int) -> None:
        self._uses[schema_id].discard((name, version))
        if not self._uses[schema_id]:
            del self._uses[schema_id]

    # Snapshots

    def parts(self) -> list[str]:
        return [
            *([_IDS] if self._skipped_to else []),
            *(f"{_SETTINGS}{name}" for name in {**self.configs, **self.modes}),
            *(f"{_SCHEMA}{schema_id}" for schema_id in self.records),
            *(f"{_SUBJECT}{name}" for name in self.subjects),
        ]

    def part_of(self, event: SchemasEvent) -> str:
        match event:
            case records.SchemaAdded(record):
                return f"{_SCHEMA}{record.schema_id}"
            case records.VersionAdded(name, _, _) | records.VersionsDeleted(name, _, _):
                return f"{_SUBJECT}{name}"
            case records.ConfigSet(name, _) | records.ModeSet(name, _):
                return f"{_SETTINGS}{name}"
            case records.IdsSkipped():
                return _IDS

    def dump(self, part: str) -> bytes | None:
        if part == _IDS:
            return msgspec.json.encode(self._skipped_to)
        if part.startswith(_SETTINGS):
            name = part.removeprefix(_SETTINGS)
            setting = Setting(self.configs.get(name), self.modes.get(name))
            return None if setting == Setting() else msgspec.json.encode(setting)
        if part.startswith(_SCHEMA):
            return msgspec.json.encode(self.records[SchemaId(int(part.removeprefix(_SCHEMA)))])
        subject = self.subjects.get(part.removeprefix(_SUBJECT))
        return None if subject is None else msgspec.json.encode(subject)

    def restore(self, part: str, payload: bytes) -> None:
        if part == _IDS:
            self.apply(records.IdsSkipped(msgspec.json.decode(payload, type=int)))
        elif part.startswith(_SETTINGS):
            name = part.removeprefix(_SETTINGS)
            setting = msgspec.json.decode(payload, type=Setting)
            _set(self.configs, name, setting.config)
            _set(self.modes, name, setting.mode)
        elif part.startswith(_SCHEMA):
            self.apply(records.SchemaAdded(msgspec.json.decode(payload, type=SchemaRecord)))
        else:
            name = part.removeprefix(_SUBJECT)
            subject = self.subjects[name] = msgspec.json.decode(payload, type=Subject)
            for each in subject.versions.values():
                self._note_use(each.schema_id, name, each.version)
            self._note_name(name)


def _set(table: dict[str, Any], name: str, value: object | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


def _scopes(name: str) -> list[str]:
    """The keys under which settings of a subject are looked up; later ones take precedence."""
    context = context_of(name)
    return [GLOBAL, name] if context == "." else [GLOBAL, f":{context}:", name]


def size_of(record: SchemaRecord) -> int:
    extra = [record.references, record.metadata, record.rule_set]
    return len(record.text.encode()) + len(msgspec.json.encode(extra)) + _RECORD_BYTES


Item = TypeVar("Item", bound=Any)


class SortedSet(Generic[Item]):
    """Sorts on the first ordered read after a change. Most items are in order then, so this takes little time."""

    __slots__ = ("_items", "_sorted")

    def __init__(self) -> None:
        self._items: dict[Item, None] = {}
        self._sorted: list[Item] | None = None

    def add(self, item: Item) -> None:
        if item not in self._items:
            self._items[item] = None
            self._sorted = None

    def discard(self, item: Item) -> None:
        if item in self._items:
            del self._items[item]
            self._sorted = None

    def unordered(self) -> Iterator[Item]:
        return iter(self._items)

    def ordered(self) -> list[Item]:
        """The items in order. The caller must not change the list."""
        if self._sorted is None:
            self._sorted = sorted(self._items)
            self._items = dict.fromkeys(self._sorted)
        return self._sorted

    def __contains__(self, item: Item) -> bool:
        return item in self._items

    def __len__(self) -> int:
        return len(self._items)
