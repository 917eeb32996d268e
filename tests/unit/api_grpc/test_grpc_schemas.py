from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import grpc
import pytest
from api_grpc_calls import Serve, Served, error_of
from doubles.async_tests import until

from goqueue.wire.proto import goqueue_pb2 as pb

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
WITH_TOTAL = {**ORDER, "fields": [*ORDER["fields"], {"name": "total", "type": "int"}]}


def avro(schema: object, **references: tuple[str, int]) -> pb.Schema:
    listed = [pb.SchemaReference(name=name, subject=at[0], version=at[1]) for name, at in references.items()]
    return pb.Schema(text=json.dumps(schema), references=listed)


async def register(served: Served, subject: str, schema: object) -> pb.SchemaVersion:
    return await served.schemas.RegisterSchema(pb.RegisterSchemaRequest(subject=subject, schema=avro(schema)))


async def test_a_schema_is_registered_once_and_found_by_id_by_version_and_by_itself(serve: Serve) -> None:
    async with serve() as served:
        first = await register(served, "t-value", ORDER)
        second = await register(served, "t-value", WITH_NOTE)
        assert await register(served, "t-value", ORDER) == first
        assert (first.version, second.version, second.schema.kind) == (1, 2, "AVRO")
        assert first.schema.id != second.schema.id
        assert await served.schemas.GetSchema(pb.GetSchemaRequest(id=first.schema.id)) == first.schema
        latest = await served.schemas.GetSchemaVersion(pb.GetSchemaVersionRequest(subject="t-value"))
        pinned = await served.schemas.GetSchemaVersion(pb.GetSchemaVersionRequest(subject="t-value", version=1))
        found = await served.schemas.FindSchema(pb.FindSchemaRequest(subject="t-value", schema=avro(ORDER)))
        assert (latest, pinned, found) == (second, first, first)
        versions = await served.schemas.ListSchemaVersions(pb.ListSchemaVersionsRequest(subject="t-value"))
        assert list(versions.versions) == [1, 2]


async def test_a_schema_refers_to_others(serve: Serve) -> None:
    async with serve() as served:
        await register(served, "order", ORDER)
        schema = avro({"type": "array", "items": "Order"}, Order=("order", 1))
        made = await served.schemas.RegisterSchema(pb.RegisterSchemaRequest(subject="orders", schema=schema))
        again = await served.schemas.GetSchema(pb.GetSchemaRequest(id=made.schema.id))
        assert [(each.name, each.subject, each.version) for each in again.references] == [("Order", "order", 1)]


async def test_what_does_not_fit_is_refused_with_the_rule_and_the_place(serve: Serve) -> None:
    async with serve() as served:
        await register(served, "t-value", ORDER)
        error = await error_of(register(served, "t-value", WITH_TOTAL))
        assert (error.status, error.code) == (grpc.StatusCode.FAILED_PRECONDITION, "incompatible_schema")
        assert "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1" in error.details
        request = pb.CheckCompatibilityRequest(subject="t-value", schema=avro(WITH_TOTAL))
        verdict = await served.schemas.CheckCompatibility(request)
        assert not verdict.compatible
        assert [(each.version, each.rule, each.path) for each in verdict.problems] == [
            (1, "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")
        ]
        request = pb.CheckCompatibilityRequest(subject="t-value", schema=avro(WITH_NOTE), version=0)
        assert (await served.schemas.CheckCompatibility(request)).compatible


async def test_very_many_and_very_long_reasons_still_fit_into_an_answer(serve: Serve) -> None:
    def wide(kind: str) -> pb.Schema:
        properties = {"ä" * 1_500 + str(number): {"type": kind} for number in range(150)}
        return pb.Schema(kind="JSON", text=json.dumps({"type": "object", "properties": properties}, ensure_ascii=False))

    async with serve() as served:
        await served.schemas.RegisterSchema(pb.RegisterSchemaRequest(subject="t-value", schema=wide("string")))
        request = pb.RegisterSchemaRequest(subject="t-value", schema=wide("integer"))
        error = await error_of(served.schemas.RegisterSchema(request))
        assert error.code == "incompatible_schema"
        assert "TYPE_CHANGED" in error.details
        verdict = await served.schemas.CheckCompatibility(
            pb.CheckCompatibilityRequest(subject="t-value", schema=wide("integer"))
        )
        assert len(verdict.problems) == 100


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        ("GetSchema", pb.GetSchemaRequest(id=7), "schema_not_found"),
        ("GetSchemaVersion", pb.GetSchemaVersionRequest(subject="none"), "subject_not_found"),
        ("GetSchemaVersion", pb.GetSchemaVersionRequest(subject="t-value", version=9), "version_not_found"),
        ("GetSchemaVersion", pb.GetSchemaVersionRequest(), "invalid_subject"),
        ("FindSchema", pb.FindSchemaRequest(subject="t-value", schema=avro(WITH_NOTE)), "schema_not_found"),
        ("FindSchema", pb.FindSchemaRequest(subject="none", schema=avro(ORDER)), "subject_not_found"),
        ("ListSchemaVersions", pb.ListSchemaVersionsRequest(subject="none"), "subject_not_found"),
        ("ListSubjects", pb.ListSubjectsRequest(limit=10_001), "invalid_request"),
        ("RegisterSchema", pb.RegisterSchemaRequest(subject="s", schema=pb.Schema(text="{")), "invalid_schema"),
        (
            "RegisterSchema",
            pb.RegisterSchemaRequest(subject="s", schema=pb.Schema(id=3, text='"int"')),
            "invalid_request",
        ),
        ("RegisterSchema", pb.RegisterSchemaRequest(schema=avro(ORDER)), "invalid_subject"),
        ("RegisterSchema", pb.RegisterSchemaRequest(subject="s", schema=pb.Schema(kind="XML")), "invalid_schema"),
        (
            "RegisterSchema",
            pb.RegisterSchemaRequest(
                subject="s", schema=pb.Schema(text='"int"', references=[pb.SchemaReference(name="a")] * 1_001)
            ),
            "invalid_schema",
        ),
        ("DeleteSchemaVersion", pb.DeleteSchemaVersionRequest(subject="t-value", version=9), "version_not_found"),
        (
            "DeleteSchemaVersion",
            pb.DeleteSchemaVersionRequest(subject="t-value", version=1, permanent=True),
            "version_not_soft_deleted",
        ),
        ("DeleteSubject", pb.DeleteSubjectRequest(subject="none"), "subject_not_found"),
    ],
)
async def test_what_cannot_be_done_has_an_error_of_the_table(
    serve: Serve, method: str, request_: object, code: str
) -> None:
    async with serve() as served:
        await register(served, "t-value", ORDER)
        assert (await error_of(getattr(served.schemas, method)(request_))).code == code


