"""Spans that leave the broker: which there are, who is whose parent, and that nobody waits for them."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from behaviour.clock import MS, ManualClock
from behaviour.host import config_for
from doubles.group_bench import GroupBench
from doubles.loop import on_a_loop
from opentelemetry.semconv._incubating.attributes.messaging_attributes import MessagingOperationTypeValues

from goqueue.broker.dead_letters.redrive import Filter
from goqueue.broker.partitions.frame_selection import SelectedFrames, read_frames_at
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.runtime.time_slices import TimeSlice
from goqueue.broker.tracing import span_builder
from goqueue.broker.tracing import trace_export as module
from goqueue.broker.tracing.span_builder import SpanBuilder
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.model.runs import Runs, size_of
from goqueue.observe.spans import Span
from goqueue.observe.trace_event import ACK, CONSUME, DLQ, PUBLISH, TraceEvent
from goqueue.observe.tracer import weight
from goqueue.wire.trace_context import derived_trace_id

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"


class Recorder:
    """Keeps what it is given. ``hangs`` until it is closed."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.spans: list[Span] = []
        self.has_some = threading.Event()
        self._go_on = threading.Event()
        if not hangs:
            self._go_on.set()

    def export(self, spans: list[Span]) -> None:
        self.has_some.set()
        self._go_on.wait(30)
        self.spans += spans

    def close(self) -> None:
        self._go_on.set()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return recording(monkeypatch, Recorder())


