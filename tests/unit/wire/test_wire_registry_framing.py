from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import InvalidMessage
from goqueue.wire.registry_framing import (
    HEADER_BYTES,
    MAX_MESSAGE_INDEXES,
    decode_message_indexes,
    decode_schema_id,
    encode_message_indexes,
    encode_schema_id,
    parse_schema_id,
)

INDEXES = st.lists(st.integers(0, (1 << 31) - 1), min_size=1, max_size=MAX_MESSAGE_INDEXES)


def test_a_value_begins_with_a_zero_and_the_id_in_four_bytes() -> None:
    assert encode_schema_id(1) == b"\x00\x00\x00\x00\x01"
    assert encode_schema_id(0x01020304) == b"\x00\x01\x02\x03\x04"
    assert decode_schema_id(b"\x00\xff\xff\xff\xffrest") == (1 << 32) - 1


@given(st.integers(0, (1 << 32) - 1), st.binary())
def test_an_id_is_read_as_it_was_written(schema_id: int, rest: bytes) -> None:
    value = encode_schema_id(schema_id) + rest
    assert decode_schema_id(value) == parse_schema_id(value) == schema_id


@pytest.mark.parametrize("schema_id", [-1, 1 << 32])
def test_an_id_that_four_bytes_do_not_hold_is_refused(schema_id: int) -> None:
    with pytest.raises(InvalidMessage, match=str(schema_id)):
        encode_schema_id(schema_id)


def test_a_value_that_begins_otherwise_is_refused_with_what_it_begins_with() -> None:
    with pytest.raises(InvalidMessage, match="begins with 0x7b"):
        decode_schema_id(b'{"a": 1}')
    with pytest.raises(InvalidMessage, match="this one has 4"):
        decode_schema_id(b"\x00\x00\x00\x01")
    assert parse_schema_id(b'{"a": 1}') is None
    assert parse_schema_id(b"\x00\x00\x00\x01") is None


@pytest.mark.parametrize(
    ("indexes", "encoded"),
    [
        ([0], b"\x00"),
        ([1], b"\x02\x02"),
        ([2, 0], b"\x04\x04\x00"),
        ([0, 0], b"\x04\x00\x00"),
        ([64], b"\x02\x80\x01"),
        ([(1 << 31) - 1], b"\x02\xfe\xff\xff\xff\x0f"),
    ],
)
def test_the_places_of_a_message_are_numbers_of_variable_length_behind_their_count(
    indexes: list[int], encoded: bytes
) -> None:
    assert encode_message_indexes(indexes) == encoded
    assert decode_message_indexes(b"header" + encoded + b"\x00rest", 6) == (tuple(indexes), 6 + len(encoded))


def test_the_first_message_may_be_named_at_length() -> None:
    assert decode_message_indexes(b"\x02\x00", 0) == ((0,), 2)


@given(INDEXES, st.binary())
def test_places_are_read_as_they_were_written(indexes: list[int], rest: bytes) -> None:
    encoded = encode_message_indexes(indexes)
    assert decode_message_indexes(bytes(HEADER_BYTES) + encoded + rest) == (
        tuple(indexes),
        HEADER_BYTES + len(encoded),
    )


@pytest.mark.parametrize("indexes", [[], [0] * (MAX_MESSAGE_INDEXES + 1), [-1], [1 << 31]])
def test_places_that_no_message_has_are_refused(indexes: list[int]) -> None:
    with pytest.raises(InvalidMessage):
        encode_message_indexes(indexes)


@pytest.mark.parametrize(
    ("encoded", "what"),
    [
        (b"", "ends before"),
        (b"\x80", "ends before"),
        (b"\x04\x00", "ends before"),
        (b"\x02\xff\xff\xff\xff\xff\x01", "more than 5 bytes"),
        (b"\x01", "by -1 places"),
        (b"\xca\x01", "by 101 places"),
        (b"\x02\x01", "the place -1"),
    ],
)
def test_what_names_no_message_is_refused_with_the_reason(encoded: bytes, what: str) -> None:
    with pytest.raises(InvalidMessage, match=what):
        decode_message_indexes(encoded, 0)


@given(st.binary(max_size=600))
def test_no_bytes_are_read_past_their_end_or_fail_otherwise(value: bytes) -> None:
    try:
        indexes, end = decode_message_indexes(value, 0)
    except InvalidMessage:
        return
    assert 1 <= len(indexes) <= MAX_MESSAGE_INDEXES
    assert 0 < end <= len(value)
