from __future__ import annotations

from functools import partial

import pytest
import zstandard

from goqueue.api.http.bodies import convert
from goqueue.api.http.bodies.convert import PageOfMessages, to_new_message, to_result
from goqueue.api.http.bodies.durations import bounded_ms, due
from goqueue.api.http.bodies.message_schemas import ConsumeMessage, PublishMessage, PublishResult
from goqueue.api.http.bodies.settings import with_fields
from goqueue.model.errors import InvalidRequest, InvalidSettings
from goqueue.model.message import Message
from goqueue.model.publish_result import Published

MAKE = partial(ConsumeMessage, 0)
MAX_MESSAGE = 1_000
NOON_NS = 1_700_000_000_000_000_000


def packed(size: int) -> Message:
    return Message(0, 0, None, zstandard.compress(b"x" * size), compressed=True)


def plain(size: int) -> Message:
    return Message(0, 0, None, b"x" * size)


def sizes(page: PageOfMessages[ConsumeMessage]) -> list[int]:
    return [len(each.value or "") for each in page.messages if not each.compressed]


def test_a_message_that_must_be_there_is_left_packed_if_there_is_no_room() -> None:
    page = PageOfMessages[ConsumeMessage](None, 100)
    assert page.add(packed(80), MAX_MESSAGE, MAKE)
    assert not page.add(packed(30), MAX_MESSAGE, MAKE)
    assert page.add(packed(30), MAX_MESSAGE, MAKE, must=True)
    assert page.add(plain(500), MAX_MESSAGE, MAKE, must=True)
    assert sizes(page) == [80, 500]
    assert [each.compressed for each in page.messages] == [False, True, False]


def test_once_there_is_no_room_unpacking_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PageOfMessages[ConsumeMessage](None, 100)
    page.add(plain(10), MAX_MESSAGE, MAKE, must=True)
    bounds: list[int] = []
    unpack = convert.decompress_within
    monkeypatch.setattr(convert, "decompress_within", lambda value, most: bounds.append(most) or unpack(value, most))
    for _ in range(3):
        page.add(packed(500), MAX_MESSAGE, MAKE, must=True)
    assert bounds == [90, 0, 0]


def test_a_duration_is_named_and_bounded() -> None:
    assert bounded_ms("delay", "1m30s", 90_000) == 90_000
    with pytest.raises(InvalidRequest, match="delay is '90001ms'; 0s to 1m30s is allowed"):
        bounded_ms("delay", "90001ms", 90_000)
    with pytest.raises(InvalidRequest, match="ttl is '0s'; 1ms to 10s is allowed"):
        bounded_ms("ttl", "0s", 10_000, 1)


def test_a_duration_that_would_take_long_to_add_up_is_none() -> None:
    with pytest.raises(InvalidRequest, match=r"delay: .* is not a duration"):
        bounded_ms("delay", "1s" * 1_000, 1 << 40)


def test_a_setting_is_given_once() -> None:
    assert with_fields({"a": 1}, {"b": 2, "c": None}) == {"a": 1, "b": 2}
    with pytest.raises(InvalidSettings, match="a: given twice"):
        with_fields({"a": 1}, {"a": 1})


def test_a_delay_is_handed_on_for_the_broker_to_count_from_its_own_clock() -> None:
    message = to_new_message(PublishMessage("v", delay="1m30s"), NOON_NS)
    assert (message.delay_ms, message.deliver_at_ns) == (90_000, None)
    message = to_new_message(PublishMessage("v", deliverAt="2030-01-01T00:00:00.5Z"), NOON_NS)
    assert (message.delay_ms, message.deliver_at_ns) == (None, 1_893_456_000_500_000_000)
    message = to_new_message(PublishMessage("v"), NOON_NS)
    assert (message.delay_ms, message.deliver_at_ns) == (None, None)


def test_a_delay_reaches_to_2200_and_no_further() -> None:
    assert due("64330d", None, NOON_NS) == (64_330 * 86_400_000, None)
    with pytest.raises(InvalidRequest, match="delay is '64331d'; 0s to 64330d is allowed"):
        due("64331d", None, NOON_NS)


def test_an_instant_is_named_when_it_is_wrong() -> None:
    with pytest.raises(InvalidRequest, match="deliverAt: 'noon' is not an instant"):
        due(None, "noon", NOON_NS)


def test_a_result_tells_when_a_message_is_due_only_if_it_waits() -> None:
    assert to_result(Published(1, 2, 0, NOON_NS)) == PublishResult(1, 2, "critical", True, "2023-11-14T22:13:20Z")
    assert to_result(Published(1, 2, 4)) == PublishResult(1, 2, "background", False)