def recording(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> Recorder:
    monkeypatch.setattr(module, "span_exporters", lambda *_: [("recorder", recorder)])
    return recorder


def bench(path: Path, **trace: Any) -> GroupBench:
    return GroupBench(config_for(path, trace=trace), ManualClock())


async def publish(it: GroupBench, value: bytes, flags: str | None = None, **fields: Any) -> None:
    headers = () if flags is None else (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-{flags}".encode()),)
    (outcome,) = await it.broker.publish("t", [NewMessage(value, headers=headers, **fields)])
    assert isinstance(outcome, Published)


async def passed(it: GroupBench, recorder: Recorder, count: int) -> None:
    """So many spans have arrived; then a moment passes."""
    async with asyncio.timeout(30):
        while len(recorder.spans) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    it.pass_time(10)


def described(span: Span, begun_ns: int) -> tuple[str, str, float, float, str]:
    return span.name, span.kind, (span.start_ns - begun_ns) / MS, (span.end_ns - begun_ns) / MS, span.error


@on_a_loop
async def test_a_message_is_a_chain_of_spans_from_its_producer_on(tmp_path: Path, recorder: Recorder) -> None:
    async with bench(tmp_path) as it:
        begun_ns = it.clock.now_ns()
        await it.topic()
        member = await it.join()
        await publish(it, b"v", "01")
        await passed(it, recorder, 1)
        await it.nack(*await it.poll(member))
        await passed(it, recorder, 2)
        got = await it.poll(member)
        it.pass_time(5)
        await it.settle("reject", *got)
        await passed(it, recorder, 4)
        await it.broker.groups.dead_letters.redrive("t", Filter(), 10, None, dry_run=False)
        await passed(it, recorder, 5)
        got = await it.poll(member)
        it.pass_time(5)
        await it.ack(*got)
        await passed(it, recorder, 6)
    spans = recorder.spans
    assert [described(each, begun_ns) for each in spans] == [
        ("publish t", "producer", 0, 0, ""),
        ("deliver t", "consumer", 10, 10, "because"),
        ("deliver t", "consumer", 20, 25, "because"),
        ("dead-letter t", "internal", 25, 25, "because"),
        ("redrive t.dlq", "internal", 35, 35, ""),
        ("deliver t", "consumer", 45, 50, ""),
    ]
    assert {each.trace_id for each in spans} == {TRACE_ID}
    published, nacked, rejected, dead, redriven, acked = spans
    assert published.parent_id == PARENT_ID
    assert {each.parent_id for each in (nacked, rejected, dead)} == {published.span_id}
    assert (redriven.parent_id, acked.parent_id) == (dead.span_id, redriven.span_id)
    assert len({each.span_id for each in spans}) == 6
    types = [each.attributes["messaging.operation.type"] for each in spans]
    assert types == ["send", "process", "process", "send", "send", "process"]
    assert set(types) <= {each.value for each in MessagingOperationTypeValues}
    assert acked.attributes == {
        "messaging.system": "goqueue",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.goqueue.offset": 1,
        "messaging.message.body.size": 1,
        "messaging.consumer.group.name": "g",
        "messaging.goqueue.outcome": "ack",
        "messaging.client.id": member,
    }


@on_a_loop
async def test_a_delayed_message_waits_in_a_span(tmp_path: Path, recorder: Recorder) -> None:
    async with bench(tmp_path) as it:
        begun_ns = it.clock.now_ns()
        await it.topic()
        await publish(it, b"v", delay_ms=1_000)
        await passed(it, recorder, 1)
        it.pass_time(990)
        await it.fired()
        await passed(it, recorder, 2)
    published, fired = recorder.spans
    assert described(fired, begun_ns) == ("delay t", "internal", 0, 1_000, "")
    assert (published.parent_id, fired.parent_id) == ("", published.span_id)
    assert published.trace_id == fired.trace_id == derived_trace_id("t", 0, 0)


@on_a_loop
async def test_what_its_producer_does_not_sample_is_not_exported(tmp_path: Path, recorder: Recorder) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await publish(it, b"a", "00")
        await publish(it, b"b", "01")
        await passed(it, recorder, 1)
        # To the broker's own traces it makes no difference.
        assert [step.event for step in (await it.broker.traces.at("t", 0, 0)).steps] == ["publish"]
    assert [each.attributes["messaging.goqueue.offset"] for each in recorder.spans] == [1]


@on_a_loop
async def test_more_than_a_second_has_room_for_is_dropped_and_counted(tmp_path: Path, recorder: Recorder) -> None:
    async with bench(tmp_path, export_per_second=10) as it:
        await it.topic()
        await it.broker.publish("t", [NewMessage(b"v")] * 100)
        await passed(it, recorder, 10)
        figures = it.broker.tracing.dropped()
    assert len(recorder.spans) == 10
    assert figures == {"file": 0, "recorder": 90}


@on_a_loop
async def test_room_comes_back_with_time(tmp_path: Path) -> None:
    now_s = 0.0
    async with bench(tmp_path) as it:
        await it.topic()
        await it.broker.publish("t", [NewMessage(b"v")] * 100)
        maker = SpanBuilder(it.broker.topic, 10, lambda: now_s)
        everything = [TraceEvent("t/0", it.clock.now_ns(), PUBLISH, [0, 100])]
        made = []
        for now_s in (0.0, 0.0, 0.5, 60.0):  # noqa: B007
            made.append(len(await maker.spans_of(everything)))
        assert (made, maker.dropped) == ([10, 0, 5, 10], 375)
        gone = [TraceEvent(place, 1, PUBLISH, [500, 503]) for place in ("t/0", "u/0", "t/9")]
        now_s = 120.0
        assert (await maker.spans_of(gone), maker.dropped) == ([], 384)


@on_a_loop
async def test_nobody_waits_for_an_exporter_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLOSE_EXPORTERS_S", 0.05)
    recorder = recording(monkeypatch, Recorder(hangs=True))
    async with bench(tmp_path, export_per_second=1_000_000) as it:
        await it.topic()
        member = await it.join()
        await publish(it, b"first")
        await asyncio.to_thread(recorder.has_some.wait, 30)
        for _ in range(30):
            await it.broker.publish("t", [NewMessage(b"v")] * 500)
        got = await it.poll(member, 1_000)
        await it.ack(*got)
        assert len(got) == 1_000
        async with asyncio.timeout(30):
            while not it.broker.tracing.dropped()["recorder"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        waiting = it.broker.tracing.exporters["recorder"].figures().waiting
        assert waiting <= 10_000
        tracing = it.broker.tracing
    # Whatever it was about to export when the broker ended is counted.
    assert tracing.exported() == {"recorder": 0}
    assert tracing.dropped()["recorder"] > 5_000


@on_a_loop
async def test_an_error_in_between_is_not_the_end(tmp_path: Path, recorder: Recorder) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        maker = it.broker.tracing._spans
        assert maker is not None
        works, maker.spans_of = maker.spans_of, None  # type: ignore[method-assign, assignment]
        await publish(it, b"a")
        async with asyncio.timeout(30):
            while it.broker.tracing.tracer.pending:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        maker.spans_of = works  # type: ignore[method-assign]
        await publish(it, b"b")
        await passed(it, recorder, 1)


@on_a_loop
async def test_what_was_noted_last_is_written_when_the_broker_ends(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await publish(it, b"v")
    lines = [line for path in (tmp_path / "traces").iterdir() for line in path.read_text().splitlines()]
    assert [json.loads(line)["event"] for line in lines] == ["publish"]


class Impatient(TimeSlice):
    """Whose time is always over."""

    rests = 0

    @property
    def is_over(self) -> bool:
        return True

    async def rest(self) -> None:
        Impatient.rests += 1
        await super().rest()


@on_a_loop
async def test_making_many_spans_can_give_way_at_each_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    async def noted(partition: Partition, wanted: Runs, max_bytes: int, limit: int) -> SelectedFrames:
        sizes.append(size_of(wanted))
        return await read_frames_at(partition, wanted, max_bytes, limit)

    monkeypatch.setattr(span_builder, "TimeSlice", Impatient)
    monkeypatch.setattr(span_builder, "read_frames_at", noted)
    async with bench(tmp_path) as it:
        await it.topic()
        await it.broker.publish("t", [NewMessage(b"v")] * 1_100)
        maker = SpanBuilder(it.broker.topic, 1_000)
        made = await maker.spans_of([TraceEvent("t/0", it.clock.now_ns(), PUBLISH, [0, 1_100])])
    assert [each.attributes["messaging.goqueue.offset"] for each in made] == list(range(1_000))
    assert maker.dropped == 100
    assert Impatient.rests >= 1_000
    assert (sum(sizes), max(sizes)) == (1_000, 250)


@on_a_loop
@pytest.mark.parametrize("order", [[], [2, 0, 4]])
async def test_each_span_of_a_copy_names_it(tmp_path: Path, order: list[int]) -> None:
    async with bench(tmp_path) as it:
        await it.topic()
        await it.broker.publish("t", [NewMessage(b"v")] * 5)
        event = TraceEvent("t/0", it.clock.now_ns(), DLQ, [0, 1, 2, 3, 4, 5], to="u/0", first_copy=7, order=order)
        made = await SpanBuilder(it.broker.topic, 1_000).spans_of([event])
    copies = {each.attributes["messaging.goqueue.offset"]: each.attributes["messaging.goqueue.copy"] for each in made}
    assert copies == {offset: f"u/0/{event.copy_of(offset)}" for offset in (0, 2, 4)}


@on_a_loop
async def test_deliveries_are_remembered_of_those_who_use_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_builder, "_WEIGHT_KEPT", 2_000)
    async with bench(tmp_path) as it:
        await it.topic()
        await it.broker.publish("t", [NewMessage(b"v")])
        maker = SpanBuilder(it.broker.topic, 10_000)

        async def delivered(group: str) -> list[Span]:
            return await maker.spans_of([TraceEvent("t/0", 5, CONSUME, [0, 1], group, "m")])

        async def begun_ns(group: str) -> int:
            (span,) = await maker.spans_of([TraceEvent("t/0", 9, ACK, [0, 1], group)])
            return span.start_ns

        await delivered("busy")
        await delivered("idle")
        for number in range(1_000):
            await delivered(f"g{number}")
            assert await begun_ns("busy") == 5
        assert await begun_ns("idle") == 9
        for _ in range(1_000):
            await delivered("g999")
        kept = [each for queue in maker._deliveries.values() for each in queue]
        assert len(kept) <= 2_000 // 12
        assert maker._weight == sum(weight(each.event) for each in kept)
