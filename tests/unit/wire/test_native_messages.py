"""Messages of the native protocol: whole, in pieces, and malformed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import InvalidRequest, WrongPort
from goqueue.wire.native.decoder import Decoder
from goqueue.wire.native.message import (
    HEADER,
    MAX_HEAD_BYTES,
    PREFACE,
    VERSION,
    Message,
    MessageFlag,
    pack,
)
from goqueue.wire.native.publish import (
    MAX_BATCHES,
    BatchTarget,
    Entry,
    EntryKind,
    dump_publish,
    dump_published,
    load_publish,
    load_published,
    more_entry,
    stored_entry,
)
from goqueue.wire.native.read import MAX_CREDIT_BYTES, dump_credit, dump_read, load_credit, load_read

LIMIT = 1 << 20

Plain = tuple[int, int, int, bytes, bytes]


def plain(message: Message) -> Plain:
    return message.operation, message.flags, message.correlation, bytes(message.head), bytes(message.payload)


def wire(*messages: Plain) -> bytes:
    packed = (
        b"".join(pack(operation, flags, number, head, [payload]))
        for operation, flags, number, head, payload in messages
    )
    return PREFACE + b"".join(packed)


messages = st.tuples(
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0xFFFFFFFF),
    st.binary(max_size=60),
    st.one_of(st.binary(max_size=60), st.sampled_from([b"p" * 20_000, b"p" * 70_000])),
)


@given(st.lists(messages, max_size=5), st.integers(0, 1 << 32))
def test_messages_are_found_however_their_bytes_arrive(sent: list[Plain], seed: int) -> None:
    random, decoder, found = Random(seed), Decoder(LIMIT), []
    data = wire(*sent)
    while data:
        size = random.choice([1, 7, 100, 5_000, 100_000])
        found += [plain(message) for message in decoder.feed(data[:size])]
        data = data[size:]
    assert found == sent
    assert decoder.is_between_messages


def test_a_large_payload_is_received_in_place_and_belongs_to_its_message() -> None:
    decoder = Decoder(LIMIT)
    payload = bytes(range(256)) * 800
    decoder.feed(wire((16, 0, 1, b"head", b""))[: len(PREFACE)])
    data = b"".join(pack(16, 0, 1, b"head", [payload]))
    [first] = decoder.feed(data)
    [second] = decoder.feed(data.replace(b"head", b"HEAD"))
    assert plain(first) == (16, 0, 1, b"head", payload)
    assert plain(second) == (16, 0, 1, b"HEAD", payload)
    assert first.payload.obj is not second.payload.obj


def test_a_small_message_does_not_change_when_more_is_received() -> None:
    decoder = Decoder(LIMIT)
    [first] = decoder.feed(wire((1, 0, 1, b"a" * 100, b"b" * 100)))
    for _ in range(1_000):
        decoder.feed(b"".join(pack(2, 0, 2, b"c" * 100, [b"d" * 100])))
    assert plain(first) == (1, 0, 1, b"a" * 100, b"b" * 100)


def test_a_connection_that_ends_within_a_message_is_not_between_messages() -> None:
    decoder = Decoder(LIMIT)
    assert not decoder.is_between_messages, "the preface is missing"
    decoder.feed(PREFACE)
    assert decoder.is_between_messages
    decoder.feed(b"\0")
    assert not decoder.is_between_messages


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (HEADER.pack(LIMIT + 1, 1, 0, VERSION, 1, 0), f"has {LIMIT + 1} bytes; at most {LIMIT}"),
        (HEADER.pack(10, 1, 0, VERSION + 1, 1, 0), "has version 2; 1 is spoken"),
        (HEADER.pack(10, 1, 0, VERSION, 1, 11), "10 bytes announces a head of 11"),
        (HEADER.pack(LIMIT, 1, 0, VERSION, 1, MAX_HEAD_BYTES + 1), "announces a head"),
    ],
)
def test_a_header_that_belongs_to_no_message_is_refused_before_its_body(header: bytes, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        Decoder(LIMIT).feed(PREFACE + header)


@pytest.mark.parametrize(
    ("data", "spoken"),
    [
        (b"GET /topics HTTP/1.1\r\n", "HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "gRPC"),
        (b"\0\0\x12\x04\0\0\0\0\0", "gRPC"),
        (b"\x16\x03\x01\x02\0\x01", "TLS"),
        (b"SSH-2.0-OpenSSH", "something else"),
        (b"GoQueue\r\n", "something else"),
    ],
)
def test_another_protocol_is_named(data: bytes, spoken: str) -> None:
    with pytest.raises(WrongPort, match=f"speaks {spoken}"):
        Decoder(LIMIT).feed(data)
    decoder = Decoder(LIMIT)
    with pytest.raises(WrongPort):
        for byte in data:
            decoder.feed(bytes([byte]))


batches = st.lists(
    st.tuples(st.text(min_size=1, max_size=20), st.integers(0, 1 << 31), st.binary(max_size=30)), min_size=1, max_size=6
)


@given(st.integers(0, 2), st.none() | st.binary(max_size=40), batches)
def test_a_publish_request_is_read_as_it_was_written(
    acks: int, transaction: bytes | None, sent: list[tuple[str, int, bytes]]
) -> None:
    head = dump_publish(
        acks, [(topic.encode(), partition, len(batch)) for topic, partition, batch in sent], transaction
    )
    payload = b"".join(batch for _, _, batch in sent)
    found = load_publish(memoryview(head), memoryview(payload))
    assert (found.acks, found.transaction) == (acks, transaction)
    assert [(topic, partition, bytes(batch)) for topic, partition, batch in found.batches] == sent


def test_a_batch_without_a_topic_goes_to_that_of_the_batch_before() -> None:
    head = dump_publish(0, [(b"a", 0, 1), (b"", 1, 1), (b"b", 2, 1)])
    found = load_publish(memoryview(head), memoryview(b"xyz"))
    assert [(each.topic, each.partition) for each in found.batches] == [("a", 0), ("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("head", "payload", "problem"),
    [
        (b"", b"", "cannot be read"),
        (dump_publish(0, []), b"", "has 0 batches; 1 to"),
        (dump_publish(0, [(b"t", 0, 0)] * (MAX_BATCHES + 1)), b"", f"has {MAX_BATCHES + 1} batches"),
        (dump_publish(0, [(b"t", 0, 4)]), b"abc", "4 of payload; it has .* and 3"),
        (dump_publish(0, [(b"t", 0, 3)]) + b"!", b"abc", "bytes of head"),
        (dump_publish(0, [(b"\xff", 0, 0)]), b"", "cannot be read"),
        (dump_publish(0, [(b"topic", 0, 0)])[:-1], b"", "beyond the end"),
        (dump_publish(0, [(b"t", 0, 0)], b"x" * 9)[:12], b"", "beyond the end"),
    ],
)
def test_a_publish_request_that_is_malformed_is_refused(head: bytes, payload: bytes, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        load_publish(memoryview(head), memoryview(payload))


def test_the_answer_to_a_publish_request_is_read_as_it_was_written() -> None:
    head = dump_published(
        [stored_entry(17, 3), more_entry(EntryKind.REFUSED, b"error"), more_entry(EntryKind.STORED_WITH_MORE, b"")]
    )
    assert load_published(memoryview(head)) == [
        Entry(EntryKind.STORED, 17, 3, b""),
        Entry(EntryKind.REFUSED, -1, 0, b"error"),
        Entry(EntryKind.STORED_WITH_MORE, -1, 0, b""),
    ]


def test_the_heads_of_a_stream_are_read_as_they_were_written() -> None:
    assert load_read(memoryview(dump_read(1, 2, 3))) == (1, 2, 3)
    assert load_credit(memoryview(dump_credit(1 << 40))) == 1 << 40
    with pytest.raises(InvalidRequest, match=f"at most {MAX_CREDIT_BYTES}"):
        load_credit(memoryview(dump_credit(MAX_CREDIT_BYTES + 1)))


_WHOLE = wire(
    (16, MessageFlag.ANSWER, 7, dump_publish(0, [(b"topic", 3, 6)], b"transaction"), b"abcdef"),
    (16, MessageFlag.ANSWER, 8, dump_published([stored_entry(1, 2), more_entry(EntryKind.REFUSED, b"why")]), b""),
    (17, MessageFlag.ANSWER | MessageFlag.MORE, 9, dump_read(1, 2, 3), b"batch"),
    (4, 0, 9, dump_credit(100), b""),
)


@given(st.data())
def test_changed_bytes_are_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    changed = bytearray(_WHOLE)
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(len(PREFACE), len(changed) - 1))
        match data.draw(st.sampled_from(["change", "insert", "remove"])):
            case "change":
                changed[place] = data.draw(st.integers(0, 255))
            case "insert":
                changed[place:place] = data.draw(st.binary(max_size=9))
            case _:
                del changed[place : place + 3]
    try:
        found = Decoder(LIMIT).feed(bytes(changed))
    except InvalidRequest:
        return
    for message in found:
        for load in (lambda at: load_publish(at.head, at.payload), lambda at: load_published(at.head)):
            try:
                load(message)
            except InvalidRequest:
                continue
        for load_head in (load_read, load_credit):
            try:
                load_head(message.head)
            except InvalidRequest:
                continue


def test_a_target_names_its_batch() -> None:
    [target] = load_publish(memoryview(dump_publish(1, [(b"t", 2, 3)])), memoryview(b"abc")).batches
    assert isinstance(target, BatchTarget)
    assert bytes(target.batch) == b"abc"
