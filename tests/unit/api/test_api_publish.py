from __future__ import annotations

import json
from typing import Any

import pytest

from goqueue.api.http.publish import Decoder, topic_in
from goqueue.model.errors import InvalidRequest

LONG = "x" * 100


def body(*messages: Any) -> bytes:
    return json.dumps({"messages": messages}).encode()


@pytest.mark.parametrize("value", ["", LONG])
def test_as_many_messages_as_are_allowed_are_decoded(value: str) -> None:
    decoder = Decoder(5)
    for _ in range(3):
        assert [each.value for each in decoder.decode(body(*[{"value": value}] * 5)).messages] == [value] * 5


def test_the_first_message_that_is_too_many_ends_the_decoding() -> None:
    many = body(*[{"value": LONG}] * 6)[:-1] + b", what follows is not even JSON"
    with pytest.raises(InvalidRequest, match="max_publish_messages is 5"):
        Decoder(5).decode(many)


def test_what_looks_like_messages_inside_a_value_does_not_count() -> None:
    (message,) = Decoder(1).decode(body({"value": '{"value":""},' * 100, "headers": {"value": "value"}})).messages
    assert message.headers == {"value": "value"}


@pytest.mark.parametrize("value", ["", LONG])
def test_a_mistake_is_named_with_its_place_in_a_short_body_and_in_a_long_one(value: str) -> None:
    with pytest.raises(InvalidRequest, match=r"unknown field `colour` - at `\$.messages\[1\]`"):
        Decoder(6).decode(body({"value": value}, {"value": value, "colour": 1}))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/topics/t/messages", "t"),
        ("/v1/topics/t/messages", "t"),
        ("/topics/t/messages/", "t"),
        ("//v1//topics/t//messages//", "t"),
        ("/topics/t", None),
        ("/topics//messages", None),
        ("/topics/t/partitions/0/messages", None),
        ("/v1/v1/topics/t/messages", None),
    ],
)
def test_the_path_that_publishes_is_known_however_it_is_spelt(path: str, name: str | None) -> None:
    assert topic_in(path) == name
