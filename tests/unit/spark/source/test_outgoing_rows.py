"""Rows of a DataFrame become frames that a broker takes, and that read as what the rows held."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from doubles.runs import frames_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from goqueue.client.messages.outgoing_message import Encoder as ClientEncoder
from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.client.messages.serializers import to_bytes
from goqueue.model.errors import GoQueueError, InvalidMessage, InvalidRequest, MessageTooLarge, PartitionNotFound
from goqueue.model.message import Message, Priority
from goqueue.spark.source import outgoing_rows
from goqueue.spark.source.columns import HEADERS
from goqueue.spark.source.outgoing_rows import COLUMNS, Encoder, PartitionBatch, check_schema
from goqueue.wire.batch import MAX_BATCH_BYTES, FrameRun, parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import Flag
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.key_hash import partition_of
from goqueue.wire.producer_frames import stamped_pieces
from goqueue.wire.verify import FrameRules, verify_batch

RULES = FrameRules(max_value_bytes=64 << 20, latest_timestamp_ns=(1 << 63) - 1, in_transaction=True)
PARTITIONS = {"orders": 4, "refunds": 1, "wide": 1_000}
TIMESTAMP = pa.timestamp("us", tz="UTC")
MOST_US = ((1 << 63) - 1) // 1_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = texts.filter(lambda name: not name.startswith("goqueue-"))
pairs = st.lists(st.tuples(names, st.binary(max_size=8)), max_size=3)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


KINDS: dict[str, list[tuple[pa.DataType, st.SearchStrategy[Any]]]] = {
    "key": [
        (pa.binary(), maybe(st.binary(min_size=1, max_size=8))),
        (pa.string(), maybe(texts.filter(bool))),
        (pa.large_string(), texts.filter(bool)),
    ],
    "value": [(pa.binary(), st.binary(max_size=20)), (pa.string(), texts), (pa.large_binary(), st.binary(max_size=9))],
    "headers": [
        (HEADERS, maybe(pairs.map(lambda found: [{"name": name, "value": value} for name, value in found]))),
        (pa.map_(pa.string(), pa.binary()), maybe(pairs.map(lambda found: list(dict(found).items())))),
        (pa.map_(pa.string(), pa.string()), maybe(st.lists(st.tuples(names, texts), max_size=3))),
    ],
    "topic": [(pa.string(), st.sampled_from(sorted(PARTITIONS))), (pa.string(), st.just("orders"))],
    "partition": [(pa.int32(), maybe(st.just(0))), (pa.int64(), maybe(st.just(0)))],
    "priority": [
        (pa.int32(), maybe(st.integers(0, 4))),
        (pa.int8(), maybe(st.integers(0, 4))),
        (pa.string(), maybe(st.sampled_from(["critical", "HIGH", "normal", "Low", "background"]))),
        (pa.large_string(), maybe(st.sampled_from(["critical", "background"]))),
    ],
    "timestamp": [(TIMESTAMP, maybe(st.integers(0, MOST_US)))],
    "delay": [
        (pa.int32(), maybe(st.integers(0, 1_000_000))),
        (pa.float64(), maybe(st.floats(0, 1e9))),
        (pa.float32(), maybe(st.floats(0, 1e6, width=32))),
        (pa.decimal128(20, 6), maybe(st.decimals(0, 10**8, places=6))),
        (pa.duration("us"), maybe(st.integers(0, 10**15))),
    ],
    "deliver_at": [(TIMESTAMP, maybe(st.integers(-5, MOST_US)))],
}


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.RecordBatch, str | None]:
    """Any columns in any order, and the topic where there is no column of that name."""
    left_out = draw(st.sampled_from(["delay", "deliver_at"]))
    optional = [name for name in COLUMNS if name not in ("value", left_out)]
    chosen = ["value", *(name for name in optional if draw(st.booleans()))]
    count = draw(st.integers(1, 6))
    arrays, fields = [], []
    for name in draw(st.permutations(chosen)):
        kind, values = draw(st.sampled_from(KINDS[name]))
        arrays.append(pa.array([draw(values) for _ in range(count)], kind))
        fields.append(pa.field(name, kind))
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    if "key" in chosen:
        batch = _with_tombstones(batch, draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    return batch, None if "topic" in chosen else "orders"


def _with_tombstones(batch: pa.RecordBatch, wanted: list[bool]) -> pa.RecordBatch:
    place = batch.schema.get_field_index("value")
    rows = batch.to_pydict()
    values = [
        None if gone and key else each for each, key, gone in zip(rows["value"], rows["key"], wanted, strict=True)
    ]
    return batch.set_column(place, batch.schema.field(place), pa.array(values, batch.schema.field(place).type))


def encoded(batch: pa.RecordBatch, topic: str | None = "orders") -> list[PartitionBatch]:
    return list(Encoder(topic, PARTITIONS.__getitem__).encode(batch))


def stored(part: PartitionBatch) -> list[tuple[Message, int]]:
    """What a broker would store of a batch, with the flags of each: stamped, verified and decoded."""
    stamped = parse_batch(b"".join(stamped_pieces([part.run], ProducerStamp(1, 0, 0, len(part.run)))))
    assert len(stamped.frames) <= MAX_BATCH_BYTES or len(stamped) == 1
    checked = verify_batch(stamped, RULES)
    run = FrameRun(memoryview(checked.frames), checked.positions)
    messages, damaged = decode_run(run)
    assert damaged == []
    return list(zip(messages, run.flags().tolist(), strict=True))


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, with times as microseconds: Python has none after the year 9999."""
    for name in ("timestamp", "deliver_at"):
        place = batch.schema.get_field_index(name)
        if place >= 0:
            batch = batch.set_column(place, name, batch.column(place).cast(pa.int64()))
    return batch.to_pylist()


