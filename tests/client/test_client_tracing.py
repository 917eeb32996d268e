"""Traces across the broker: from the span that a message is sent in to those that its handler makes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from doubles.async_tests import until
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

from goqueue import AsyncClient, Outgoing, Published, Reject, Sent, extracted_context
from goqueue.model.errors import MessageTooLarge
from goqueue.testing import BrokerProcess
from goqueue.wire.producer_frames import MAX_STAMPED_HEADERS_BYTES
from goqueue.wire.trace_context import derived_trace_id, traceparent_in

OWN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OWN_TRACE = OWN[3:35]


class Spans:
    """What a program's OpenTelemetry collects, without making it everyone's."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._tracer = provider.get_tracer("tests")
        self.within = self._tracer.start_as_current_span

    def __getitem__(self, name: str) -> ReadableSpan:
        [found] = [each for each in self._exporter.get_finished_spans() if each.name == name]
        return found

    def __contains__(self, name: str) -> bool:
        return any(each.name == name for each in self._exporter.get_finished_spans())


@pytest.fixture
def spans() -> Spans:
    return Spans()


def carried(span: SpanContext) -> tuple[str, bytes]:
    return "traceparent", f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}".encode()


def trace_id(span: SpanContext) -> str:
    return f"{span.trace_id:032x}"


def from_afar(span: SpanContext) -> SpanContext:
    """As it is known where a message arrives."""
    return SpanContext(span.trace_id, span.span_id, is_remote=True, trace_flags=span.trace_flags)


async def read(client: AsyncClient, topic: str) -> list[Any]:
    return [record async for record in client.read(topic)]


# Sending


async def test_what_is_sent_in_a_span_carries_it(broker: BrokerProcess, topic: str, group: str, spans: Spans) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        with spans.within("order") as span:
            sent = await (await producer.send(topic, b"1", headers={"shop": "north"}))
        here = span.get_span_context()
        [record] = await read(client, topic)
        assert record.headers == (("shop", b"north"), carried(here))
        assert record.trace_id == sent.trace_id == trace_id(here)
        assert trace.get_current_span(extracted_context(record)).get_span_context() == from_afar(here)
        async with client.consumer(group, topic) as consumer:
            message = await anext(consumer)
            assert message.trace_id == record.trace_id
            assert trace.get_current_span(extracted_context(message)).get_span_context() == from_afar(here)
            await message.ack()
        async with client.consumer(f"{group}-stream", topic, mode="stream") as consumer:
            assert (await anext(consumer)).trace_id == record.trace_id


async def test_every_message_of_many_carries_the_span_of_the_call(
    broker: BrokerProcess, wide_topic: str, spans: Spans
) -> None:
    own = Outgoing(b"own", headers={"traceparent": OWN}, partition=2)
    kinds = [b"plain", "text", Outgoing(b"a", key="ada"), Outgoing(b"b", headers=iter([("n", b"1")])), own]
    async with broker.async_client() as client, client.producer() as producer:
        with spans.within("orders") as span:
            results = await producer.send_many(wide_topic, kinds)
        here = span.get_span_context()
        found = {record.value: record for record in await read(client, wide_topic)}
        assert found[b"plain"].headers == found[b"text"].headers == found[b"a"].headers == (carried(here),)
        assert found[b"b"].headers == (("n", b"1"), carried(here))
        assert found[b"own"].headers == (("traceparent", OWN.encode()),)
        for value, result in zip([b"plain", b"text", b"a", b"b", b"own"], results, strict=True):
            assert (result.partition, result.offset) == (found[value].partition, found[value].offset)
            assert result.trace_id == found[value].trace_id
        assert {each.trace_id for each in results[:-1]} == {trace_id(here)}
        assert results[-1].trace_id == OWN_TRACE


async def test_a_message_that_names_a_trace_keeps_it(broker: BrokerProcess, topic: str, spans: Spans) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        with spans.within("order"):
            named = await (await producer.send(topic, b"1", headers={"traceparent": OWN}))
            wrong = await (await producer.send(topic, b"2", headers=[("traceparent", "not one")]))
        records = await read(client, topic)
        assert [record.headers for record in records] == [
            (("traceparent", OWN.encode()),),
            (("traceparent", b"not one"),),
        ]
        assert [record.trace_id for record in records] == [OWN_TRACE, derived_trace_id(topic, 0, 1)]
        assert (named.trace_id, wrong.trace_id) == (OWN_TRACE, derived_trace_id(topic, 0, 1))
        parent = trace.get_current_span(extracted_context(records[0])).get_span_context()
        assert (trace_id(parent), parent.is_remote, parent.trace_flags) == (OWN_TRACE, True, TraceFlags.SAMPLED)
        assert extracted_context(records[1]) == {}


