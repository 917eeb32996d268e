"""Polling over HTTP: what a message looks like, how long a poll waits, and that nothing delivered is left out."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from behaviour.clock import ManualClock
from behaviour.faulty_files import FaultyFiles
from behaviour.host import Host, config_for
from behaviour.http_member import Member, answered, publish, refused, settle
from behaviour.load import FRAMES, envelope
from behaviour.raw import RawConnection, ask, request
from behaviour.waiting import until
from goqueue.model.units import format_instant_ns
from goqueue.wire.frame import Flag, encode_frame

RECEIPT = re.compile(r"t:0:0:1:[\w-]+")
AT_ONCE_S = 20.0
NOW_NS = 1_700_000_000_000_000_000


class Polled:
    """A broker with a topic ``t``, and a client of it."""

    def __init__(
        self, path: Path, clock: ManualClock | None = None, files: FaultyFiles | None = None, **http: Any
    ) -> None:
        self.host = Host(config_for(path, http=http), http=True, clock=clock, files=files)
        self.client = httpx.Client(base_url=self.host.url, timeout=60, trust_env=False)
        assert self.client.post("/topics", json={"name": "t", "num_partitions": 1}).status_code == 201

    def waiting(self, group: str = "g") -> int:
        return len(self.host.broker.groups.shards.find(group).runtime.waiters)

    def close(self) -> None:
        self.client.close()
        self.host.stop()


Begin = Callable[..., Polled]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    started: list[Polled] = []

    def start(**options: Any) -> Polled:
        started.append(Polled(tmp_path, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def values(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["value"] for message in messages]


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_polled_message_has_the_names_of_the_contract(begin: Begin, prefix: str) -> None:
    polled = begin()
    publish(polled.client, "t", "v", key="k", priority="high", headers={"h": ["1", "2"], "one": "3"})
    member = Member(polled.client, "g", "t")
    member.path = prefix + member.path
    answer = answered(member.ask_poll())
    assert answer.keys() == {"messages"}
    (message,) = answer["messages"]
    assert RECEIPT.fullmatch(message.pop("receipt_handle"))
    assert message.pop("timestamp").endswith("Z")
    assert message == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "key": "k",
        "value": "v",
        "headers": {"h": ["1", "2"], "one": "3"},
        "encoding": "text",
        "priority": "high",
        "deliveries": 1,
    }


def test_bytes_that_are_not_text_come_in_base64_and_everything_if_asked_for(begin: Begin) -> None:
    polled = begin()
    publish(polled.client, "t", "text")
    publish(polled.client, "t", "AAH/", encoding="base64")
    polled.client.post("/topics/t/messages", json={"messages": [{"key": "k", "value": None}]})
    messages = Member(polled.client, "one", "t").poll()
    assert [(each["encoding"], each["value"]) for each in messages] == [
        ("text", "text"), ("base64", "AAH/"), ("text", None),
    ]  # fmt: skip
    messages = Member(polled.client, "two", "t").poll(encoding="base64")
    assert values(messages) == [b64encode(b"text").decode(), "AAH/", None]


def test_a_message_that_comes_again_says_how_often(begin: Begin) -> None:
    polled = begin()
    publish(polled.client, "t", "v")
    member = Member(polled.client, "g", "t")
    (first,) = member.poll()
    answered(settle(polled.client, "nack", first["receipt_handle"], delay="0s"))
    (second,) = member.poll()
    assert (second["offset"], second["deliveries"]) == (0, 2)
    assert second["receipt_handle"] != first["receipt_handle"]


def test_a_poll_that_waits_is_answered_at_once_when_a_message_comes(begin: Begin, pool: ThreadPoolExecutor) -> None:
    polled = begin()
    member = Member(polled.client, "g", "t")
    waiting = pool.submit(member.poll, timeout="25s")
    until(lambda: polled.waiting() == 1)
    publish(polled.client, "t", "here")
    assert values(waiting.result(AT_ONCE_S)) == ["here"]


def test_a_poll_waits_for_thirty_seconds_unless_told_otherwise(begin: Begin, pool: ThreadPoolExecutor) -> None:
    polled = begin()
    member = Member(polled.client, "g", "t")
    path = f"{member.path}/poll?member_id={member.id}"
    waiting = pool.submit(polled.client.get, path)
    until(lambda: polled.waiting() == 1)
    polled.host.begin_stop()
    assert answered(waiting.result(AT_ONCE_S)) == {"messages": []}


def test_a_poll_whose_time_is_over_is_answered_with_nothing(begin: Begin) -> None:
    member = Member(begin().client, "g", "t")
    assert member.poll(timeout="50ms") == []


def test_a_poll_whose_client_has_left_takes_nothing(begin: Begin) -> None:
    polled = begin()
    gone = Member(polled.client, "g", "t", kind="shared")
    with RawConnection(polled.host.port) as connection:
        connection.send(request("GET", f"{gone.path}/poll?member_id={gone.id}&timeout=25s"))
        until(lambda: polled.waiting() == 1)
    until(lambda: polled.waiting() == 0)
    publish(polled.client, "t", "v")
    (message,) = Member(polled.client, "g", "t").poll()
    assert message["deliveries"] == 1


def test_what_a_client_got_and_never_settled_comes_back_when_its_time_is_over(begin: Begin) -> None:
    clock = ManualClock()
    polled = begin(clock=clock)
    publish(polled.client, "t", "v")
    Member(polled.client, "g", "t", kind="shared", settings={"visibility_timeout_ms": "10s"}).poll()
    other = Member(polled.client, "g", "t")
    clock.advance_ms(9_999)
    assert other.poll() == []
    clock.advance_ms(1)
    assert [each["deliveries"] for each in other.poll()] == [2]
    assert answered(polled.client.get("/reliability/stats"))["visibility_timeouts"] == 1


def of_groups(path: Path) -> bool:
    return "__shards" in path.parts


def test_what_was_being_delivered_when_the_client_left_is_anyones_at_once_and_does_not_count(begin: Begin) -> None:
    disk = FaultyFiles()
    polled = begin(clock=ManualClock(), files=disk)
    publish(polled.client, "t", "v")
    gone = Member(polled.client, "g", "t", kind="shared")
    group = polled.host.broker.groups.shards.find("g")
    session = group.runtime.sessions[gone.id]
    with disk.hanging(of_groups) as reached:
        with RawConnection(polled.host.port) as connection:
            connection.send(request("GET", f"{gone.path}/poll?member_id={gone.id}&timeout=25s"))
            until(lambda: reached.is_set() and group.in_flight(gone.id) == 1)
        until(lambda: session.calls == 0)
    assert [each["deliveries"] for each in Member(polled.client, "g", "t").poll()] == [1]


def test_more_polls_than_may_wait_are_told_to_come_back(begin: Begin, pool: ThreadPoolExecutor) -> None:
    polled = begin(max_waiting_reads=1)
    member = Member(polled.client, "g", "t")
    path = f"{member.path}/poll?member_id={member.id}&timeout=25s"
    waiting = pool.submit(polled.client.get, path)
    until(lambda: polled.waiting() == 1)
    answer = ask(polled.host.port, request("GET", path))
    assert (answer.status, answer.json["code"], answer.json["retriable"]) == (503, "overloaded", True)
    assert int(answer.headers["retry-after"]) >= 1
    publish(polled.client, "t", "v")
    assert values(answered(waiting.result(AT_ONCE_S))["messages"]) == ["v"]


def test_at_most_so_many_messages_are_answered_as_are_asked_for(begin: Begin) -> None:
    polled = begin()
    publish(polled.client, "t", *"abc")
    member = Member(polled.client, "g", "t")
    assert [values(member.poll(max_messages=2)) for _ in range(2)] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"timeout": "5"}, "timeout"),
        ({"timeout": "-5s"}, "timeout"),
        ({"timeout": "30001ms"}, "timeout"),
        ({"timeout": ""}, "timeout"),
        ({"max_messages": 0}, "max_messages"),
        ({"max_messages": 1_001}, "limits.max_poll_messages"),
        ({"max_messages": "many"}, "max_messages"),
        ({"encoding": "utf-16"}, "encoding"),
        ({"max_mesages": 1}, "did you mean 'max_messages'"),
    ],
)
def test_a_poll_that_is_wrong_delivers_nothing(begin: Begin, query: dict[str, Any], named: str) -> None:
    polled = begin()
    publish(polled.client, "t", "v")
    member = Member(polled.client, "g", "t")
    assert named in refused(member.ask_poll(**query), 400, "invalid_request")
    assert [each["deliveries"] for each in member.poll()] == [1]


def test_a_poll_names_its_member(begin: Begin) -> None:
    polled = begin()
    Member(polled.client, "g", "t")
    assert "member_id" in refused(polled.client.get("/groups/g/poll"), 400, "invalid_request")


def publish_packed(client: httpx.Client, *packed: bytes) -> None:
    frames = [encode_frame(b"", each, b"", NOW_NS, 2, int(Flag.COMPRESSED)) for each in packed]
    path = "/topics/t/partitions/0/messages"
    assert client.post(path, content=envelope(frames), headers={"content-type": FRAMES}).status_code == 200


def test_values_are_unpacked_as_far_as_the_answer_has_room_and_all_are_answered(begin: Begin) -> None:
    polled = begin(max_read_bytes=100_000)
    publish_packed(polled.client, *[zstandard.compress(b"x" * 30_000)] * 8)
    publish(polled.client, "t", "plain")
    messages = Member(polled.client, "g", "t").poll()
    assert [each["offset"] for each in messages] == list(range(9))
    assert values(messages[:3]) == ["x" * 30_000] * 3
    packed = {"compressed": True, "encoding": "base64", "value": b64encode(zstandard.compress(b"x" * 30_000)).decode()}
    assert all(packed.items() <= each.items() for each in messages[3:8])
    assert messages[8]["value"] == "plain"


def test_a_value_that_is_larger_than_an_answer_is_unpacked_if_it_comes_alone(begin: Begin) -> None:
    polled = begin(max_read_bytes=100_000)
    publish_packed(polled.client, *[zstandard.compress(b"y" * 100_001)] * 2)
    member = Member(polled.client, "g", "t")
    assert [values(member.poll(max_messages=1)) for _ in range(2)] == [["y" * 100_001]] * 2


def test_values_that_cannot_be_unpacked_are_answered_as_they_are(begin: Begin) -> None:
    polled = begin()
    publish_packed(polled.client, b"not zstd", zstandard.compress(b"v"))
    first, second = Member(polled.client, "g", "t").poll()
    assert (first["compressed"], first["value"]) == (True, b64encode(b"not zstd").decode())
    assert second["value"] == "v"


def test_messages_of_several_polls_are_bounded_by_bytes(begin: Begin) -> None:
    polled = begin(max_read_bytes=10_000)
    publish(polled.client, "t", *["z" * 6_000] * 3, "z" * 20_000)
    member = Member(polled.client, "g", "t")
    found: list[dict[str, Any]] = []
    sizes = []
    while messages := member.poll():
        sizes.append(len(messages))
        found += messages
    assert [each["offset"] for each in found] == [0, 1, 2, 3]
    assert max(sizes) < 4


def test_a_message_whose_time_to_live_is_over_is_not_delivered_but_can_be_read(begin: Begin) -> None:
    clock = ManualClock()
    polled = begin(clock=clock)
    publish(polled.client, "t", "short", ttl="10s", headers={"own": "1"})
    publish(polled.client, "t", "long", ttl="1h")
    publish(polled.client, "t", "for ever")
    assert values(Member(polled.client, "early", "t").poll()) == ["short", "long", "for ever"]
    clock.advance_ms(10_000)
    assert values(Member(polled.client, "late", "t").poll()) == ["long", "for ever"]
    assert answered(polled.client.get("/reliability/stats"))["expired"] == 1
    read = answered(polled.client.get("/topics/t/partitions/0/messages"))["messages"]
    assert values(read) == ["short", "long", "for ever"]
    assert read[0]["headers"] == {"own": "1", "goqueue-ttl-ms": "10000"}


def test_a_time_to_live_counts_from_the_messages_timestamp(begin: Begin) -> None:
    clock = ManualClock()
    polled = begin(clock=clock)
    earlier = format_instant_ns(clock.now_ns() - 11_000_000_000)
    publish(polled.client, "t", "stale", ttl="10s", timestamp=earlier)
    assert Member(polled.client, "g", "t").poll() == []


@pytest.mark.parametrize("ttl", ["0s", "10", "-1s", "3651d", "soon", "1s" * 200_000])
def test_a_time_to_live_that_cannot_be_refuses_its_message_only(begin: Begin, ttl: str) -> None:
    polled = begin()
    body = {"messages": [{"value": "a", "ttl": ttl}, {"value": "b"}]}
    wrong, right = answered(polled.client.post("/topics/t/messages", json=body))["results"]
    assert "ttl" in wrong["error"]
    assert (wrong["code"], right["offset"]) == ("invalid_request", 0)


def test_nobody_makes_up_a_time_to_live_in_the_headers(begin: Begin) -> None:
    body = {"messages": [{"value": "a", "headers": {"goqueue-ttl-ms": "1"}}]}
    assert begin().client.post("/topics/t/messages", json=body).json()["code"] == "invalid_message"


def test_a_stream_passes_by_what_expired_and_what_was_redriven_for_another_group(begin: Begin) -> None:
    clock = ManualClock()
    polled = begin(clock=clock)
    publish(polled.client, "t", "rejected")
    publish(polled.client, "t", "expired", ttl="10s")
    answered(settle(polled.client, "reject", Member(polled.client, "g", "t").receipts()[0]))
    until(lambda: polled.client.get("/topics/t/dead-letters").status_code == 200)
    until(lambda: answered(polled.client.post("/topics/t/redrive", json={}))["already"])
    clock.advance_ms(10_000)
    assert values(Member(polled.client, "s", "t", mode="stream").poll()) == ["rejected"]