def by_the_client(row: dict[str, Any], now_ns: int) -> Outgoing:
    """The same row as a message of the Python client."""
    headers = row.get("headers") or []
    delay = row.get("delay")
    return Outgoing(
        row["value"],
        row.get("key"),
        [tuple(each.values()) if isinstance(each, dict) else each for each in headers],
        priority="normal" if row.get("priority") is None else row["priority"],
        timestamp=now_ns if row.get("timestamp") is None else row["timestamp"] * 1_000,
        delay=_exact(delay) if isinstance(delay, Decimal) else delay,
        deliver_at=None if row.get("deliver_at") is None else row["deliver_at"] * 1_000,
    )


def _exact(seconds: Decimal) -> timedelta:
    return timedelta(microseconds=int(seconds * 1_000_000))


def frame_by_the_client(row: dict[str, Any], now_ns: int) -> bytes:
    client = ClientEncoder(to_bytes, 1 << 30)
    return client.encode(by_the_client(row, now_ns), int(Flag.TRANSACTIONAL), leave_room=True)[0]


def without_time(frame: bytes) -> bytes:
    """Neither the timestamp nor the checksum over it."""
    return frame[:4] + frame[8:16] + frame[24:]


@settings(max_examples=40, deadline=None)
@given(batches())
def test_any_rows_become_the_frames_that_the_client_would_send_where_it_would_send_them(
    given_: tuple[pa.RecordBatch, str | None],
) -> None:
    batch, topic = given_
    before_ns = time.time_ns() // 1_000 * 1_000
    parts = encoded(batch, topic)
    after_ns = time.time_ns()
    rows = rows_of(batch)
    wanted = Counter((row.get("topic", topic), without_time(frame_by_the_client(row, 0))) for row in rows)
    assert Counter((each.topic, without_time(frame)) for each in parts for frame in frames_of(each.run)) == wanted
    times = Counter(
        message.timestamp_ns for part in parts for message, _ in stored(part)
    )  # Also: the broker takes all.
    told = Counter(row["timestamp"] * 1_000 for row in rows if row.get("timestamp") is not None)
    made_up = times - told
    assert all(before_ns <= each <= after_ns for each in made_up)
    assert made_up.total() == len(rows) - told.total()
    asked = {name: place for place, name in enumerate(batch.schema.names)}
    if "partition" not in asked:
        for part in parts:
            for message, _ in stored(part):
                if message.key is not None:
                    assert part.partition == partition_of(message.key, PARTITIONS[part.topic])
                assert 0 <= part.partition < PARTITIONS[part.topic]