async def test_without_a_span_nothing_is_added(broker: BrokerProcess, topic: str) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        one = await (await producer.send(topic, b"1"))
        [two] = await producer.send_many(topic, [b"2"])
        records = await read(client, topic)
        assert [record.headers for record in records] == [(), ()]
        derived = [derived_trace_id(topic, 0, offset) for offset in range(2)]
        assert [record.trace_id for record in records] == [one.trace_id, two.trace_id] == derived
        assert extracted_context(records[0]) == {}


async def test_whoever_does_not_want_it_can_switch_it_off(broker: BrokerProcess, topic: str, spans: Spans) -> None:
    async with broker.async_client() as client, client.producer(inject_trace_context=False) as producer:
        with spans.within("order"):
            await (await producer.send(topic, b"1"))
            await producer.send_many(topic, [b"2"])
        assert [record.headers for record in await read(client, topic)] == [(), ()]


async def test_a_trace_that_is_not_sampled_is_carried_as_such(broker: BrokerProcess, topic: str) -> None:
    tracer = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("tests")
    async with broker.async_client() as client, client.producer() as producer:
        with tracer.start_as_current_span("unseen") as span:
            await (await producer.send(topic, b"1"))
        [record] = await read(client, topic)
        assert record.headers == (carried(span.get_span_context()),)
        parent = traceparent_in(record.headers)
        assert parent is not None
        assert not parent.is_sampled


@pytest.mark.parametrize(("size", "arrives"), [(100, True), (250, False)])
async def test_the_state_of_other_tracing_systems_comes_along_unless_it_is_long(
    broker: BrokerProcess, topic: str, size: int, arrives: bool
) -> None:
    state = TraceState([("shop", "north"), ("a", "x" * size), ("b", "y" * size)])
    span = SpanContext(7, 9, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    async with broker.async_client() as client, client.producer() as producer:
        with use_span(NonRecordingSpan(span)):
            await (await producer.send(topic, b"1"))
        [record] = await read(client, topic)
        found = trace.get_current_span(extracted_context(record)).get_span_context()
        assert dict(found.trace_state) == (dict(state) if arrives else {})
        assert (found.trace_id, found.span_id) == (7, 9)


async def test_headers_that_fill_their_room_are_sent_without_the_span(
    broker: BrokerProcess, topic: str, spans: Spans
) -> None:
    room = MAX_STAMPED_HEADERS_BYTES - len("big") - 6
    async with broker.async_client() as client, client.producer() as producer:
        with spans.within("order"):
            full = await (await producer.send(topic, b"1", headers={"big": b"x" * room}))
            with pytest.raises(MessageTooLarge):
                await producer.send(topic, b"1", headers={"big": b"x" * (room + 1)})
        [record] = await read(client, topic)
        assert [name for name, _ in record.headers] == ["big"]
        assert record.trace_id == full.trace_id == derived_trace_id(topic, 0, 0)


def test_without_an_event_loop_the_span_is_that_of_the_calling_thread(
    broker: BrokerProcess, topic: str, spans: Spans
) -> None:
    expected: dict[bytes, tuple[tuple[str, bytes], ...]] = {b"none": ()}
    with broker.client() as client, client.producer() as producer:

        def send(number: int) -> None:
            with spans.within(f"order {number}") as span:
                producer.send(topic, f"{number}").result()
                producer.send_many(topic, [f"many {number}"])
                here = carried(span.get_span_context())
                expected[b"%d" % number] = expected[b"many %d" % number] = (here,)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        producer.send(topic, "none").result()
        for each in threads:
            each.join()
        assert {record.value: record.headers for record in client.read(topic)} == expected


def test_what_was_sent_is_equal_to_its_place() -> None:
    sent = Sent(0, 3, 2, None, False, "orders", OWN_TRACE)
    assert sent == Published(0, 3, 2) == sent
    assert sent == Sent(0, 3, 2, None, False, "orders")
    assert sent != Published(0, 4, 2)
    assert sent != (0, 3, 2)
    assert len({sent, Sent(0, 3, 2)}) == 1


# Without OpenTelemetry


def test_a_program_without_open_telemetry_does_not_load_it(broker: BrokerProcess, topic: str, group: str) -> None:
    script = """if True:
        import os, sys
        from goqueue import Client
        address, topic, group = sys.argv[1:]
        with Client(address) as client:
            with client.producer() as producer:
                sent = [producer.send(topic, "a").result(), *producer.send_many(topic, ["b"])]
            assert [each.trace_id for each in client.read(topic)] == [each.trace_id for each in sent]
            consumer = client.consumer(group, topic)
            seen = []
            def handle(message):
                seen.append(message.trace_id)
                if len(seen) == 2:
                    consumer.stop_taking()
            consumer.run(handle, signals=False)
            assert seen == [each.trace_id for each in sent], seen
        sys.exit(any(name.startswith("opentelemetry") for name in sys.modules))
    """
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, broker.address, topic, group],
        capture_output=True, text=True, env=dict(os.environ), timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")


# Handling


