"""Looking through messages: what is found, and how much is read and made for it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from behaviour.host import config_for
from doubles.loop import on_a_loop
from hypothesis import given
from hypothesis import strategies as st

from goqueue.broker.broker import Broker
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.tracing.message_search import MessageSearch, _offsets_with_key
from goqueue.model.publishing import NewMessage
from goqueue.observe.trace import Place
from goqueue.observe.trace_event import PUBLISH, TraceEvent
from goqueue.observe.trace_files import Budget
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.frame import encode_frame

MIB = 1 << 20


def run_of(*messages: tuple[bytes, bytes]) -> FrameRun:
    batch = join_frames([encode_frame(key, value, b"", 1) for key, value in messages], 1)
    batch.stamp(100)
    return FrameRun(memoryview(batch.frames), batch.positions)


some_bytes = st.binary(max_size=3).map(lambda each: bytes(byte % 3 for byte in each))


@given(st.lists(st.tuples(some_bytes, some_bytes), min_size=1), some_bytes.filter(len))
def test_messages_with_a_key_are_found_wherever_else_it_stands(messages: list[tuple[bytes, bytes]], key: bytes) -> None:
    expected = [100 + place for place, (each, _) in enumerate(messages) if each == key]
    assert _offsets_with_key(run_of(*messages), key) == expected


def test_a_key_that_also_fills_the_values_costs_no_more() -> None:
    run = run_of(*[(b"x", b"x" * 1_000)] * 200, (b"y", b"x"))
    tracemalloc.start()
    try:
        assert _offsets_with_key(run, b"x") == list(range(100, 300))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_header_that_promises_more_than_there_is_is_passed_over() -> None:
    run = run_of((b"kk", b""), (b"k" * 40, b""))
    cut = FrameRun(run.frames[:-20], run.positions)
    assert _offsets_with_key(cut, b"k" * 40) == []
    assert _offsets_with_key(cut, b"kk") == [100]


@on_a_loop
async def test_what_was_published_one_by_one_is_read_together_and_the_latest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[int, int]] = []
    read = Partition.read

    async def noted(
        self: Partition, offset: int, max_bytes: int, max_messages: int, limit: int
    ) -> tuple[FrameRun | None, int]:
        reads.append((offset, max_messages))
        return await read(self, offset, max_bytes, max_messages, limit)

    async with Broker(config_for(tmp_path)) as broker:
        await broker.create_topic("t", {"partitions": 1})
        await broker.publish("t", [NewMessage(b"needle" if number in (3, 950) else b"v") for number in range(1_000)])
        # The newest first, a few of them of something else.
        every = [number for number in range(1_000) if number % 50 and not 400 <= number < 500]
        events = [TraceEvent("t/0", number, PUBLISH, [number, number + 1]) for number in reversed(every)]
        gone = [TraceEvent("u/0", 5_000, PUBLISH, [0, 1]), TraceEvent("t/9", 5_000, PUBLISH, [0, 1])]
        monkeypatch.setattr(Partition, "read", noted)
        search = MessageSearch(broker, Budget(MIB))
        found = [place async for place in search.holding(b"needle", gone + events)]
        assert found == [Place("t", 0, 950), Place("t", 0, 3)]
        assert reads == [(501, 499), (1, 399)]
        reads.clear()
        assert [place async for place in MessageSearch(broker, Budget(10)).holding(b"needle", events)] == []
        assert len(reads) == 1
