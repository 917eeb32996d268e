"""Delayed messages over HTTP: publishing, listing, looking at one, taking it back, putting it off, figures."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from behaviour.clock import ManualClock
from behaviour.host import Host, config_for
from behaviour.http_member import Member, answered, refused
from behaviour.load import FRAMES, envelope
from behaviour.waiting import until
from goqueue.model.units import format_instant_ns
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_frame, encode_headers

SECOND_MS = 1_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class WaitingRoom:
    """A topic of three partitions on a broker whose clock stands still until it is told to move."""

    def __init__(self, host: Host, client: httpx.Client, clock: ManualClock, topic: str) -> None:
        self.host = host
        self.client = client
        self.clock = clock
        self.topic = topic
        self.path = f"/topics/{topic}"
        assert client.post("/topics", json={"name": topic, "num_partitions": 3}).status_code == 201

    def ask_publish(self, *messages: dict[str, Any]) -> httpx.Response:
        given = [{"partition": 0, **message} for message in messages]
        return self.client.post(f"{self.path}/messages", json={"messages": given})

    def publish(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        return list(answered(self.ask_publish(*messages))["results"])

    def page(self, **query: Any) -> dict[str, Any]:
        return dict(answered(self.client.get(f"{self.path}/delayed", params=query)))

    def waiting(self) -> list[tuple[int, int]]:
        return [(each["partition"], each["offset"]) for each in self.page()["messages"]]

    def ask(self, offset: int, **query: Any) -> httpx.Response:
        return self.client.get(f"{self.path}/delayed/{offset}", params=query)

    def ask_cancel(self, partition: int, offset: int) -> httpx.Response:
        return self.client.delete(f"{self.path}/delayed/{partition}/{offset}")

    def ask_reschedule(self, partition: int, offset: int, **fields: Any) -> httpx.Response:
        return self.client.patch(f"{self.path}/delayed/{partition}/{offset}", json=fields)

    def visible(self) -> list[str]:
        return [each["value"] for each in answered(self.client.get(f"{self.path}/messages"))["messages"]]

    def at(self, milliseconds: int = 0) -> str:
        """So much later than now."""
        return format_instant_ns(self.clock.now_ns() + milliseconds * 1_000_000)

    def let_pass(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        self.host.thread.run(_ring(self.host))


async def _ring(host: Host) -> None:
    host.broker.clockwork.ring()


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("delays")), http=True, clock=clock)
    yield host
    host.stop()


@pytest.fixture
def room(host: Host, clock: ManualClock, name: str) -> Iterator[WaitingRoom]:
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield WaitingRoom(host, client, clock, name)
        # So that nothing of this test comes due in another.
        answered(client.delete(f"/topics/{name}"))


@pytest.fixture
def own_room(tmp_path: Path) -> Iterator[WaitingRoom]:
    """On a broker of its own, for what is counted over all topics."""
    clock = ManualClock()
    host = Host(config_for(tmp_path, limits={"max_delayed": 4}), http=True, clock=clock)
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield WaitingRoom(host, client, clock, "t")
    host.stop()


# Publishing


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_delayed_message_is_answered_with_its_time_and_seen_by_nobody_before(room: WaitingRoom, prefix: str) -> None:
    body = {"messages": [{"value": "v", "delay": "20s", "partition": 2, "priority": "low"}]}
    answer = answered(room.client.post(f"{prefix}{room.path}/messages", json=body))
    assert answer["results"] == [
        {"partition": 2, "offset": 0, "priority": "low", "delayed": True, "deliverAt": room.at(20 * SECOND_MS)}
    ]
    member = Member(room.client, f"{room.topic}-group", room.topic)
    room.let_pass(20 * SECOND_MS - 100)
    assert (room.visible(), member.poll()) == ([], [])
    room.let_pass(100)
    until(lambda: room.visible() == ["v"])
    (message,) = member.poll()
    assert (message["value"], message["priority"], message["partition"]) == ("v", "low", 2)


def test_a_delayed_message_comes_as_it_was_published_and_tells_where_it_was(room: WaitingRoom) -> None:
    published_ns = room.clock.now_ns()
    given = {"value": "v", "key": "k", "headers": {"h": ["1", "2"]}, "priority": "high", "delay": "5s"}
    (result,) = room.publish(given)
    room.let_pass(5 * SECOND_MS)
    until(room.visible)
    (message,) = answered(room.client.get(f"{room.path}/partitions/0/messages"))["messages"]
    assert message == {
        "partition": 0,
        "offset": result["offset"] + 1,
        "timestamp": room.at(),
        "value": "v",
        "priority": "high",
        "encoding": "text",
        "key": "k",
        "headers": {
            "h": ["1", "2"],
            "goqueue-delayed-timestamp": str(published_ns),
            "goqueue-delayed-offset": str(result["offset"]),
        },
    }


def test_delayed_messages_and_others_may_come_in_one_request(room: WaitingRoom) -> None:
    now, noon = {"value": "now"}, {"value": "noon", "deliverAt": room.at(HOUR_MS)}
    results = room.publish(now, {"value": "soon", "delay": "1s"}, noon, now)
    assert [(each["offset"], each["delayed"]) for each in results] == [(0, False), (1, True), (2, True), (3, False)]
    assert [each.get("deliverAt") for each in results] == [None, room.at(SECOND_MS), room.at(HOUR_MS), None]
    assert room.visible() == ["now", "now"]
    room.let_pass(HOUR_MS)
    until(lambda: room.visible() == ["now", "now", "soon", "noon"])


@pytest.mark.parametrize("fields", [{"delay": "0s"}, {"deliverAt": "2020-01-01T00:00:00Z"}, {"deliverAt": None}])
def test_a_delay_of_nothing_and_a_time_that_has_passed_are_now(room: WaitingRoom, fields: dict[str, Any]) -> None:
    (result,) = room.publish({"value": "v", **fields})
    assert result == {"partition": 0, "offset": 0, "priority": "normal", "delayed": False}
    assert room.visible() == ["v"]


def test_this_very_moment_is_now(room: WaitingRoom) -> None:
    (result,) = room.publish({"value": "v", "deliverAt": room.at()})
    assert result["delayed"] is False


def test_a_time_may_be_given_in_any_zone(room: WaitingRoom) -> None:
    (result,) = room.publish({"value": "v", "deliverAt": "2100-01-01T01:30:00.25+01:30"})
    assert result["deliverAt"] == "2100-01-01T00:00:00.25Z"


WRONG_TIMES = [
    ({"delay": "-1s"}, "invalid_request", "delay"),
    ({"delay": "soon"}, "invalid_request", "delay"),
    ({"delay": "30"}, "invalid_request", "delay"),
    ({"delay": ""}, "invalid_request", "delay"),
    ({"delay": "1000000d"}, "invalid_request", "delay is '1000000d'; 0s to"),
    ({"deliverAt": "tomorrow"}, "invalid_request", "deliverAt"),
    ({"deliverAt": "2030-01-01"}, "invalid_request", "deliverAt"),
    ({"deliverAt": "2030-01-01T00:00:00"}, "invalid_request", "deliverAt"),
    ({"deliverAt": "2200-01-01T00:00:01Z"}, "invalid_message", "2200"),
    ({"deliverAt": "2300-01-01T00:00:00Z"}, "invalid_request", "deliverAt"),
    ({"deliverAt": "1969-12-31T23:59:59Z"}, "invalid_message", "1970"),
]


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [*WRONG_TIMES, ({"delay": "1s", "deliverAt": "2030-01-01T00:00:00Z"}, "invalid_message", "not both")],
)
def test_a_time_that_is_wrong_refuses_its_own_message_only(
    room: WaitingRoom, fields: dict[str, Any], code: str, named: str
) -> None:
    wrong, right = room.publish({"value": "wrong", **fields}, {"value": "right", "delay": "1s"})
    assert (wrong["code"], wrong["retriable"], right["delayed"]) == (code, False, True)
    assert named in wrong["error"]
    assert room.waiting() == [(0, right["offset"])]
    alone = room.ask_publish({"value": "wrong", **fields})
    assert (alone.status_code, alone.json()["code"]) == (400, code)


@pytest.mark.parametrize(
    "fields", [{"delay": 30}, {"deliverAt": 1_900_000_000}, {"deliver_at": "2030-01-01T00:00:00Z"}]
)
def test_a_time_of_the_wrong_type_or_name_refuses_the_request(room: WaitingRoom, fields: dict[str, Any]) -> None:
    refused(room.ask_publish({"value": "v", **fields}), 400, "invalid_request")


def test_more_delayed_messages_than_the_broker_allows_are_refused_for_now(own_room: WaitingRoom) -> None:
    own_room.publish(*[{"value": "v", "delay": "1h"}] * 4)
    answer = own_room.ask_publish({"value": "v", "delay": "1h"})
    assert answer.status_code == 429
    assert (answer.json()["code"], answer.json()["retriable"]) == ("too_many_delayed", False)
    assert own_room.publish({"value": "v"})[0]["delayed"] is False
    answered(own_room.ask_cancel(0, 0))
    assert own_room.publish({"value": "v", "delay": "1h"})[0]["delayed"] is True


# Listing


def test_a_message_that_waits_is_listed_with_all_but_its_value(room: WaitingRoom) -> None:
    published = room.at()
    fields = {"key": "k", "headers": {"h": "1"}, "priority": 0, "ttl": "1h", "partition": 1}
    room.publish({"value": "secret", "delay": "1h", **fields})
    assert room.page() == {
        "messages": [
            {
                "topic": room.topic,
                "partition": 1,
                "offset": 0,
                "deliver_at": room.at(HOUR_MS),
                "timestamp": published,
                "priority": "critical",
                "size_bytes": 6,
                "encoding": "text",
                "key": "k",
                "headers": {"h": "1", "goqueue-ttl-ms": "3600000"},
            }
        ],
        "count": 1,
        "total": 1,
    }


def test_a_topic_in_which_nothing_waits_has_an_empty_list(room: WaitingRoom) -> None:
    room.publish({"value": "v"})
    assert room.page() == {"messages": [], "count": 0, "total": 0}


def test_a_list_is_in_the_order_of_time_over_all_partitions(room: WaitingRoom) -> None:
    for delay, partition in (("3s", 0), ("1s", 2), ("2s", 1), ("500ms", 0), ("1s", 1)):
        room.publish({"value": delay, "delay": delay, "partition": partition})
    assert room.waiting() == [(0, 1), (1, 1), (2, 0), (1, 0), (0, 0)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_page_by_page_everything_is_listed_once(room: WaitingRoom, limit: int) -> None:
    # Many are due at the very same time, in all partitions.
    delays = ("2s", "1s", "1s", "1s")
    room.publish(*({"value": "v", "delay": delays[at % 4], "partition": at % 3} for at in range(14)))
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {}
    while True:
        page = room.page(limit=limit, **query)
        assert (page["count"], page["total"]) == (len(page["messages"]), 14)
        assert page["count"] <= limit
        found += page["messages"]
        if "next" not in page:
            break
        query = {"after": page["next"]}
    places = [(each["deliver_at"], each["partition"], each["offset"]) for each in found]
    assert places == sorted(places)
    assert len(set(places)) == 14


def test_what_becomes_visible_meanwhile_does_not_disturb_who_pages(room: WaitingRoom) -> None:
    room.publish(*({"value": str(at), "delay": f"{at}s"} for at in (1, 2, 3, 4)))
    first = room.page(limit=2)
    room.let_pass(3 * SECOND_MS)
    until(lambda: len(room.visible()) == 3)
    rest = room.page(limit=2, after=first["next"])
    assert ([each["offset"] for each in rest["messages"]], rest["total"], "next" in rest) == ([3], 1, False)


def test_a_key_that_is_not_text_is_listed_in_base64(room: WaitingRoom) -> None:
    raw = b64encode(b"\xff\xfe").decode()
    room.publish(
        {"value": raw, "key": raw, "encoding": "base64", "delay": "1s"}, {"value": "v", "key": "k", "delay": "2s"}
    )
    first, second = room.page()["messages"]
    assert (first["encoding"], first["key"], first["size_bytes"]) == ("base64", raw, 2)
    assert (second["encoding"], second["key"]) == ("text", "k")
    assert [each["encoding"] for each in room.page(encoding="base64")["messages"]] == ["base64", "base64"]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": -1}, "limit"),
        ({"limit": 1_001}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"after": ""}, "after"),
        ({"after": "1-2"}, "after"),
        ({"after": "1-2-x"}, "after"),
        ({"after": "-1-0-0"}, "after"),
        ({"after": "1-0-" + "9" * 200}, "after"),
        ({"encoding": "hex"}, "encoding"),
        ({"before": "1-0-0"}, "no such parameter"),
    ],
)
def test_a_list_that_is_asked_for_wrongly_is_refused(room: WaitingRoom, query: dict[str, Any], named: str) -> None:
    answer = room.client.get(f"{room.path}/delayed", params=query)
    assert named in refused(answer, 400, "invalid_request")


def test_the_last_token_that_could_be_leads_to_an_empty_page(room: WaitingRoom) -> None:
    room.publish({"value": "v", "delay": "1s"})
    assert room.page(after=f"{10**19 - 1}-{10**19 - 1}-{10**19 - 1}") == {"messages": [], "count": 0, "total": 1}


def test_a_topic_that_is_not_there_has_no_list(room: WaitingRoom) -> None:
    refused(room.client.get("/topics/not-there/delayed"), 404, "topic_not_found")
    refused(room.client.get("/topics/not-there/delayed/0"), 404, "topic_not_found")
    refused(room.client.get("/topics/not-there/delayed/0?partition=0"), 404, "topic_not_found")
    refused(room.client.delete("/topics/not-there/delayed/0/0"), 404, "topic_not_found")
    refused(room.client.patch("/topics/not-there/delayed/0/0", json={"delay": "1s"}), 404, "topic_not_found")


# Looking at one


def test_one_that_waits_is_shown_with_its_value(room: WaitingRoom) -> None:
    room.publish({"value": "now", "partition": 1}, {"value": "v", "key": "k", "delay": "1h", "partition": 1})
    (listed,) = room.page()["messages"]
    assert answered(room.ask(1)) == {**listed, "value": "v"}
    assert answered(room.ask(1, partition=1)) == {**listed, "value": "v"}
    assert answered(room.ask(1, encoding="base64")) == {**listed, "value": "dg==", "key": "aw==", "encoding": "base64"}


def test_a_tombstone_that_waits_has_no_value(room: WaitingRoom) -> None:
    room.publish({"value": None, "key": "k", "delay": "1h"})
    shown = answered(room.ask(0))
    assert (shown["value"], shown["size_bytes"]) == (None, 0)


def test_a_packed_value_is_shown_unpacked(room: WaitingRoom) -> None:
    packed = zstandard.compress(b"x" * 5_000)
    headers = encode_headers((due_header(room.clock.now_ns() + 10**9),))
    frame = encode_frame(b"", packed, headers, room.clock.now_ns(), 2, Flag.COMPRESSED | Flag.DELAYED)
    sent = room.client.post(
        f"{room.path}/partitions/0/messages", content=envelope([frame]), headers={"content-type": FRAMES}
    )
    answered(sent)
    shown = answered(room.ask(0))
    assert (shown["value"], shown["size_bytes"], "compressed" in shown) == ("x" * 5_000, len(packed), False)


def test_an_offset_at_which_several_wait_needs_a_partition(room: WaitingRoom) -> None:
    room.publish(*({"value": f"p{number}", "delay": "1h", "partition": number} for number in (0, 2)))
    assert "partitions 0, 2" in refused(room.ask(0), 409, "ambiguous_offset")
    assert answered(room.ask(0, partition=2))["value"] == "p2"
    refused(room.ask(0, partition=1), 404, "delayed_not_found")
    answered(room.ask_cancel(0, 0))
    assert answered(room.ask(0))["value"] == "p2"


def test_what_does_not_wait_is_not_found(room: WaitingRoom) -> None:
    room.publish({"value": "now"}, {"value": "soon", "delay": "1s"})
    for offset in (0, 2, (1 << 63) - 1, 1 << 70, -1):
        assert "no message waits" in refused(room.ask(offset), 404, "delayed_not_found")
        refused(room.ask(offset, partition=0), 404, "delayed_not_found")
        refused(room.ask_cancel(0, offset), 404, "delayed_not_found")
        refused(room.ask_reschedule(0, offset, delay="1s"), 404, "delayed_not_found")
    room.let_pass(SECOND_MS)
    until(lambda: room.visible() == ["now", "soon"])
    refused(room.ask(1), 404, "delayed_not_found")
    refused(room.ask_cancel(0, 1), 404, "delayed_not_found")
    refused(room.ask_reschedule(0, 1, delay="1s"), 404, "delayed_not_found")


def test_a_partition_that_is_not_there_is_named(room: WaitingRoom) -> None:
    room.publish({"value": "soon", "delay": "1s"})
    assert "no partition 3" in refused(room.ask(0, partition=3), 404, "partition_not_found")
    refused(room.ask_cancel(3, 0), 404, "partition_not_found")
    refused(room.ask_cancel(-1, 0), 404, "partition_not_found")
    refused(room.ask_reschedule(3, 0, delay="1s"), 404, "partition_not_found")
    refused(room.ask(0, partition=-1), 400, "invalid_request")


def test_what_is_no_number_is_no_path(room: WaitingRoom) -> None:
    refused(room.client.get(f"{room.path}/delayed/first"), 404, "not_found")
    refused(room.client.delete(f"{room.path}/delayed/0/first"), 404, "not_found")


# Taking back


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_message_that_was_taken_back_is_never_delivered(room: WaitingRoom, prefix: str) -> None:
    room.publish({"value": "gone", "delay": "1s"}, {"value": "stays", "delay": "1s"})
    answer = room.client.delete(f"{prefix}{room.path}/delayed/0/0")
    assert answered(answer) == {"cancelled": True}
    assert room.waiting() == [(0, 1)]
    refused(room.ask_cancel(0, 0), 404, "delayed_not_found")
    room.let_pass(DAY_MS)
    until(lambda: room.visible() == ["stays"])
    assert room.page()["total"] == 0


# Another time


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_message_may_be_put_off(room: WaitingRoom, prefix: str) -> None:
    room.publish({"value": "v", "delay": "1s", "key": "k"})
    (listed,) = room.page()["messages"]
    answer = room.client.patch(f"{prefix}{room.path}/delayed/0/0", json={"delay": "2h"})
    assert answered(answer) == {**listed, "deliver_at": room.at(2 * HOUR_MS)}
    assert room.page()["messages"] == [answered(answer)]
    room.publish({"value": "mark", "delay": "1s"})
    room.let_pass(HOUR_MS)
    until(room.visible)
    assert room.visible() == ["mark"]
    room.let_pass(HOUR_MS)
    until(lambda: room.visible() == ["mark", "v"])


def test_a_message_may_be_brought_forward(room: WaitingRoom) -> None:
    room.publish({"value": "first", "delay": "1h"}, {"value": "second", "delay": "2h"})
    moved = answered(room.ask_reschedule(0, 1, deliverAt=room.at(SECOND_MS)))
    assert (moved["offset"], moved["deliver_at"]) == (1, room.at(SECOND_MS))
    assert room.waiting() == [(0, 1), (0, 0)]
    room.let_pass(SECOND_MS)
    until(lambda: room.visible() == ["second"])


@pytest.mark.parametrize("fields", [{"delay": "0s"}, {"deliverAt": "2020-01-01T00:00:00Z"}])
def test_a_message_may_be_wanted_at_once(room: WaitingRoom, fields: dict[str, Any]) -> None:
    room.publish({"value": "v", "delay": "1h"})
    assert answered(room.ask_reschedule(0, 0, **fields))["offset"] == 0
    until(lambda: room.visible() == ["v"])
    room.let_pass(HOUR_MS)
    assert (room.visible(), room.page()["total"]) == (["v"], 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        *((fields, code) for fields, code, _ in WRONG_TIMES),
        ({}, "invalid_request"),
        ({"delay": None}, "invalid_request"),
        ({"delay": "1s", "deliverAt": "2030-01-01T00:00:00Z"}, "invalid_request"),
        ({"delay": 5}, "invalid_request"),
        ({"deliver_at": "2030-01-01T00:00:00Z"}, "invalid_request"),
        ({"delay": "1s", "priority": "high"}, "invalid_request"),
    ],
)
def test_another_time_that_is_wrong_changes_nothing(room: WaitingRoom, fields: dict[str, Any], code: str) -> None:
    room.publish({"value": "v", "delay": "1h"})
    before = room.page()
    refused(room.ask_reschedule(0, 0, **fields), 400, code)
    assert room.page() == before


# Figures


def test_the_figures_tell_what_waits_and_what_became_of_the_others(own_room: WaitingRoom) -> None:
    nothing = {"pending_count": 0, "delivered_count": 0, "cancelled_count": 0, "rescheduled_count": 0, "lost_count": 0}
    assert answered(own_room.client.get("/delay/stats")) == {**nothing, "avg_delay": "0s"}
    own_room.publish(*({"value": "v", "delay": delay} for delay in ("1s", "2s", "1h", "2h")))
    answered(own_room.ask_cancel(0, 3))
    assert own_room.client.delete("/topics/t/delayed/0/3").status_code == 404
    answered(own_room.ask_reschedule(0, 2, delay="3h"))
    due = own_room.at(3 * HOUR_MS)
    own_room.let_pass(1 * SECOND_MS)
    until(lambda: len(own_room.visible()) == 1)
    own_room.let_pass(1 * SECOND_MS)
    until(lambda: len(own_room.visible()) == 2)
    expected = {
        "pending_count": 1,
        "delivered_count": 2,
        "cancelled_count": 1,
        "rescheduled_count": 1,
        "lost_count": 0,
        "avg_delay": "1s500ms",
        "next_due": due,
    }
    for prefix in ("", "/v1"):
        assert answered(own_room.client.get(f"{prefix}/delay/stats")) == expected


def test_a_timestamp_ahead_of_the_clock_makes_no_negative_average(own_room: WaitingRoom) -> None:
    own_room.publish({"value": "v", "delay": "1s", "timestamp": own_room.at(HOUR_MS)})
    own_room.let_pass(SECOND_MS)
    until(own_room.visible)
    assert answered(own_room.client.get("/delay/stats"))["avg_delay"] == "0s"


def test_a_topic_that_is_deleted_takes_what_waits_with_it(own_room: WaitingRoom) -> None:
    own_room.publish({"value": "v", "delay": "1s"})
    answered(own_room.client.delete("/topics/t"))
    assert answered(own_room.client.get("/delay/stats"))["pending_count"] == 0
    own_room.client.post("/topics", json={"name": "t", "num_partitions": 3})
    own_room.let_pass(HOUR_MS)
    assert (own_room.visible(), own_room.page()["total"]) == ([], 0)