async def working(client: AsyncClient, handler: Any, group: str, topic: str, when: Callable[[], bool]) -> None:
    consumer = client.consumer(group, topic)
    running = asyncio.create_task(consumer.run(handler, signals=False, concurrency=2))
    await asyncio.wait([running, asyncio.create_task(until(when))], return_when=asyncio.FIRST_COMPLETED)
    consumer.stop_taking()
    await running


@pytest.mark.parametrize("way", ["coroutine", "thread"])
async def test_what_a_handler_does_is_part_of_the_trace(
    broker: BrokerProcess, topic: str, group: str, spans: Spans, way: str
) -> None:
    def work(message: Any) -> None:
        name = message.value.decode()
        with spans.within(f"handle {name}"):
            if name == "failing":
                raise Reject("no")
        done.add(name)

    async def handle(message: Any) -> None:
        await asyncio.sleep(0)
        work(message)

    done: set[str] = set()
    async with broker.async_client() as client, client.producer() as producer:
        parents = {}
        for name in ("failing", "one", "two"):
            with spans.within(f"send {name}") as span:
                await (await producer.send(topic, name))
            parents[name] = span.get_span_context()
        await (await producer.send(topic, "plain"))
        names = {*parents, "plain"}
        handler = handle if way == "coroutine" else work
        await working(client, handler, group, topic, lambda: all(f"handle {name}" in spans for name in names))
        for name, parent in parents.items():
            assert spans[f"handle {name}"].parent == from_afar(parent)
        assert spans["handle plain"].parent is None
        assert done == names - {"failing"}


async def test_what_a_handler_sends_goes_on_in_the_same_trace(
    broker: BrokerProcess, topic: str, wide_topic: str, group: str, spans: Spans
) -> None:
    done: list[str] = []
    async with broker.async_client() as client, client.producer() as producer:

        async def handle(message: Any) -> None:
            # No span of its own: what it sends is the child of what it got.
            done.append((await (await producer.send(wide_topic, b"next"))).trace_id)

        with spans.within("order") as span:
            await (await producer.send(topic, b"first"))
        await (await producer.send(topic, b"second"))
        await working(client, handle, group, topic, lambda: len(done) == 2)
        first, second = sorted(await read(client, wide_topic), key=lambda record: -len(record.headers))
        assert first.headers == (carried(span.get_span_context()),)
        assert second.headers == ()
        assert set(done) == {first.trace_id, second.trace_id}


async def test_a_handler_keeps_what_else_is_in_its_context(
    broker: BrokerProcess, topic: str, group: str, spans: Spans
) -> None:
    seen: list[object] = []

    async def handle(_: Any) -> None:
        seen.append((context.get_value("tenant"), trace_id(trace.get_current_span().get_span_context())))

    async with broker.async_client() as client, client.producer() as producer:
        await (await producer.send(topic, b"1", headers={"traceparent": OWN}))
        token = context.attach(context.set_value("tenant", "north"))
        try:
            await working(client, handle, group, topic, lambda: bool(seen))
        finally:
            context.detach(token)
    assert seen == [("north", OWN_TRACE)]


# Messages that the broker moves


async def test_a_delayed_message_stays_in_its_trace(broker: BrokerProcess, topic: str, spans: Spans) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        with spans.within("reminder") as span:
            traced = await (await producer.send(topic, b"traced", delay=1.5))
        plain = await (await producer.send(topic, b"plain", delay=1.5))
        waiting = {each.value: each.trace_id async for each in client.delayed(topic)}
        assert waiting == {b"traced": traced.trace_id, b"plain": plain.trace_id}
        async with aclosing(client.read(topic, follow=True)) as records:
            found = {record.value: record for record in [await anext(records), await anext(records)]}
        assert found[b"traced"].trace_id == traced.trace_id == trace_id(span.get_span_context())
        assert carried(span.get_span_context()) in found[b"traced"].headers
        assert found[b"plain"].offset != plain.offset
        assert found[b"plain"].trace_id == plain.trace_id == derived_trace_id(topic, 0, plain.offset)


async def test_a_dead_letter_stays_in_its_trace(broker: BrokerProcess, topic: str, group: str, spans: Spans) -> None:
    async with broker.async_client() as client, client.producer() as producer:
        with spans.within("order") as span:
            traced = await (await producer.send(topic, b"traced"))
        plain = await (await producer.send(topic, b"plain"))
        async with client.consumer(group, topic) as consumer:
            for _ in range(2):
                await (await anext(consumer)).reject("no")
        letters: list[Any] = []
        while len(letters) < 2:
            letters = [each async for each in client.dead_letters(topic)]
        found = {each.value: each for each in letters}
        assert found[b"traced"].trace_id == traced.trace_id == trace_id(span.get_span_context())
        assert carried(span.get_span_context()) in found[b"traced"].headers
        assert found[b"plain"].trace_id == plain.trace_id == derived_trace_id(topic, 0, plain.offset)
