"""The source's columns hold what the Python client's reader gives for the same frames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goqueue.client.consumer.reader import Batch, Record
from goqueue.model.errors import CorruptData
from goqueue.model.message import Headers
from goqueue.spark.source.columns import NAMES, TYPES, Decoder
from goqueue.storage.log.lost import LostRange, lost_frames
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.frame import HEADER_SIZE, Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import DELAYED_OFFSET, TRACE, ProducerStamp
from goqueue.wire.producer_frames import with_stamp
from goqueue.wire.trace_context import TRACEPARENT

TOPIC, PARTITION = "orders", 3
EVERYTHING = pa.schema([(name, TYPES[name]) for name in NAMES])
PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

small_bytes = st.binary(max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
parents = st.one_of(
    st.just(PARENT),
    st.sampled_from(
        [
            PARENT.upper(),
            b"01" + PARENT[2:] + b"-more",
            b"00" + PARENT[2:] + b"-more",
            b"ff" + PARENT[2:],
            b"00-" + b"0" * 32 + PARENT[35:],
            PARENT[:36] + b"0" * 16 + PARENT[52:],
            PARENT[:-1],
            PARENT.replace(b"-", b"_"),
            PARENT[:-2] + b"zz",
            b"",
        ]
    ),
    st.binary(min_size=55, max_size=55),
)
traces = st.sampled_from([b"4bf92f3577b34da6a3ce929d0e0e4736", b"0" * 32, b"\xff" * 32, b"short", b""])
delayed_offsets = st.sampled_from([b"0", b"17", b"9" * 19, b"9" * 20, b"-1", b"x", b""])
single_headers = st.one_of(
    st.tuples(names, small_bytes),
    st.tuples(st.just(TRACEPARENT), parents),
    st.tuples(st.just(TRACE), traces),
    st.tuples(st.just(DELAYED_OFFSET), delayed_offsets),
)
many_headers = st.lists(single_headers, max_size=4).map(tuple)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    flags = draw(st.sampled_from([0, 0, 0, Flag.COMPRESSED, Flag.TOMBSTONE, Flag.TRANSACTIONAL, Flag.FIRED]))
    key, value = draw(st.one_of(st.just(b""), small_bytes)), draw(small_bytes)
    if flags == Flag.COMPRESSED:
        value = zstandard.compress(value * draw(st.integers(0, 50)))
    if flags == Flag.TOMBSTONE:
        key, value = key or b"k", b""
        flags |= draw(st.sampled_from([0, Flag.COMPRESSED]))
    packed = encode_headers(draw(many_headers))
    timestamp = draw(st.one_of(st.sampled_from([0, 1, 999, 1_000, (1 << 63) - 1]), st.integers(0, (1 << 63) - 1)))
    made = encode_frame(key, value, packed, timestamp, draw(st.integers(0, 4)), int(flags))
    if draw(st.integers(0, 3)) == 0:
        made = with_stamp(made, ProducerStamp(draw(st.integers(0, 1 << 62)), 1, 2, 3))
    return made


@st.composite
def runs(draw: st.DrawFn) -> FrameRun:
    """Frames at offsets with gaps."""
    made = draw(st.lists(frames(), min_size=1, max_size=8))
    batch = join_frames(made, 0)
    batch.stamp(0)
    offset = draw(st.integers(0, 1 << 40))
    for position in batch.positions.tolist():
        batch.frames[position + 8 : position + 16] = offset.to_bytes(8)
        offset += draw(st.integers(1, 3))
    return FrameRun(memoryview(bytes(batch.frames)), batch.positions)


def by_the_client(run: FrameRun) -> list[dict[str, Any]]:
    return [_row(record) for record in Batch(TOPIC, PARTITION, run, run.offset_at(-1) + 1).records()]


def _row(record: Record) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "headers": [{"name": name, "value": value} for name, value in record.headers],
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ns // 1_000,
        "priority": record.priority,
        "trace_id": record.trace_id,
    }


def decoded(run: FrameRun, columns: tuple[str, ...] = NAMES, **options: bool) -> list[dict[str, Any]]:
    schema = pa.schema([EVERYTHING.field(name) for name in columns])
    rows: list[dict[str, Any]] = []
    for batch in Decoder(TOPIC, PARTITION, schema, **options).decode(run):
        batch.validate(full=True)
        assert batch.schema.equals(schema, check_metadata=True)
        if "timestamp" in columns:
            # Python's datetimes end with the year 9999, as 64 bits of nanoseconds do long before.
            place = columns.index("timestamp")
            batch = batch.set_column(place, "timestamp", batch.column(place).cast(pa.int64()))
        rows += batch.to_pylist()
    return rows


def run_of(*made: bytes) -> FrameRun:
    batch = join_frames(list(made), 0)
    batch.stamp(10)
    return FrameRun(memoryview(bytes(batch.frames)), batch.positions)


def plain(value: bytes = b"v", headers: Headers = (), flags: int = 0, key: bytes = b"") -> bytes:
    return encode_frame(key, value, encode_headers(headers), 1_000, flags=flags)


@settings(max_examples=40, deadline=None)
@given(runs(), st.permutations(NAMES), st.integers(1, len(NAMES)))
@example(run_of(plain()), list(NAMES), len(NAMES))
@example(run_of(plain(), plain(headers=((TRACEPARENT, b"x"), (TRACEPARENT, PARENT)))), list(NAMES), len(NAMES))
@example(run_of(plain(b"", flags=int(Flag.TOMBSTONE | Flag.COMPRESSED), key=b"k")), list(NAMES), len(NAMES))
def test_any_columns_in_any_order_are_what_the_client_reads(run: FrameRun, order: list[str], count: int) -> None:
    columns = tuple(order[:count])
    assert decoded(run, columns) == [{name: row[name] for name in columns} for row in by_the_client(run)]


def test_a_message_with_a_thousand_headers_is_decoded_beside_one_without() -> None:
    many = tuple((f"name-{number}", b"x" * (number % 7)) for number in range(1_000))
    run = run_of(plain(), plain(headers=many), plain(headers=(("one", b""),)))
    assert decoded(run) == by_the_client(run)


def test_a_value_of_eight_megabytes_is_one_row() -> None:
    run = run_of(plain(bytes(8 << 20)), plain(b"small"))
    assert [len(row["value"]) for row in decoded(run, ("value",))] == [8 << 20, 5]


@settings(max_examples=30, deadline=None)
@given(runs(), st.data())
def test_a_damaged_message_is_left_out_or_raises_and_is_never_shown(run: FrameRun, data: st.DataObject) -> None:
    places = data.draw(st.sets(st.integers(0, len(run) - 1), min_size=1))
    broken = bytearray(run.frames)
    ends = run.ends().tolist()
    for place in places:
        start = int(run.positions[place])
        # Anywhere but in the offset, which no checksum covers.
        at = data.draw(st.sampled_from([*range(start, start + 8), *range(start + 16, ends[place])]))
        broken[at] ^= data.draw(st.integers(1, 255))
    damaged = FrameRun(memoryview(bytes(broken)), run.positions)
    left = [row for place, row in enumerate(by_the_client(run)) if place not in places]
    assert decoded(damaged, skip_damaged=True) == left
    with pytest.raises(CorruptData, match=r"orders/3.*checksum.*failOnDataLoss=false"):
        decoded(damaged)


def test_the_error_of_a_damaged_message_tells_what_lies_before_it() -> None:
    run = run_of(plain(), plain(), plain())
    broken = bytearray(run.frames)
    broken[int(run.positions[2]) + HEADER_SIZE] ^= 1
    with pytest.raises(CorruptData, match="behind offset 11 "):
        decoded(FrameRun(memoryview(broken), run.positions))


def test_what_is_lost_raises_or_is_left_out() -> None:
    run = lost_frames(LostRange(7, 9, 1), 7, 9)
    with pytest.raises(CorruptData, match="behind offset 6 fails its checksum"):
        list(Decoder(TOPIC, PARTITION, EVERYTHING).decode(run))
    assert list(Decoder(TOPIC, PARTITION, EVERYTHING, skip_damaged=True).decode(run)) == []


def test_a_value_that_cannot_be_unpacked_raises_where_it_is_and_can_be_left_out() -> None:
    """A producer may say that anything is compressed: the broker does not unpack what it stores."""
    run = run_of(plain(b"before"), plain(b"no zstd", flags=int(Flag.COMPRESSED)), plain(b"behind"))
    with pytest.raises(CorruptData, match=r"offset 11 of orders/3.*not valid zstd.*failOnDataLoss=false"):
        decoded(run)
    assert [row["value"] for row in decoded(run, skip_damaged=True)] == [b"before", b"behind"]
    # Whoever does not ask for the value has no trouble with it.
    assert [row["offset"] for row in decoded(run, ("offset",))] == [10, 11, 12]


def test_a_decoder_of_what_spark_expects_gives_exactly_those_types() -> None:
    """Spark names the items of a list in its own way, and compares types by name."""
    element = pa.field("item", pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))
    schema = pa.schema([("headers", pa.list_(element))])
    (made,) = Decoder(TOPIC, PARTITION, schema).decode(run_of(plain(headers=(("a", b"1"),)), plain()))
    assert made.schema == schema
    assert made.column(0).to_pylist() == [[{"name": "a", "value": b"1"}], []]
