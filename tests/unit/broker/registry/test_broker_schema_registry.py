"""The registry of a running broker: restarts, races, and what it takes to compare large schemas."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from goqueue.broker.broker import Broker
from goqueue.broker.operations import IN_PROCESS
from goqueue.broker.registry import compatibility_check
from goqueue.broker.registry.parsed_schemas import ParsedSchemas
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.broker.registry.schema_registry import SchemaRegistry
from goqueue.coordination.schema_records import Reference
from goqueue.model.config import Config, SchemasConfig, StorageConfig, TraceConfig
from goqueue.model.errors import (
    GoQueueError,
    IncompatibleSchema,
    InvalidRequest,
    InvalidSchema,
    InvalidSubject,
    SchemaNotFound,
    ShuttingDown,
    StorageFailed,
    SubjectReadOnly,
    VersionNotFound,
)
from goqueue.schemas.avro.avro_schema import AvroSchema
from goqueue.schemas.base import ParsedSchema, References, SchemaKind
from goqueue.schemas.parsing import parse_schema


def schema(*fields: str, name: str = "R", doc: str = "") -> str:
    """Each field is ``a`` or, with a default, ``a=``; the type of all is int."""
    made = [
        {"name": each.rstrip("="), "type": "int", **({"default": 0} if each.endswith("=") else {})} for each in fields
    ]
    return json.dumps({"type": "record", "name": name, "doc": doc, "fields": made})


def draft(*fields: str, **more: Any) -> SchemaDraft:
    return SchemaDraft(schema(*fields, **more))


@asynccontextmanager
async def running(path: Path, **schemas: int) -> AsyncIterator[Broker]:
    storage = StorageConfig(path=str(path), min_free_bytes=0)
    config = Config(storage=storage, schemas=replace(SchemasConfig(), **schemas), trace=TraceConfig(exporters=""))
    broker = Broker(config)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


def described(registry: SchemaRegistry) -> object:
    state = registry.state
    return state.records, {name: each.versions for name, each in state.subjects.items()}, state.configs


async def _registered(registry: SchemaRegistry, count: int, doc: str) -> None:
    await registry.configure("s", {"compatibilityLevel": "BACKWARD_TRANSITIVE"})
    for number in range(count):
        await registry.register("s", draft("a", f"b{number}=", doc=doc))


def test_a_schema_is_compared_with_no_more_than_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        monkeypatch.setattr(compatibility_check, "MOST_COMPARED", 1_000)
        async with running(tmp_path) as broker:
            # One version is always compared with, however large it is.
            await _registered(broker.schemas, 2, "x" * 1_000)
            with pytest.raises(InvalidSchema, match=r"2 versions with 2\d{3} characters in all to compare with"):
                await broker.schemas.register("s", draft("a", "c="))
            await broker.schemas.configure("s", {"compatibilityLevel": "BACKWARD"})
            await broker.schemas.register("s", draft("a", "c="))

    asyncio.run(use())


def test_many_versions_are_compared_in_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is a hand-over to a thread, which costs more than comparing two small schemas."""

    async def use() -> None:
        async with running(tmp_path) as broker:
            await _registered(broker.schemas, 40, "")
            steps = 0
            in_thread = ParsedSchemas.in_thread

            async def counted(self: ParsedSchemas, work: Any, *arguments: Any, **named: Any) -> Any:
                nonlocal steps
                steps += work is compatibility_check._all_differences
                return await in_thread(self, work, *arguments, **named)

            monkeypatch.setattr(ParsedSchemas, "in_thread", counted)
            await broker.schemas.register("s", draft("a", "c="))
            assert 0 < steps <= 3

    asyncio.run(use())


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    large = schema("a", doc="x" * 1_000_000)

    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.register("s", SchemaDraft(large, metadata={"properties": {"a": "ü"}}))
            await registry.configure("s", {"compatibilityLevel": "FULL", "alias": "x"})
            await registry.register("t", draft("a"))
            await registry.delete_subject("t", permanent=False)
            before = described(registry)
        async with running(tmp_path) as broker:
            assert described(broker.schemas) == before
            assert (await broker.schemas.ready(1)).kind == "AVRO"
            await broker._schema_journal.snapshot()
            await broker.schemas.register("u", draft("b"))
            before = described(broker.schemas)
        async with running(tmp_path) as broker:
            assert described(broker.schemas) == before
            assert broker.schemas.state.record(1).text == large
            assert (await broker.schemas.register("new", draft("c"))).record.schema_id == 4

    asyncio.run(use())


