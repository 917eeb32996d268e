"""The registry's state: what may be registered and deleted, which versions and ids come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from goqueue.coordination.schema_records import (
    GLOBAL,
    MAX_ID,
    Reference,
    SchemaAdded,
    SchemaRecord,
    SchemasEvent,
    Version,
    VersionAdded,
    VersionsDeleted,
    fingerprint_of,
)
from goqueue.coordination.schemas import Schemas
from goqueue.model.config import SchemasConfig
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    InvalidSchema,
    SchemaIdTaken,
    SchemaIsReferenced,
    SchemaNotFound,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectReadOnly,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)


def record(text: str, *references: Reference, schema_id: int = 0, **extra: Any) -> SchemaRecord:
    referred = [f"fingerprint of {each.schema_id}" for each in references]
    fingerprint = fingerprint_of("AVRO", text, references, referred=referred, **extra)
    return SchemaRecord(schema_id, "AVRO", text, fingerprint, list(references), **extra)


LIMITS = SchemasConfig(max_schemas=100, max_versions=10)


def do(schemas: Schemas, events: list[SchemasEvent]) -> list[SchemasEvent]:
    for event in events:
        schemas.apply(event)
    return events


def register(
    schemas: Schemas, name: str, made: SchemaRecord | str, version: int | None = None, **limits: int
) -> list[SchemasEvent]:
    made = record(made) if isinstance(made, str) else made
    return do(schemas, schemas.decide_register(name, made, version, limits=replace(LIMITS, **limits)))


def delete(schemas: Schemas, name: str, version: int | None = None, *, permanent: bool = False) -> None:
    if version is None:
        do(schemas, schemas.decide_delete_subject(name, permanent=permanent))
    else:
        do(schemas, schemas.decide_delete_version(name, version, permanent=permanent))


def versions(schemas: Schemas, name: str, *, deleted: bool = False) -> list[tuple[int, int]]:
    return [(each.version, each.schema_id) for each in schemas.versions(name, deleted=deleted)]


@pytest.fixture
def schemas() -> Schemas:
    """Subject ``s`` has ``a`` and ``b``, ``t`` has ``b``."""
    made = Schemas()
    for name, text in (("s", "a"), ("s", "b"), ("t", "b")):
        register(made, name, text)
    return made


def test_deciding_changes_nothing() -> None:
    schemas = Schemas()
    events = schemas.decide_register("s", record("a"), limits=SchemasConfig(max_schemas=1, max_versions=1))
    assert events == [SchemaAdded(record("a", schema_id=1)), VersionAdded("s", 1, 1)]
    assert (schemas.records, schemas.subjects) == ({}, {})


def test_a_schema_has_one_id_and_a_version_in_each_subject(schemas: Schemas) -> None:
    assert versions(schemas, "s") == [(1, 1), (2, 2)]
    assert versions(schemas, "t") == [(1, 2)]
    assert list(schemas.used_by(2)) == [("s", 2), ("t", 1)]
    assert register(schemas, "s", "a") == []
    assert schemas.record_by_guid(schemas.records[2].guid.upper()).schema_id == 2


def test_references_metadata_and_rules_make_another_schema(schemas: Schemas) -> None:
    for made in (
        record("a", Reference("r", "s", 1, 1)),
        record("a", Reference("r", "s", 2, 2)),
        record("a", metadata={"properties": {"x": "1"}}),
        record("a", rule_set={"domainRules": []}),
    ):
        assert isinstance(register(schemas, "u", made)[0], SchemaAdded)
    assert versions(schemas, "u") == [(1, 3), (2, 4), (3, 5), (4, 6)]
    assert fingerprint_of("AVRO", "a", metadata={"a": 1, "b": 2}) == fingerprint_of(
        "AVRO", "a", metadata={"b": 2, "a": 1}
    )
    assert fingerprint_of("AVRO", "a") != fingerprint_of("JSON", "a")


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (lambda schemas: schemas.versions("x"), SubjectNotFound),
        (lambda schemas: schemas.version("s", 3), VersionNotFound),
        (lambda schemas: schemas.record(9), SchemaNotFound),
        (lambda schemas: schemas.record_by_guid("x"), SchemaNotFound),
        (lambda schemas: delete(schemas, "x"), SubjectNotFound),
        (lambda schemas: delete(schemas, "s", 3), VersionNotFound),
        (lambda schemas: delete(schemas, "s", 1, permanent=True), VersionNotSoftDeleted),
        (lambda schemas: delete(schemas, "s", permanent=True), SubjectNotSoftDeleted),
        (lambda schemas: register(schemas, "s", "c", max_schemas=2), InvalidRequest),
        (lambda schemas: register(schemas, "s", "c", max_versions=2), InvalidRequest),
        (lambda schemas: register(schemas, "s", record("c", schema_id=7)), SubjectReadOnly),
        (lambda schemas: register(schemas, "s", "c", 7), SubjectReadOnly),
        (lambda schemas: register(schemas, "s", record("c", Reference("r", "x", 1, 1))), InvalidSchema),
        (lambda schemas: register(schemas, "s", record("c", Reference("r", "t", 2, 2))), InvalidSchema),
        (lambda schemas: schemas.decide_mode("s", "IMPORT", force=False, limits=LIMITS), SubjectReadOnly),
        (lambda schemas: schemas.decide_mode(GLOBAL, "IMPORT", force=False, limits=LIMITS), SubjectReadOnly),
    ],
)
def test_what_cannot_be(schemas: Schemas, action: Callable[[Schemas], object], error: type[GoQueueError]) -> None:
    with pytest.raises(error):
        action(schemas)


def test_a_softly_deleted_version_is_found_by_who_asks_for_it(schemas: Schemas) -> None:
    delete(schemas, "s", 2)
    assert versions(schemas, "s") == [(1, 1)]
    assert versions(schemas, "s", deleted=True) == [(1, 1), (2, 2)]
    assert schemas.version("s", None).version == 1
    assert schemas.version("s", None, deleted=True).version == 2
    with pytest.raises(VersionSoftDeleted):
        delete(schemas, "s", 2)
    assert register(schemas, "s", "b") == [VersionAdded("s", 3, 2)]


def test_a_softly_deleted_subject_is_gone_and_its_versions_go_on(schemas: Schemas) -> None:
    delete(schemas, "s")
    assert schemas.names() == ["t"]
    assert schemas.names(deleted=True) == ["s", "t"]
    assert schemas.record(1).text == "a"
    with pytest.raises(SubjectNotFound):
        schemas.versions("s")
    with pytest.raises(SubjectSoftDeleted):
        delete(schemas, "s")
    register(schemas, "s", "a")
    assert versions(schemas, "s") == [(3, 1)]


def test_what_is_deleted_for_good_leaves_its_id_behind(schemas: Schemas) -> None:
    delete(schemas, "s")
    delete(schemas, "s", permanent=True)
    assert schemas.names(deleted=True) == ["t"]
    with pytest.raises(SchemaNotFound):
        schemas.record(1)
    assert schemas.record(2).text == "b"
    register(schemas, "s", "c")
    register(schemas, "s", "a")
    assert versions(schemas, "s") == [(1, 3), (2, 1)]


def test_a_version_that_was_deleted_for_good_is_not_given_again(schemas: Schemas) -> None:
    delete(schemas, "s", 2)
    delete(schemas, "s", 2, permanent=True)
    register(schemas, "s", "c")
    assert versions(schemas, "s", deleted=True) == [(1, 1), (3, 3)]


def test_a_subject_takes_its_settings_with_it(schemas: Schemas) -> None:
    do(schemas, schemas.decide_config("s", {"compatibilityLevel": "FULL"}, limits=LIMITS))
    do(schemas, schemas.decide_mode("s", "READWRITE", force=False, limits=LIMITS))
    delete(schemas, "s", 1)
    assert schemas.own_config("s") == {"compatibilityLevel": "FULL"}
    delete(schemas, "s", 2)
    assert (schemas.own_config("s"), schemas.own_mode("s")) == (None, None)


def test_what_is_referred_to_cannot_be_deleted(schemas: Schemas) -> None:
    register(schemas, "u", record("uses", Reference("r", "t", 1, 2)))
    assert schemas.referencing("t", 1) == [3]
    for version in (1, None):
        with pytest.raises(SchemaIsReferenced):
            delete(schemas, "t", version)
    delete(schemas, "u")
    assert schemas.referencing("t", 1) == []
    delete(schemas, "t")
    # The one that refers to it can still be asked for.
    for version in (1, None):
        with pytest.raises(SchemaIsReferenced):
            delete(schemas, "t", version, permanent=True)
    delete(schemas, "u", permanent=True)
    delete(schemas, "t", permanent=True)


def test_a_schema_is_another_when_what_it_refers_to_is(schemas: Schemas) -> None:
    """The numbers of versions begin again when a subject is deleted for good."""
    register(schemas, "u", record("uses", Reference("r", "t", 1, 2)))
    for name in ("u", "t"):
        for permanent in (False, True):
            delete(schemas, name, permanent=permanent)
    register(schemas, "t", "c")
    with pytest.raises(InvalidSchema, match="was deleted"):
        register(schemas, "u", record("uses", Reference("r", "t", 1, 2)))
    register(schemas, "u", record("uses", Reference("r", "t", 1, 4)))
    assert versions(schemas, "u") == [(1, 5)]
    assert schemas.referencing("t", 1) == [5]


def test_what_nobody_uses_any_more_makes_room_for_others_but_for_its_bytes(schemas: Schemas) -> None:
    for permanent in (False, True):
        delete(schemas, "s", permanent=permanent)
    register(schemas, "s", "c", max_schemas=2)
    for name, text in (("u", "d"), ("u", "a"), ("u", "b")):
        with pytest.raises(InvalidRequest, match=r"schemas\.max_schemas"):
            register(schemas, name, text, max_schemas=2)
    register(schemas, "s", "b", max_schemas=2)
    assert schemas.size > 3 * 500
    with pytest.raises(InvalidRequest, match=r"schemas\.max_bytes allows 2\d\d\d\."):
        register(schemas, "t", "d" * 1_000, max_bytes=schemas.size + 1_000)
    register(schemas, "t", "c", max_bytes=1)


def test_only_so_many_subjects_have_settings(schemas: Schemas) -> None:
    few = replace(LIMITS, max_schemas=2)
    for name in ("x", "y"):
        do(schemas, schemas.decide_config(name, {"normalize": True}, limits=few))
    for decide in (
        lambda: schemas.decide_config("z", {"normalize": True}, limits=few),
        lambda: schemas.decide_mode("z", "READONLY", force=False, limits=few),
    ):
        with pytest.raises(InvalidRequest, match=r"schemas\.max_schemas"):
            decide()
    do(schemas, schemas.decide_config("x", {"normalize": False}, limits=few))
    do(schemas, schemas.decide_config("y", None, limits=few))
    do(schemas, schemas.decide_mode("z", "READONLY", force=False, limits=few))


def test_many_uses_of_a_schema_and_many_subjects_are_no_burden(schemas: Schemas) -> None:
    """What asks whether a schema is used at all looks at one use, not at all of them."""
    looks = 0

    class Counted(dict[int, Version]):
        def __getitem__(self, key: int) -> Version:
            nonlocal looks
            looks += 1
            return super().__getitem__(key)

    register(schemas, "u", record("uses", Reference("r", "t", 1, 2)))
    for number in range(1_000):
        schemas.apply(VersionAdded(f"many-{number}", 1, 3))
        schemas.subjects[f"many-{number}"].versions = Counted(schemas.subjects[f"many-{number}"].versions)
    assert schemas.referencing("t", 1) == [3]
    assert looks <= 1
    assert schemas.names() is schemas.names()


def test_settings_come_from_the_subject_its_context_or_all(schemas: Schemas) -> None:
    assert schemas.config("s") == {"compatibilityLevel": "BACKWARD"}
    do(schemas, schemas.decide_config(GLOBAL, {"compatibilityLevel": "FULL", "normalize": True}, limits=LIMITS))
    do(schemas, schemas.decide_config(":.c:", {"compatibilityLevel": "NONE"}, limits=LIMITS))
    do(schemas, schemas.decide_config(":.c:s", {"alias": "x"}, limits=LIMITS))
    assert schemas.config("s") == {"compatibilityLevel": "FULL", "normalize": True}
    assert schemas.config(":.c:s") == {"compatibilityLevel": "NONE", "normalize": True, "alias": "x"}
    assert schemas.compatibility(":.d:s") == "FULL"
    do(schemas, schemas.decide_config(GLOBAL, None, limits=LIMITS))
    assert schemas.compatibility("s") == "BACKWARD"


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE"])
def test_nothing_changes_in_a_read_only_subject(schemas: Schemas, mode: str) -> None:
    do(schemas, schemas.decide_mode("s", mode, force=False, limits=LIMITS))
    for action in (lambda: register(schemas, "s", "c"), lambda: delete(schemas, "s"), lambda: delete(schemas, "s", 1)):
        with pytest.raises(SubjectReadOnly):
            action()
    register(schemas, "t", "c")


def test_a_mode_for_all_holds_unless_the_subject_has_one_and_may_override_that(schemas: Schemas) -> None:
    do(schemas, schemas.decide_mode("s", "READWRITE", force=False, limits=LIMITS))
    do(schemas, schemas.decide_mode(GLOBAL, "READONLY", force=False, limits=LIMITS))
    assert (schemas.mode("s"), schemas.mode("t")) == ("READWRITE", "READONLY")
    do(schemas, schemas.decide_mode(GLOBAL, "READONLY_OVERRIDE", force=False, limits=LIMITS))
    assert (schemas.mode("s"), schemas.own_mode("s")) == ("READONLY_OVERRIDE", "READWRITE")


def test_ids_and_versions_are_imported(schemas: Schemas) -> None:
    do(schemas, schemas.decide_mode("i", "IMPORT", force=False, limits=LIMITS))
    register(schemas, "i", record("new", schema_id=50), 7)
    assert versions(schemas, "i") == [(7, 50)]
    assert register(schemas, "i", record("new", schema_id=50), 7) == []
    for made, version in ((record("other", schema_id=50), None), (record("new", schema_id=51), None),
                          (record("other", schema_id=51), 7)):  # fmt: skip
        with pytest.raises(SchemaIdTaken):
            register(schemas, "i", made, version)
    with pytest.raises(SubjectReadOnly):
        register(schemas, "i", "other")
    register(schemas, "s", "next")
    assert versions(schemas, "s")[-1] == (3, 51)
    register(schemas, "i", record("last", schema_id=MAX_ID))
    with pytest.raises(InvalidRequest):
        register(schemas, "s", "too many")


def test_subjects_have_contexts(schemas: Schemas) -> None:
    for name in (":.c:s", ":.c:t", ":odd", ":.alone", "a:.b:c"):
        register(schemas, name, "a")
    assert schemas.contexts() == [".", ".c"]


# Whatever happens

FEW = SchemasConfig(max_schemas=15, max_versions=6)
NAMES = ("s", "t", ":.c:s")
TEXTS = ("a", "b", "c", "d")


def restored(schemas: Schemas) -> Schemas:
    again = Schemas()
    for part in schemas.parts():
        payload = schemas.dump(part)
        assert payload is not None
        again.restore(part, payload)
    return again


def shown(schemas: Schemas) -> object:
    parts = {part: msgspec.json.decode(schemas.dump(part) or b"null") for part in schemas.parts()}
    uses = {each: list(schemas.used_by(each, deleted=True)) for each in schemas.records}
    refers = {(name, number): schemas.referencing(name, number, deleted=True) for name in NAMES for number in range(9)}
    return (
        parts,
        schemas.names(),
        schemas.names(deleted=True),
        schemas.size,
        uses,
        refers,
        schemas.last_id,
        {each.guid: schemas._guids[each.guid] for each in schemas.records.values()},
    )


class Registry(RuleBasedStateMachine):
    """Each step is decided and applied; the same events, and the same parts, give the same state."""

    def __init__(self) -> None:
        super().__init__()
        self.schemas = Schemas()
        self.replayed = Schemas()
        self.ids: dict[int, str] = {}
        self.versions: dict[str, int] = {}

    def _do(self, decide: Callable[[], list[SchemasEvent]]) -> None:
        before = shown(self.schemas)
        try:
            events = decide()
        except GoQueueError:
            assert shown(self.schemas) == before
            return
        assert shown(self.schemas) == before
        for event in msgspec.json.decode(msgspec.json.encode(events), type=list[SchemasEvent]):
            part = self.schemas.part_of(event)
            others = {each: self.schemas.dump(each) for each in self.schemas.parts() if each != part}
            self.schemas.apply(event)
            self.replayed.apply(event)
            assert others == {each: self.schemas.dump(each) for each in others}, "an event changes one part"
            self._note(event)

    def _note(self, event: SchemasEvent) -> None:
        if isinstance(event, SchemaAdded):
            assert event.record.schema_id not in self.ids, "an id stands for one schema"
            assert event.record.fingerprint not in self.ids.values(), "a schema has one id"
            self.ids[event.record.schema_id] = event.record.fingerprint
        elif isinstance(event, VersionAdded):
            assert event.version > self.versions.get(event.subject, 0) or self.schemas.mode(event.subject) == "IMPORT"
            self.versions[event.subject] = max(event.version, self.versions.get(event.subject, 0))
        elif isinstance(event, VersionsDeleted) and event.subject not in self.schemas.subjects:
            self.versions.pop(event.subject)

    @rule(
        name=st.sampled_from(NAMES),
        text=st.sampled_from(TEXTS),
        to=st.none() | st.sampled_from(NAMES),
        at=st.integers(1, 3),
    )
    def register(self, name: str, text: str, to: str | None, at: int) -> None:
        known = self.schemas.subjects.get(to or "")
        means = known.versions[at].schema_id if known is not None and at in known.versions else 1
        references = () if to is None else (Reference("r", to, at, means),)
        made = record(text, *references)
        self._do(lambda: self.schemas.decide_register(name, made, limits=FEW))

    @rule(
        name=st.sampled_from(NAMES),
        text=st.sampled_from(TEXTS),
        schema_id=st.integers(1, 30),
        at=st.none() | st.integers(1, 9),
    )
    def import_one(self, name: str, text: str, schema_id: int, at: int | None) -> None:
        made = record(text, schema_id=schema_id)
        self._do(lambda: self.schemas.decide_register(name, made, at, limits=FEW))

    @rule(name=st.sampled_from(NAMES), at=st.none() | st.integers(1, 6), permanent=st.booleans())
    def delete_version(self, name: str, at: int | None, permanent: bool) -> None:
        self._do(lambda: self.schemas.decide_delete_version(name, at, permanent=permanent))

    @rule(name=st.sampled_from(NAMES), permanent=st.booleans())
    def delete_subject(self, name: str, permanent: bool) -> None:
        self._do(lambda: self.schemas.decide_delete_subject(name, permanent=permanent))

    @rule(name=st.sampled_from((GLOBAL, *NAMES)), level=st.none() | st.sampled_from(["FULL", "NONE"]))
    def configure(self, name: str, level: str | None) -> None:
        self._do(
            lambda: self.schemas.decide_config(
                name, None if level is None else {"compatibilityLevel": level}, limits=LIMITS
            )
        )

    @rule(
        name=st.sampled_from((GLOBAL, *NAMES)),
        mode=st.none() | st.sampled_from(["READONLY", "IMPORT", "READWRITE"]),
        force=st.booleans(),
    )
    def set_mode(self, name: str, mode: str | None, force: bool) -> None:
        self._do(lambda: self.schemas.decide_mode(name, mode, force=force, limits=LIMITS))

    @rule()
    def restart(self) -> None:
        self.replayed = restored(self.schemas)

    @invariant()
    def what_is_replayed_is_the_same(self) -> None:
        assert shown(self.replayed) == shown(self.schemas) == shown(restored(self.schemas))

    @invariant()
    def names_are_those_of_the_subjects(self) -> None:
        subjects = self.schemas.subjects
        assert self.schemas.names(deleted=True) == sorted(subjects)
        assert self.schemas.names() == sorted(name for name, each in subjects.items() if each.live())
        for schema_id in self.schemas.records:
            for deleted in (False, True):
                assert self.schemas.is_used(schema_id, deleted=deleted) == any(
                    each.schema_id == schema_id and (deleted or not each.deleted)
                    for subject in subjects.values()
                    for each in subject.versions.values()
                )

    @invariant()
    def what_is_referred_to_is_there(self) -> None:
        for schema_id, made in self.schemas.records.items():
            for deleted in (False, True):
                if any(True for _ in self.schemas.used_by(schema_id, deleted=deleted)):
                    for each in made.references:
                        found = self.schemas.version(each.subject, each.version, deleted=deleted)
                        assert found.schema_id == each.schema_id


TestRegistry = Registry.TestCase
TestRegistry.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