def column(name: str, *values: Any, kind: pa.DataType | None = None, **more: list[Any]) -> pa.RecordBatch:
    """Rows with this column, and a value of one byte unless it is told."""
    columns: dict[str, Any] = {"value": pa.array([b"v"] * len(values), pa.binary())} | more
    columns[name] = pa.array(list(values), kind)
    return pa.RecordBatch.from_pydict(columns)


def messages(parts: Iterable[PartitionBatch]) -> list[tuple[Message, int]]:
    return [each for part in parts for each in stored(part)]


def test_a_partition_that_is_asked_for_goes_before_the_key() -> None:
    batch = column("partition", 3, None, 0, kind=pa.int32(), key=[b"a", b"a", None])
    found = {(part.partition, len(part.run)) for part in encoded(batch)}
    assert partition_of(b"a", 4) not in (0, 3)
    assert found == {(3, 1), (partition_of(b"a", 4), 1), (0, 1)}


def test_rows_of_one_key_keep_their_order() -> None:
    keys = [b"k%d" % (number % 7) for number in range(500)]
    batch = pa.RecordBatch.from_pydict({"key": keys, "value": [b"%d" % number for number in range(500)]})
    by_key: dict[bytes | None, list[int]] = {}
    for message, _ in messages(encoded(batch)):
        by_key.setdefault(message.key, []).append(int(message.value))
    assert sorted(by_key) == sorted(set(keys))
    assert all(each == sorted(each) for each in by_key.values())


def test_rows_without_a_key_go_to_another_partition_batch_by_batch() -> None:
    encoder = Encoder("orders", PARTITIONS.__getitem__)
    batch = column("value", b"a", b"b")
    found = [{part.partition for part in encoder.encode(batch)} for _ in range(4)]
    assert sorted(found, key=min) == [{0}, {1}, {2}, {3}]


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from([0, 1_000, 300_000, MAX_BATCH_BYTES - 200, MAX_BATCH_BYTES, 2 << 20]), max_size=8))
def test_batches_are_as_large_as_allowed_and_no_larger(sizes: list[int]) -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([bytes(size) for size in sizes], pa.binary())})
    parts = encoded(batch)
    assert [len(message.value) for message, _ in messages(parts)] == sizes
    totals = [len(part.run.frames) for part in parts]
    for one, other in pairwise(parts):
        # Nothing is cut that would have fitted.
        assert len(one.run.frames) + len(frames_of(other.run)[0]) > MAX_BATCH_BYTES - 100
    assert all(total <= MAX_BATCH_BYTES - 40 or len(each.run) == 1 for total, each in zip(totals, parts, strict=True))


def test_a_large_batch_is_worked_on_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_rows, "_SLICE_BYTES", 2_000)
    batch = pa.RecordBatch.from_pydict({"value": [bytes(1_000)] * 10})
    parts = encoded(batch)
    assert len({part.partition for part in parts}) == 4
    assert sum(len(part.run) for part in parts) == 10


def test_a_slice_of_a_batch_is_encoded_as_such() -> None:
    batch = pa.RecordBatch.from_pydict({"key": [b"a", b"b", b"c", b"d"], "value": [b"1", None, b"3", b"4"]})
    found = messages(encoded(batch.slice(1, 2)))
    assert sorted((each.key, each.value, each.tombstone) for each, _ in found) == [
        (b"b", b"", True),
        (b"c", b"3", False),
    ]


def test_no_rows_are_no_batches() -> None:
    assert encoded(column("value", kind=pa.binary())) == []


def test_delays_are_rounded_up_and_what_is_not_later_is_not_delayed() -> None:
    found = messages(encoded(column("delay", 0.0, None, 1e-10, 2.5, kind=pa.float64(), key=[b"k"] * 4)))
    dues = [int.from_bytes(each.headers[-1][1]) if flags & Flag.DELAYED else None for each, flags in found]
    assert dues == [None, None, 1, 2_500_000_000]