def test_those_who_race_fit_to_one_another(tmp_path: Path) -> None:
    """Each adds a field of its own to the first schema and no default: only one can be next."""

    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.configure("s", {"compatibilityLevel": "FORWARD"})
            await registry.register("s", draft("a"))
            outcomes = await asyncio.gather(
                *(registry.register("s", draft("a", f"f{number}")) for number in range(8)), return_exceptions=True
            )
            winners = [each for each in outcomes if not isinstance(each, BaseException)]
            assert len(winners) == 1
            assert {type(each) for each in outcomes if isinstance(each, BaseException)} == {IncompatibleSchema}
            assert [each.version for each in registry.state.versions("s")] == [1, 2]

    asyncio.run(use())


def test_a_change_of_compatibility_meanwhile_counts(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.configure("s", {"compatibilityLevel": "NONE"})
            await registry.register("s", draft("a"))
            registering = asyncio.create_task(registry.register("s", draft("b")))
            await asyncio.sleep(0)
            await registry.configure("s", {"compatibilityLevel": "FULL"})
            with pytest.raises(IncompatibleSchema):
                await registering

    asyncio.run(use())


def test_what_is_referred_to_cannot_go_meanwhile(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.register("s", draft("a"))
            using = SchemaDraft('{"type":"array","items":"R"}', references=[Reference("R", "s", 1)])
            registering = asyncio.create_task(registry.register("u", using))
            await asyncio.sleep(0)
            await registry.delete_subject("s", permanent=False)
            with pytest.raises(InvalidSchema):
                await registering
            assert registry.state.names() == []

    asyncio.run(use())


def test_the_same_schema_at_once_is_registered_once(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            made = await asyncio.gather(*(broker.schemas.register("s", draft("a")) for _ in range(10)))
            assert {(each.record.schema_id, each.version.version) for each in made} == {(1, 1)}

    asyncio.run(use())


@pytest.mark.parametrize(
    ("level", "fits", "refused"),
    [
        ("BACKWARD", ["a", "d"], []),
        ("BACKWARD_TRANSITIVE", ["a", "c="], ["a", "c"]),
        ("FORWARD", ["a", "c", "d"], ["a"]),
        ("FULL", ["a", "c", "d="], ["a", "c", "d"]),
        ("FULL_TRANSITIVE", ["a", "c=", "d="], ["a", "c"]),
        ("NONE", ["z"], []),
    ],
)
def test_each_level_compares_with_the_versions_that_it_names(
    tmp_path: Path, level: str, fits: list[str], refused: list[str]
) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.configure("s", {"compatibilityLevel": "NONE"})
            first, second = (["a"], ["a", "c="]) if "FULL_" in level else (["a"], ["a", "c"])
            if level == "BACKWARD":
                first, second = ["a"], ["a", "d"]
            for fields in (first, second):
                await registry.register("s", draft(*fields))
            await registry.configure("s", {"compatibilityLevel": level})
            if refused and refused != second:
                with pytest.raises(IncompatibleSchema):
                    await registry.register("s", draft(*refused, doc="other"))
            elif refused:
                verdict = await registry.verdict("s", draft(*refused), None, against_all=True, normalize=False)
                assert list(verdict.problems) == [1]
            made = await registry.register("s", draft(*fits, doc="new"))
            assert made.version.version == 3

    asyncio.run(use())


def test_another_kind_of_schema_fits_nothing_but_where_nothing_is_asked(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.register("s", draft("a"))
            other = SchemaDraft('{"type":"object"}', "JSON")
            with pytest.raises(IncompatibleSchema, match="SCHEMA_TYPE_CHANGED"):
                await registry.register("s", other)
            await registry.configure("s", {"compatibilityLevel": "NONE"})
            verdict = await registry.verdict("s", other, 1, against_all=False, normalize=False)
            assert verdict.is_compatible
            assert (await registry.register("s", other)).version.version == 2

    asyncio.run(use())


def test_a_reference_to_the_latest_means_the_latest_of_now(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.register("s", draft("a"))
            using = SchemaDraft('{"type":"array","items":"R"}', references=[Reference("R", "s", 0)])
            made = await registry.register("u", using)
            await registry.register("s", draft("a", "b="))
            assert made.record.references == [Reference("R", "s", 1, 1)]
            assert (await registry.ready(made.record.schema_id)).validator().check([b"\x02\x00\x00"]) == [None]

    asyncio.run(use())


def test_references_lead_through_so_many_schemas_only(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path, parsed_bytes=10_000) as broker:
            registry = broker.schemas
            await registry.register("s0", draft("a", name="R0"))
            number = 0
            with pytest.raises(InvalidSchema, match="more than 100"):
                while number < 200:
                    kind = {"type": "record", "name": f"R{number + 1}", "fields": [{"name": "r", "type": f"R{number}"}]}
                    using = SchemaDraft(json.dumps(kind), references=[Reference("r", f"s{number}", 1)])
                    number += 1
                    await registry.register(f"s{number}", using)
            assert number == 100
        async with running(tmp_path, parsed_bytes=10_000) as broker:
            assert (await broker.schemas.ready(number)).validator().check([b"\x00"]) == [None]

    asyncio.run(use())


@pytest.mark.parametrize("name", ["", "x" * 1_001, "a\nb", "a\x00", "\ud800"])
def test_subjects_are_printable_and_not_too_long(tmp_path: Path, name: str) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            with pytest.raises(InvalidSubject):
                await broker.schemas.register(name, draft("a"))

    asyncio.run(use())


def test_the_limits_hold(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path, max_schemas=2, max_versions=1) as broker:
            registry = broker.schemas
            await registry.configure("", {"compatibilityLevel": "NONE"})
            await registry.register("s", draft("a"))
            with pytest.raises(InvalidRequest, match=r"schemas\.max_versions"):
                await registry.register("s", draft("b"))
            await registry.register("t", draft("b"))
            with pytest.raises(InvalidRequest, match=r"schemas\.max_schemas"):
                await registry.register("u", draft("c"))
            many = [Reference(f"r{number}", "s", 1) for number in range(1_001)]
            with pytest.raises(InvalidSchema):
                await registry.register("s", SchemaDraft("int", references=many))
            with pytest.raises(InvalidSchema):
                await registry.register("s", SchemaDraft("int", metadata={"x": "y" * 300_000}))

    asyncio.run(use())


def test_only_so_many_schemas_are_kept_ready_and_the_others_are_read_again(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path, parsed_bytes=10_000) as broker:
            registry = broker.schemas
            for number in range(20):
                await registry.register(f"s{number}", draft(f"f{number}"))
            for schema_id in range(1, 21):
                assert (await registry.ready(schema_id)).kind == "AVRO"
            assert len(registry._parsed._kept) == 10
            # What a schema refers to is held by it, and counts.
            referring = SchemaDraft('{"type":"array","items":"R"}', references=[Reference("R", "large", 1)])
            await registry.register("large", draft("a", doc="x" * 7_500))
            for number in range(3):
                name = f"u{number}"
                await registry.register(name, replace(referring, metadata={"properties": {"n": name}}))
                await registry.ready(registry.ids_of(name)[0])
            assert len(registry._parsed._kept) == 1
            with pytest.raises(SchemaNotFound):
                await registry.ready(30)

    asyncio.run(use())


def array_of(name: str, subject: str) -> SchemaDraft:
    return SchemaDraft(json.dumps({"type": "array", "items": name}), references=[Reference(name, subject, 1)])


async def delete_for_good(registry: SchemaRegistry, *subjects: str) -> None:
    for subject in subjects:
        for permanent in (False, True):
            await registry.delete_subject(subject, permanent=permanent)


def test_an_id_means_the_same_when_what_it_refers_to_was_deleted_and_comes_as_another(tmp_path: Path) -> None:
    """The numbers of versions begin again."""

    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.register("s", draft("a"))
            first = await registry.register("u", array_of("R", "s"))
            guid = first.record.guid
            await registry.ready(first.record.schema_id)
            await delete_for_good(registry, "u", "s")
            await registry.register("s", draft("a", "b"))
            second = await registry.register("u", array_of("R", "s"))
            assert second.record.schema_id not in (first.record.schema_id, 0)
            assert second.record.guid != guid
            parsed = await registry.ready(second.record.schema_id)
            assert parsed.validator().check([b"\x02\x00\x00", b"\x02\x00\x00\x00"])[1] is None
            await delete_for_good(registry, "u", "s")
            await registry.register("s", draft("a"))
            assert (await registry.register("u", array_of("R", "s"))).record.schema_id == first.record.schema_id
        async with running(tmp_path) as broker:
            parsed = await broker.schemas.ready(first.record.schema_id)
            assert parsed.validator().check([b"\x02\x00\x00"]) == [None]

    asyncio.run(use())


def test_a_guid_is_the_same_in_another_registry_where_ids_are_others(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path / "a") as one, running(tmp_path / "b") as other:
            await other.schemas.register("z", draft("z"))
            for broker in (one, other):
                await broker.schemas.register("s", draft("a"))
            mine, theirs = [await broker.schemas.register("u", array_of("R", "s")) for broker in (one, other)]
            assert mine.record.schema_id != theirs.record.schema_id
            assert mine.record.guid == theirs.record.guid

    asyncio.run(use())


def meanwhile(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """Let something happen after the next schema was compared, before it is registered."""
    compatibility = registry._compatibility
    judge = compatibility.verdict

    async def judged(*arguments: Any) -> Any:
        verdict = await judge(*arguments)
        monkeypatch.setattr(compatibility, "verdict", judge)
        await happens()
        return verdict

    monkeypatch.setattr(compatibility, "verdict", judged)


def test_a_version_that_was_replaced_by_another_of_its_number_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.register("s", draft("a"))

            async def replace_it() -> None:
                await delete_for_good(registry, "s")
                await registry.register("s", draft("z", name="Other"))

            meanwhile(registry, monkeypatch, replace_it)
            with pytest.raises(IncompatibleSchema):
                await registry.register("s", draft("a", "b="))
            assert [each.version for each in registry.state.versions("s")] == [1]

    asyncio.run(use())


def test_a_reference_that_means_another_schema_meanwhile_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.register("s", draft("a"))

            async def replace_it() -> None:
                await delete_for_good(registry, "s")
                await registry.register("s", draft("a", "b"))

            meanwhile(registry, monkeypatch, replace_it)
            made = await registry.register("u", array_of("R", "s"))
            assert made.record.references == [Reference("R", "s", 1, 2)]
            parsed = await registry.ready(made.record.schema_id)
            assert parsed.validator().check([b"\x02\x00\x00\x00"]) == [None]

    asyncio.run(use())


def test_two_references_cannot_have_one_name(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            await broker.schemas.register("s", draft("a"))
            twice = replace(array_of("R", "s"), references=[Reference("R", "s", 1), Reference("R", "s", 1)])
            with pytest.raises(InvalidSchema, match="two references have the name 'R'"):
                await broker.schemas.register("u", twice)

    asyncio.run(use())


def test_a_schema_is_read_once_however_many_ask_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    most = busy = 0

    def parse(kind: SchemaKind, text: str, references: References, *, is_registered: bool = False) -> ParsedSchema:
        nonlocal most, busy
        busy += 1
        most = max(most, busy)
        reads.append(text)
        try:
            return parse_schema(kind, text, references, is_registered=is_registered)
        finally:
            busy -= 1

    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await asyncio.gather(*(registry.register("s", draft("a")) for _ in range(3)))
            assert len(reads) == 1
            reads.clear()
            await asyncio.gather(*(registry.ready(1) for _ in range(10)))
            await registry.ready(1)
            assert len(reads) == 1
            reads.clear()
            fields = [f"f{number}" for number in range(500)]
            await asyncio.gather(*(registry.register(f"t{number}", draft(*fields, str(number))) for number in "abcdef"))
            assert len(reads) == 6
            assert most <= 2

    monkeypatch.setattr("goqueue.broker.registry.parsed_schemas.parse_schema", parse)
    asyncio.run(use())


def test_what_many_refer_to_is_read_once_though_it_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level refers to both schemas of the one below: there are more ways down than can be gone."""
    reads = 0

    def parse(kind: SchemaKind, text: str, references: References, *, is_registered: bool = False) -> ParsedSchema:
        nonlocal reads
        reads += 1
        return parse_schema(kind, text, references, is_registered=is_registered)

    async def use() -> None:
        async with running(tmp_path, parsed_bytes=0) as broker:
            registry = broker.schemas
            levels = 12
            for level in range(levels):
                for side in "ab":
                    below = [f"{each}{level - 1}" for each in "ab"] if level else []
                    types = [{"name": each, "type": each} for each in below]
                    text = json.dumps({"type": "record", "name": f"{side}{level}", "fields": types})
                    references = [Reference(each, each, 1) for each in below]
                    await registry.register(f"{side}{level}", SchemaDraft(text, references=references))
            monkeypatch.setattr("goqueue.broker.registry.parsed_schemas.parse_schema", parse)
            await registry.ready(registry.ids_of(f"a{levels - 1}")[0])
            assert reads <= 2 * levels

    asyncio.run(use())


def test_only_so_many_schemas_are_looked_at_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            most = under_way = 0
            understood = registry._understood

            async def counted(*arguments: Any, **named: Any) -> Any:
                nonlocal most, under_way
                under_way += 1
                most = max(most, under_way)
                try:
                    return await understood(*arguments, **named)
                finally:
                    under_way -= 1

            monkeypatch.setattr(registry, "_understood", counted)
            await asyncio.gather(*(registry.register(f"s{number}", draft(f"f{number}")) for number in range(12)))
            assert most == 4
            assert len(registry.state.records) == 12

    asyncio.run(use())


def test_schemas_are_written_in_their_canonical_form_by_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[str] = []
    for name in ("canonical", "normalized"):
        written = getattr(AvroSchema, name)

        def write(schema: AvroSchema, name: str = name, written: Any = written) -> Any:
            if threading.current_thread() is threading.main_thread():
                on_loop.append(name)
            return written(schema)

        monkeypatch.setattr(AvroSchema, name, write)

    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            for number in range(3):
                made = draft("a", doc=str(number))
                await registry.register("s", replace(made, metadata={"properties": {"n": "1"}}))
                await registry.register("s", made)
                await registry.find("s", made, normalize=True, deleted=False)
            assert on_loop == []

    asyncio.run(use())


def test_a_subject_may_ask_for_normalized_schemas(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.configure("s", {"normalize": True})
            made = await registry.register("s", SchemaDraft('{"type": "string"}'))
            assert made.record.text == '"string"'
            found = await registry.find("s", SchemaDraft('{"type": "string"}'), normalize=False, deleted=False)
            assert found.version == made.version

    asyncio.run(use())


def test_nothing_changes_in_a_broker_that_stops(tmp_path: Path) -> None:
    def threads() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name.startswith("goqueue-registry")}

    async def use() -> None:
        # Brokers of other tests may live in this process.
        before = threads()
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.register("s", draft("a"))
            assert threads() > before
            broker.stop_accepting()
            operations = broker.operations.schemas
            for change in (
                partial(operations.register, IN_PROCESS, "s", draft("a", "b=")),
                partial(operations.configure, IN_PROCESS, "s", {}),
                partial(operations.set_mode, IN_PROCESS, "s", "READONLY"),
                partial(operations.delete_version, IN_PROCESS, "s", 1, permanent=False),
                partial(operations.delete_subject, IN_PROCESS, "s", permanent=False),
            ):
                with pytest.raises(ShuttingDown):
                    await change()
        assert threads() <= before
        with pytest.raises(ShuttingDown):
            await registry.find("s", draft("a"), normalize=False, deleted=False)

    asyncio.run(use())


def test_a_configuration_is_not_too_large(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path, max_schemas=1) as broker:
            registry = broker.schemas
            with pytest.raises(InvalidRequest, match="bytes"):
                await registry.configure("s", {"defaultMetadata": {"a": "x" * 150_000}, "alias": "y" * 150_000})
            await registry.configure("s", {"alias": "x"})
            with pytest.raises(InvalidRequest, match=r"schemas\.max_schemas"):
                await registry.configure("t", {"alias": "x"})

    asyncio.run(use())


def test_what_is_registered_can_be_looked_up_when_the_disk_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.register("s", draft("a"))
            failures = {broker._schema_journal.log: "broken"}
            monkeypatch.setattr(broker._commits, "_carry_out", lambda _: failures)
            with pytest.raises(StorageFailed):
                await registry.register("s", draft("a", "b="))
            with pytest.raises(SchemaNotFound):
                await registry.record(2)
            assert (await registry.record(1)).schema_id == 1
            assert (await registry.version("s", 1)).record.schema_id == 1

    asyncio.run(use())


def test_an_imported_schema_keeps_its_place(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.set_mode("s", "IMPORT")
            made = await registry.register("s", replace(draft("a"), schema_id=77, version=5))
            assert (made.record.schema_id, made.version.version) == (77, 5)
            # Nothing is compared: what is imported has been in use.
            made = await registry.register("s", replace(draft("b"), schema_id=78, version=6))
            again = await registry.register("s", replace(draft("a"), schema_id=77, version=7))
            assert (again.record.schema_id, again.version.version) == (77, 7)
            with pytest.raises(SubjectReadOnly):
                await registry.register("s", draft("c"))

    asyncio.run(use())


def test_deleting_the_latest_deletes_the_latest_that_is_in_use(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            for fields in (("a",), ("a", "b="), ("a", "b=", "c=")):
                await registry.register("s", draft(*fields))
            assert [await registry.delete_version("s", None, permanent=False) for _ in range(2)] == [3, 2]
            assert await registry.delete_version("s", None, permanent=True) == 3
            with pytest.raises(VersionNotFound):
                await registry.delete_version("s", 3, permanent=True)

    asyncio.run(use())


def _forget_parsed(registry: SchemaRegistry) -> None:
    for schema_id in list(registry._parsed._kept):
        registry._parsed._kept.drop(schema_id)


def test_large_schemas_do_not_hold_up_others(tmp_path: Path) -> None:
    """Reading and comparing them is left to threads."""
    fields = [f"f{number}=" for number in range(8_000)]

    async def use() -> None:
        async with running(tmp_path) as broker:
            registry = broker.schemas
            await registry.configure("s", {"compatibilityLevel": "FULL_TRANSITIVE"})
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count())
            _forget_parsed(registry)
            await registry.register("s", draft(*fields))
            _forget_parsed(registry)
            turns = 0
            await registry.register("s", draft(*fields, "more="))
            assert turns > 10
            counting.cancel()

    asyncio.run(use())


def test_nothing_is_registered_that_the_disk_does_not_take(tmp_path: Path) -> None:
    async def use() -> None:
        async with running(tmp_path) as broker:
            await broker.schemas.register("s", draft("a"))
            log = broker._schema_journal.log

            def fail(*_: object) -> None:
                raise OSError(28, "No space left on device")

            log.append = fail  # type: ignore[method-assign, assignment]
            with pytest.raises((GoQueueError, OSError)):
                await broker.schemas.register("s", draft("a", "b="))
            assert [each.version for each in broker.schemas.state.versions("s")] == [1]

    asyncio.run(use())


def test_a_schema_that_was_registered_when_bounds_were_wider_still_checks_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({"type": "string", "pattern": "(ab|cd)*e"})

    async def use() -> None:
        async with running(tmp_path) as broker:
            registered = await broker.schemas.register("s", SchemaDraft(text, "JSON"))
        monkeypatch.setattr("goqueue.schemas.json.json_bounds.MOST_PATTERN_BYTES", 5)
        async with running(tmp_path) as broker:
            parsed = await broker.schemas._parsed.get(registered.record.schema_id)
            assert parsed.validator().check([b'"abe"', b'"x"'])[0] is None
            with pytest.raises(InvalidSchema, match="have 9 bytes in all; 5 are allowed"):
                await broker.schemas.register("another", SchemaDraft(text.replace("string", "number"), "JSON"))

    asyncio.run(use())