async def test_subjects_are_listed_page_by_page(serve: Serve) -> None:
    async with serve() as served:
        for name in ("b", "a", "c", "other"):
            await register(served, name, ORDER)
        first = await served.schemas.ListSubjects(pb.ListSubjectsRequest(limit=2))
        assert (list(first.names), first.more) == (["a", "b"], True)
        rest = await served.schemas.ListSubjects(pb.ListSubjectsRequest(limit=2, after="b"))
        assert (list(rest.names), rest.more) == (["c", "other"], False)
        some = await served.schemas.ListSubjects(pb.ListSubjectsRequest(prefix="o"))
        assert list(some.names) == ["other"]


async def test_a_subject_may_ask_for_normalized_schemas(serve: Serve) -> None:
    async with serve() as served:
        await served.broker.schemas.configure("t-value", {"normalize": True})
        made = await register(served, "t-value", {"type": "string"})
        assert made.schema.text == '"string"'


async def test_a_stopping_broker_registers_nothing(serve: Serve) -> None:
    async with serve() as served:
        served.broker.stop_accepting()
        assert (await error_of(register(served, "t-value", ORDER))).code == "shutting_down"


async def test_what_is_being_registered_is_told_when_it_is_on_the_disk(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as served:
        commits = served.broker._commits
        may_sync, carry_out = threading.Event(), commits._carry_out

        def held(planned: Any) -> Any:
            assert may_sync.wait(60)
            return carry_out(planned)

        monkeypatch.setattr(commits, "_carry_out", held)
        registering = asyncio.create_task(register(served, "t-value", ORDER))
        await until(lambda: 1 in served.broker.schemas.state.records)
        looks: list[Any] = [
            served.schemas.GetSchema(pb.GetSchemaRequest(id=1)),
            served.schemas.GetSchemaVersion(pb.GetSchemaVersionRequest(subject="t-value")),
            served.schemas.ListSchemaVersions(pb.ListSchemaVersionsRequest(subject="t-value")),
            served.schemas.ListSubjects(pb.ListSubjectsRequest()),
        ]
        waiting = [asyncio.ensure_future(each) for each in looks]
        try:
            # These come after them, and have nothing to wait for.
            for _ in range(3):
                await error_of(served.schemas.GetSchema(pb.GetSchemaRequest(id=99)))
            assert not any(each.done() for each in waiting)
        finally:
            may_sync.set()
        await asyncio.gather(registering, *waiting)


async def test_what_is_deleted_is_gone_in_two_steps(serve: Serve) -> None:
    async with serve() as served:
        first = await register(served, "t-value", ORDER)
        await register(served, "t-value", WITH_NOTE)
        deleted = await served.schemas.DeleteSchemaVersion(pb.DeleteSchemaVersionRequest(subject="t-value"))
        assert list(deleted.versions) == [2]
        latest = await served.schemas.GetSchemaVersion(pb.GetSchemaVersionRequest(subject="t-value"))
        assert latest == first
        kept = await served.schemas.GetSchemaVersion(
            pb.GetSchemaVersionRequest(subject="t-value", version=2, deleted=True)
        )
        assert kept.version == 2
        deleted = await served.schemas.DeleteSubject(pb.DeleteSubjectRequest(subject="t-value"))
        assert list(deleted.versions) == [1]
        deleted = await served.schemas.DeleteSubject(pb.DeleteSubjectRequest(subject="t-value", permanent=True))
        assert list(deleted.versions) == [1, 2]
        assert list((await served.schemas.ListSubjects(pb.ListSubjectsRequest(deleted=True))).names) == []