BAD_ROWS: list[tuple[pa.RecordBatch, type[GoQueueError], str]] = [
    (column("topic", "orders", None, kind=pa.string()), InvalidMessage, "column topic is null"),
    (column("partition", 4), PartitionNotFound, "'orders' has partitions 0 to 3; there is no partition 4"),
    (column("partition", 0, -7), PartitionNotFound, "there is no partition -7"),
    (column("priority", 5), InvalidMessage, r"a priority is 5; there are 0 \(critical\) to 4"),
    (column("priority", -1, kind=pa.int8()), InvalidMessage, "a priority is -1"),
    (column("priority", "urgent"), InvalidMessage, "a priority is 'urgent'; there are critical, high, normal"),
    (column("timestamp", -1, kind=TIMESTAMP), InvalidMessage, "a timestamp lies before 1970"),
    (column("timestamp", MOST_US + 1, kind=TIMESTAMP), InvalidMessage, "a timestamp lies .* 64 bits of nanoseconds"),
    (column("delay", float("nan")), InvalidMessage, "a delay is nan seconds; it must be a number"),
    (column("delay", float("-inf")), InvalidMessage, "a delay is -inf seconds"),
    (column("delay", 1e300), InvalidMessage, r"a delay is 1e\+300 seconds; at most 6307200000 seconds"),
    (column("delay", 6_307_200_001), InvalidMessage, "a delay is 6307200001 seconds; at most 6307200000"),
    (column("delay", timedelta(days=80_000)), InvalidMessage, "a delay is 80000 days, 0:00:00; at most 6307200000"),
    (column("delay", Decimal("9999999999.5")), InvalidMessage, "a delay is 9999999999.5 seconds; at most"),
    (column("deliver_at", MOST_US + 1, kind=TIMESTAMP), InvalidMessage, "a deliver_at lies after .* 2262"),
    (column("value", None, kind=pa.binary()), InvalidMessage, "neither value nor key; .* tombstone and needs a key"),
    (column("key", b"a", b"", None), InvalidMessage, r"a key is empty, .*; use null: nullif\(key, ''\)"),
    (column("key", "", kind=pa.string()), InvalidMessage, "a key is empty"),
    (column("delay", 0, -1), InvalidMessage, r"a delay is -1 seconds; it must be 0 or more, or null"),
    (column("delay", -0.5), InvalidMessage, "a delay is -0.5 seconds"),
    (column("delay", timedelta(seconds=-1)), InvalidMessage, "a delay is -1 day, 23:59:59; it must be 0 or more"),
    (column("key", bytes(65_536)), MessageTooLarge, "a key has 65536 bytes; 65535 are allowed"),
    (column("headers", [("a", None)], kind=pa.map_(pa.string(), pa.string())), InvalidMessage, "'a' has no value"),
    (column("headers", [{"name": None, "value": b""}], kind=HEADERS), InvalidMessage, "a header has no name"),
    (column("headers", [None], kind=HEADERS), InvalidMessage, "a header is null; leave it out"),
    (
        column("headers", [{"name": "goqueue-trace", "value": b""}], kind=HEADERS),
        InvalidMessage,
        "'goqueue-trace' is not allowed.*Drop them: filter",
    ),
    (
        column("headers", [{"name": "a", "value": bytes(65_500)}], kind=HEADERS),
        MessageTooLarge,
        "the headers of a row have 65507 bytes; 65495 are allowed",
    ),
    (
        column("headers", [{"name": "a", "value": bytes(65_420)}], kind=HEADERS, delay=[1]),
        MessageTooLarge,
        "the headers of a row have 65453 bytes; 65395 are allowed",
    ),
    (column("headers", [{"name": "a", "value": bytes(70_000)}], kind=HEADERS), MessageTooLarge, "'a' is larger than"),
]


