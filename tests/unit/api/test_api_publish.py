from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from goqueue.api.http.bodies.message_schemas import PublishRequest
from goqueue.api.http.routes.publish import MAX_ESCAPES, Decoder
from goqueue.model.errors import InvalidRequest, MessageTooLarge

LONG = "x" * 100


def body(*messages: Any) -> bytes:
    return json.dumps({"messages": messages}).encode()


def decoded(max_messages: int, content: bytes) -> PublishRequest:
    return asyncio.run(Decoder(max_messages).decode(content))


@pytest.mark.parametrize("value", ["", LONG])
def test_as_many_messages_as_are_allowed_are_decoded(value: str) -> None:
    decoder = Decoder(5)
    for _ in range(3):
        read = asyncio.run(decoder.decode(body(*[{"value": value}] * 5)))
        assert [each.value for each in read.messages] == [value] * 5


def test_the_first_message_that_is_too_many_ends_the_decoding() -> None:
    many = body(*[{"value": LONG}] * 6)[:-1] + b", what follows is not even JSON"
    with pytest.raises(InvalidRequest, match="max_publish_messages is 5"):
        decoded(5, many)


def test_what_looks_like_messages_inside_a_value_does_not_count() -> None:
    (message,) = decoded(1, body({"value": '{"value":""},' * 100, "headers": {"value": "value"}})).messages
    assert message.headers == {"value": "value"}


@pytest.mark.parametrize("value", ["", LONG])
def test_a_mistake_is_named_with_its_place_in_a_short_body_and_in_a_long_one(value: str) -> None:
    with pytest.raises(InvalidRequest, match=r"unknown field `colour` - at `\$.messages\[1\]`"):
        decoded(6, body({"value": value}, {"value": value, "colour": 1}))


def test_headers_are_read_alike_in_a_short_body_and_in_a_long_one() -> None:
    headers = {"one": "1", "several": ["2", "3"], "none": []}
    for value in ("", "x" * 300_000):
        first, second, third = decoded(
            3, body(*({"value": value, "headers": each} for each in (headers, None, {})))
        ).messages
        assert (first.headers, second.headers, third.headers) == (headers, None, {})


@pytest.mark.parametrize("value", ["", "x" * 300_000])
def test_a_mistake_in_headers_is_named_with_its_place(value: str) -> None:
    with pytest.raises(InvalidRequest, match=r"got `int` - at `\$.messages\[1\].headers\[...\]\[1\]`"):
        decoded(2, body({"value": value}, {"value": value, "headers": {"a": ["1", 2]}}))


def test_more_headers_than_fit_are_refused_before_they_are_read() -> None:
    with pytest.raises(MessageTooLarge, match=r"\$.messages\[1\].headers has 600010 bytes of JSON"):
        decoded(2, body({"value": "x"}, {"value": "x", "headers": {"many": [""] * 150_000}}))


def test_more_escapes_than_can_be_read_quickly_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=f"has {MAX_ESCAPES + 1} backslashes; at most {MAX_ESCAPES} are read"):
        decoded(1, body({"value": '"' * (MAX_ESCAPES + 1)}))
    (message,) = decoded(1, body({"value": '"' * MAX_ESCAPES})).messages
    assert message.value == '"' * MAX_ESCAPES
