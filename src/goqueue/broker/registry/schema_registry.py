"""The schema registry at work: what is registered, whether something fits to it, and schemas ready for use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from goqueue.broker.registry.compatibility_check import CompatibilityCheck, Verdict, incompatible
from goqueue.broker.registry.parsed_schemas import CachedSchema, Parameters, ParsedSchemas, Result
from goqueue.broker.registry.schema_draft import MAX_EXTRA_BYTES, MAX_REFERENCES, SchemaDraft, check_subject
from goqueue.broker.runtime.journal import Journal
from goqueue.coordination.schema_records import (
    COMPATIBILITIES,
    MODES,
    Reference,
    SchemaAdded,
    SchemaRecord,
    SchemasEvent,
    Version,
    VersionsDeleted,
    fingerprint_of,
    one_of,
    quoted,
)
from goqueue.coordination.schemas import Schemas
from goqueue.model.config import SchemasConfig
from goqueue.model.errors import (
    GoQueueError,
    InvalidCompatibility,
    InvalidMode,
    InvalidRequest,
    InvalidSchema,
    SchemaNotFound,
)
from goqueue.model.fields import shown
from goqueue.model.ids import SchemaId
from goqueue.schemas.base import MAX_DEPTH, ParsedSchema
from goqueue.schemas.parsing import schema_kind

_AT_ONCE = 4
"""How many requests with a schema are looked at; their schemas take memory, and others wait for their turn."""


@dataclass(frozen=True, slots=True)
class Registered:
    record: SchemaRecord
    version: Version


class SchemaRegistry:
    def __init__(self, journal: Journal[Schemas], config: SchemasConfig) -> None:
        self._journal = journal
        self._config = config
        self._parsed = ParsedSchemas(lambda schema_id: self.state.records[schema_id], config.parsed_bytes)
        self._compatibility = CompatibilityCheck(lambda: self.state, self._parsed)
        self._levels: dict[int, int] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._not_on_disk: set[int] = set()
        """Ids that were given, and may still be another's after a power loss."""

    @property
    def state(self) -> Schemas:
        """Nothing of it is told to anyone before it is ``on_disk``."""
        return self._journal.machine

    async def close(self) -> None:
        await self._parsed.close()

    async def in_thread(
        self, work: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        """Do what takes long with a schema."""
        return await self._parsed.in_thread(work, *arguments, **named)

    # Registering

    async def register(self, subject: str, draft: SchemaDraft, *, normalize: bool = False) -> Registered:
        """The same schema again changes nothing and has the same id."""
        check_subject(subject)
        with _in_words_of_registries():
            async with self._places:
                record, known = await self._fitting(subject, draft, normalize)
            if known is not None:
                await self.on_disk()
                return Registered(self.state.records[known.schema_id], known)
            # Nothing waits between what was seen last and this decision.
            await self._add(subject, record, draft.version)
        found = self.state.same_as(subject, record, draft.version)
        if found is None:
            raise SchemaNotFound(f"Schema not found: it was deleted from subject {quoted(subject)} meanwhile")
        return Registered(self.state.records[found.schema_id], found)

    async def _fitting(self, subject: str, draft: SchemaDraft, normalize: bool) -> tuple[SchemaRecord, Version | None]:
        """A schema that can be registered, or the version that it is already."""
        while True:
            seen = self._seen(subject, draft)
            normalizes = self._normalizes(subject, normalize)
            record, understood = await self._understood(draft, normalize=normalizes)
            if not draft.schema_id and draft.version is None:
                known = await self._known(subject, record, understood, normalize=normalizes, deleted=False)
                if known is not None:
                    return record, known
            if self.state.mode(subject) != "IMPORT":
                verdict = await self._compatibility.verdict(
                    subject, understood.parsed, self._compatibility.relevant_versions(subject)
                )
                if not verdict.is_compatible:
                    raise incompatible(subject, self.state.compatibility(subject), verdict)
            if seen == self._seen(subject, draft):
                # Nothing has changed meanwhile that it had to fit to.
                return record, None

    async def _add(self, subject: str, record: SchemaRecord, version: int | None) -> None:
        given: set[int] = set()

        def decide(schemas: Schemas) -> list[SchemasEvent]:
            events = schemas.decide_register(subject, record, version, limits=self._config)
            given.update(event.record.schema_id for event in events if isinstance(event, SchemaAdded))
            self._not_on_disk.update(given)
            return events

        # If the request is given up meanwhile, they are still on their way.
        await self._journal.submit(decide)
        self._not_on_disk -= given

    async def on_disk(self) -> None:
        """Return when all that can be seen now is on the disk: an id that someone was told of is never another's."""
        if not self._journal.is_taken_back:
            await self._journal.settled()

    async def record(self, schema_id: SchemaId) -> SchemaRecord:
        """A schema that some version refers to, be it softly deleted; when its id is on the disk."""
        if schema_id in self._not_on_disk:
            await self.on_disk()
            self._not_on_disk.discard(schema_id)
        return self.state.record(schema_id)

    async def version(self, subject: str, version: int | None, *, deleted: bool = False) -> Registered:
        """A version, when it is on the disk. ``None``: the latest."""
        found = self.state.version(subject, version, deleted=deleted)
        record = self.state.records[found.schema_id]
        await self.on_disk()
        return Registered(record, found)

    def _seen(self, subject: str, draft: SchemaDraft) -> tuple[object, ...]:
        """What a decision on a schema rests on. Numbers of versions alone would not do: they may begin again."""
        live = tuple((each.version, each.schema_id) for each in self._compatibility.live_versions(subject))
        referred = tuple(self._pinned(each) for each in draft.references[:MAX_REFERENCES])
        return live, referred, self.state.config(subject), self.state.mode(subject)

    async def find(self, subject: str, draft: SchemaDraft, *, normalize: bool, deleted: bool) -> Registered:
        """The version of a subject that is this very schema."""
        self.state.subject(subject, deleted=deleted)
        normalizes = self._normalizes(subject, normalize)
        async with self._places:
            with _in_words_of_registries():
                record, understood = await self._understood(draft, normalize=normalizes)
            found = await self._known(subject, record, understood, normalize=normalizes, deleted=deleted)
        if found is None:
            raise SchemaNotFound(f"Schema not found: subject {quoted(subject)} has no such schema")
        await self.on_disk()
        return Registered(self.state.records[found.schema_id], found)

    def _normalizes(self, subject: str, asked: bool) -> bool:
        return asked or bool(self.state.config(subject).get("normalize"))

    async def _known(
        self, subject: str, record: SchemaRecord, understood: CachedSchema, *, normalize: bool, deleted: bool
    ) -> Version | None:
        """The latest version that is this schema: the very same, or one that the client cannot tell from it."""
        found = self.state.same_as(subject, record, deleted=deleted)
        if found is not None or subject not in self.state.subjects:
            return found
        for each in sorted(self.state.subjects[subject].versions.values(), key=lambda one: -one.version):
            other = self.state.records[each.schema_id]
            if (each.deleted and not deleted) or not _may_be(record, other, normalize=normalize):
                continue
            if understood.digest == await self._parsed.digest(other.schema_id, normalized=normalize):
                return each
        return None

    async def _understood(self, draft: SchemaDraft, *, normalize: bool) -> tuple[SchemaRecord, CachedSchema]:
        kind = schema_kind(draft.kind)
        draft.check()
        pinned = [self._pinned(each) for each in draft.references]
        referred = [self.state.records[each.schema_id] for each in pinned]
        if any(self._level(each) >= MAX_DEPTH for each in referred):
            raise InvalidSchema(f"references lead through more than {MAX_DEPTH} schemas")
        understood = await self._parsed.understood(kind, draft.text, pinned, normalize=normalize)
        fingerprint = fingerprint_of(
            kind,
            understood.text,
            pinned,
            draft.metadata,
            draft.rule_set,
            referred=[each.fingerprint for each in referred],
        )
        text = understood.text if normalize else draft.text
        record = SchemaRecord(draft.schema_id, kind, text, fingerprint, pinned, draft.metadata, draft.rule_set)
        return record, understood

    def _pinned(self, reference: Reference) -> Reference:
        """What a schema means must not change with the next version of another."""
        try:
            found = self.state.version(reference.subject, reference.version or None)
        except GoQueueError as error:
            raise InvalidSchema(f"reference {reference.name[:300]!r}: {error}") from None
        return msgspec.structs.replace(reference, version=found.version, schema_id=found.schema_id)

    def _level(self, record: SchemaRecord) -> int:
        """Through how many schemas its references lead, itself included."""
        known = self._levels.get(record.schema_id)
        if known is None:
            below = (self._level(self.state.records[each.schema_id]) for each in record.references)
            known = self._levels[record.schema_id] = 1 + max(below, default=0)
        return known

    # Fitting

    async def verdict(
        self, subject: str, draft: SchemaDraft, version: int | None, *, against_all: bool, normalize: bool
    ) -> Verdict:
        """Whether a schema could be registered, compared with one version or with those that matter."""
        check_subject(subject)
        async with self._places:
            with _in_words_of_registries():
                _, understood = await self._understood(draft, normalize=normalize)
            if against_all:
                versions = self._compatibility.relevant_versions(subject)
            elif version is None and not self._compatibility.live_versions(subject):
                # The first one fits, as registries have it.
                versions = []
            else:
                versions = [self._compatibility.find_version(subject, version)]
            return await self._compatibility.verdict(subject, understood.parsed, versions)

    # Using

    def ids_of(self, subject: str) -> list[SchemaId]:
        """The schemas of a subject, by version; empty if it has none."""
        known = self.state.subjects.get(subject)
        return [] if known is None else [each.schema_id for each in sorted(known.live(), key=lambda each: each.version)]

    async def ready(self, schema_id: SchemaId) -> ParsedSchema:
        """A registered schema, understood."""
        return await self._parsed.get(self.state.record(schema_id).schema_id)

    def size_of(self, schema_id: SchemaId) -> int:
        """The bytes of its text, and of those that it refers to."""
        return self._parsed.size_of(schema_id)

    def latest_with(self, subject: str, metadata: dict[str, str], *, deleted: bool) -> Version:
        """The latest version of a subject whose metadata has these properties."""
        for each in reversed(self.state.versions(subject, deleted=deleted)):
            properties = (self.state.records[each.schema_id].metadata or {}).get("properties") or {}
            if isinstance(properties, dict) and metadata.items() <= properties.items():
                return each
        raise SchemaNotFound(f"Schema not found: subject {quoted(subject)} has no version with this metadata")

    # Settings

    async def delete_version(self, subject: str, version: int | None, *, permanent: bool) -> int:
        latest_counts_deleted = permanent or version is not None
        number = self.state.version(subject, version, deleted=latest_counts_deleted).version
        await self._journal.submit(lambda schemas: schemas.decide_delete_version(subject, number, permanent=permanent))
        return number

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        events = await self._journal.submit(lambda schemas: schemas.decide_delete_subject(subject, permanent=permanent))
        return [version for event in events if isinstance(event, VersionsDeleted) for version in event.versions]

    async def configure(self, subject: str, config: dict[str, Any] | None) -> None:
        """``subject`` is empty for the registry itself."""
        if subject:
            check_subject(subject)
        if config is not None:
            if len(msgspec.json.encode(config)) > MAX_EXTRA_BYTES:
                raise InvalidRequest(f"the configuration has more than {MAX_EXTRA_BYTES} bytes")
            level = config.get("compatibilityLevel")
            if level is not None and level not in COMPATIBILITIES:
                raise InvalidCompatibility(
                    f"Invalid compatibility level. Valid values are {one_of(COMPATIBILITIES).lower()}; "
                    f"not {shown(level)}"
                )
        await self._journal.submit(lambda schemas: schemas.decide_config(subject, config, limits=self._config))

    async def set_mode(self, subject: str, mode: str | None, *, force: bool = False) -> None:
        if subject:
            check_subject(subject)
        if mode is not None and mode not in MODES:
            raise InvalidMode(f"Invalid mode. Valid values are {one_of(MODES)}; not {shown(mode)}")
        await self._journal.submit(lambda schemas: schemas.decide_mode(subject, mode, force=force, limits=self._config))


@contextmanager
def _in_words_of_registries() -> Iterator[None]:
    """Their clients know a schema that cannot be used by how the text begins."""
    try:
        yield
    except InvalidSchema as error:
        raise InvalidSchema(f"Invalid schema: {error}") from error


def _may_be(record: SchemaRecord, other: SchemaRecord, *, normalize: bool) -> bool:
    """Whether another may be the same but for its text. Metadata that is not asked for makes no difference."""
    if record.kind != other.kind or sorted(record.references, key=_by_name) != sorted(other.references, key=_by_name):
        return False
    if record.metadata is None and record.rule_set is None:
        return normalize or other.metadata is not None or other.rule_set is not None
    return normalize and (record.metadata, record.rule_set) == (other.metadata, other.rule_set)


def _by_name(reference: Reference) -> str:
    return reference.name