@pytest.mark.parametrize(("batch", "kind", "text"), BAD_ROWS, ids=[each[2][:40] for each in BAD_ROWS])
def test_a_row_that_cannot_be_sent_raises_what_is_wrong_with_it(
    batch: pa.RecordBatch, kind: type[GoQueueError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        encoded(batch, None if "topic" in batch.schema.names else "orders")


@pytest.mark.parametrize("name", ["key", "value", "topic", "priority"])
def test_text_that_is_no_utf8_never_leaves_as_another_column(name: str) -> None:
    """Arrow does not check what Spark hands over as text: what goes out must be what came in."""
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"])} | {name: broken})
    try:
        found = messages(encoded(batch, None if name == "topic" else "orders"))
    except (GoQueueError, UnicodeDecodeError):
        assert name in ("topic", "priority")
    else:
        assert getattr(found[0][0], name) == b"\xff\xfe"


TEXT, BYTES, WHOLE, MOMENT = StringType(), BinaryType(), IntegerType(), TimestampType()


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def pair(**fields: DataType) -> ArrayType:
    return ArrayType(schema(**fields))


@pytest.mark.parametrize(
    "columns",
    [
        {"key": TEXT},
        {"key": BYTES},
        {"headers": pair(name=TEXT, value=BYTES)},
        {"headers": pair(value=TEXT, name=TEXT)},
        {"headers": MapType(TEXT, TEXT)},
        {"headers": MapType(TEXT, BYTES)},
        {"partition": ShortType(), "priority": ByteType()},
        {"priority": TEXT, "timestamp": MOMENT},
        {"delay": DoubleType()},
        {"delay": DecimalType(10, 2)},
        {"delay": DayTimeIntervalType()},
        {"deliver_at": MOMENT},
    ],
)
def test_columns_of_every_kind_are_taken(columns: dict[str, DataType]) -> None:
    check_schema(schema(value=TEXT, **columns), "orders")
    check_schema(schema(**columns, value=BYTES, topic=TEXT), None)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"value": WHOLE}, "column value is int; it must be BINARY or STRING"),
        ({"key": LongType()}, "column key is bigint; it must be BINARY or STRING"),
        ({"topic": BYTES}, "column topic is binary; it must be STRING"),
        ({"topic": TEXT}, "a column 'topic' and an option topic as well"),
        ({"amount": WHOLE}, "no column 'amount'; it takes key, value, headers, .*to_json"),
        ({"offset": LongType()}, "no column 'offset'"),
        ({"partition": TEXT}, "column partition is string; it must be INT"),
        ({"priority": DoubleType()}, "column priority is double; it must be INT .* or STRING"),
        ({"timestamp": DateType()}, "column timestamp is date; it must be TIMESTAMP"),
        ({"timestamp": TimestampNTZType()}, "column timestamp is timestamp_ntz; it must be TIMESTAMP"),
        ({"delay": TEXT}, "column delay is string; it must be seconds, or INTERVAL DAY TO SECOND"),
        ({"delay": YearMonthIntervalType()}, "column delay is interval year to month"),
        ({"deliver_at": LongType()}, "column deliver_at is bigint; it must be TIMESTAMP"),
        ({"delay": WHOLE, "deliver_at": MOMENT}, "columns delay and deliver_at; drop one"),
        ({"headers": TEXT}, "column headers is string; it must be ARRAY<STRUCT<name"),
        ({"headers": ArrayType(TEXT)}, "column headers is array<string>; it must be ARRAY<STRUCT<name"),
        ({"headers": MapType(WHOLE, TEXT)}, "column headers is map<int,string>; it must be"),
        ({"headers": MapType(TEXT, WHOLE)}, "column headers is map<string,int>; it must be"),
        ({"headers": pair(key=TEXT, value=BYTES)}, "is array<struct<key:string,value:binary>>; it must be"),
        ({"headers": pair(name=TEXT, value=WHOLE)}, "value:int>>; it must be"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_with_what_would_be_right(
    columns: dict[str, DataType], text: str
) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_schema(schema(**{"value": TEXT} | columns), "orders")


def test_a_sink_needs_a_value_and_a_topic() -> None:
    with pytest.raises(InvalidRequest, match="needs a column 'value'"):
        check_schema(schema(key=TEXT), "orders")
    with pytest.raises(InvalidRequest, match="say where to write to: the option topic, or a column 'topic'"):
        check_schema(schema(value=TEXT), None)


def test_the_priorities_of_rows_are_those_of_the_model() -> None:
    found = messages(encoded(column("priority", *[each.label for each in Priority], None, kind=pa.string())))
    assert [message.priority for message, _ in found] == [0, 1, 2, 3, 4, 2]


def test_a_null_timestamp_is_now() -> None:
    before = time.time_ns() // 1_000 * 1_000
    moment = datetime(2026, 11, 15, 8, tzinfo=UTC)
    found = messages(encoded(column("timestamp", None, moment, kind=TIMESTAMP)))
    assert before <= found[0][0].timestamp_ns <= time.time_ns()
    assert found[1][0].timestamp_ns == int(moment.timestamp()) * 10**9
