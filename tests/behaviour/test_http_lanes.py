"""Priority lanes over HTTP: priorities in what is published and consumed, weights of a topic, figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from behaviour.clock import ManualClock
from behaviour.host import Host, config_for
from behaviour.http_member import Member, answered, publish, refused, settle
from behaviour.waiting import until
from goqueue.api.http.routes import lanes
from goqueue.model.units import format_instant_ns

NAMES = ("critical", "high", "normal", "low", "background")
WEIGHTS = {
    "critical_weight": 50,
    "high_weight": 25,
    "normal_weight": 15,
    "low_weight": 7,
    "background_weight": 3,
    "lane_starvation_ms": 30_000,
}


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("lanes")), http=True, clock=clock)
    yield host
    host.stop()


@pytest.fixture
def client(host: Host) -> Iterator[httpx.Client]:
    """Of a broker with a topic ``t`` of two partitions, and nothing else."""
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        create(client, "t", 2)
        yield client
        for kind in ("groups", "topics"):
            for name in answered(client.get(f"/{kind}"))[kind]:
                for member in members(client, name) if kind == "groups" else []:
                    answered(client.post(f"/groups/{name}/leave", json={"member_id": member}))
                answered(client.delete(f"/{kind}/{name}"))


def members(client: httpx.Client, group: str) -> list[str]:
    return [each["member_id"] for each in answered(client.get(f"/groups/{group}"))["members"]]


def create(client: httpx.Client, topic: str, partitions: int) -> None:
    assert client.post("/topics", json={"name": topic, "num_partitions": partitions}).status_code == 201


def stats(client: httpx.Client, **query: Any) -> dict[str, Any]:
    return dict(answered(client.get("/priority/stats", params=query)))


def places(page: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["topic"], each["partition"]) for each in page["partitions"]]


def every_lane(usual: dict[str, Any], **others: dict[str, Any]) -> dict[str, Any]:
    return {name: others.get(name, usual) for name in NAMES}


# Priorities


def test_a_priority_by_name_or_number_comes_back_in_all_that_is_consumed(host: Host, client: httpx.Client) -> None:
    given = [*NAMES, *range(5), "HIGH", None]
    messages = [{"value": str(at), "priority": priority, "partition": 0} for at, priority in enumerate(given)]
    results = answered(client.post("/topics/t/messages", json={"messages": messages}))["results"]
    expected = [*NAMES, *NAMES, "high", "normal"]
    assert [each["priority"] for each in results] == expected
    read = answered(client.get("/topics/t/partitions/0/messages"))["messages"]
    assert [each["priority"] for each in read] == expected
    polled = Member(client, "g", "t").poll()
    assert {each["value"]: each["priority"] for each in polled} == dict(zip(map(str, range(12)), expected, strict=True))
    answered(settle(client, "reject", [each["receipt_handle"] for each in polled]))
    # No other test here rejects anything.
    until(lambda: host.broker.groups.settling.tally.dead_letters == len(given))
    dead = answered(client.get("/topics/t/dead-letters"))["messages"]
    assert {each["value"]: each["priority"] for each in dead} == dict(zip(map(str, range(12)), expected, strict=True))


@pytest.mark.parametrize("priority", ["urgent", "", "0", 5, -1])
def test_a_priority_that_is_none_refuses_its_own_message_only(client: httpx.Client, priority: str | int) -> None:
    messages = [{"value": "a", "priority": priority}, {"value": "b", "priority": "low"}]
    wrong, right = answered(client.post("/topics/t/messages", json={"messages": messages}))["results"]
    assert (wrong["code"], right["priority"]) == ("invalid_message", "low")
    assert "use one of critical, high, normal, low, background, or 0 to 4" in wrong["error"]


@pytest.mark.parametrize("priority", [True, 1.5, ["high"]])
def test_a_priority_of_the_wrong_type_refuses_the_request(client: httpx.Client, priority: Any) -> None:
    answer = client.post("/topics/t/messages", json={"messages": [{"value": "a", "priority": priority}]})
    refused(answer, 400, "invalid_request")


def test_a_poll_gets_what_is_critical_first_and_a_read_what_came_first(client: httpx.Client) -> None:
    publish(client, "t", *"abc", partition=0, priority="background")
    publish(client, "t", "now", partition=0, priority="critical")
    assert Member(client, "g", "t").poll(max_messages=1)[0]["value"] == "now"
    read = answered(client.get("/topics/t/partitions/0/messages"))["messages"]
    assert [each["value"] for each in read] == ["a", "b", "c", "now"]


# Settings


def test_the_weights_of_a_topic_are_shown_and_can_be_set(client: httpx.Client) -> None:
    shown = answered(client.get("/topics/t"))["settings"]
    assert {name: shown[name] for name in WEIGHTS} == WEIGHTS
    others = {"critical_weight": 1, "background_weight": 1_000, "lane_starvation_ms": "5m"}
    assert client.post("/topics", json={"name": "other", "settings": others}).status_code == 201
    shown = answered(client.get("/topics/other"))["settings"]
    assert (shown["critical_weight"], shown["background_weight"], shown["lane_starvation_ms"]) == (1, 1_000, 300_000)
    changed = answered(client.patch("/topics/t", json={"settings": {"high_weight": 60, "lane_starvation_ms": 1_000}}))
    assert (changed["settings"]["high_weight"], changed["settings"]["lane_starvation_ms"]) == (60, 1_000)
    assert changed["overrides"] == ["high_weight", "lane_starvation_ms"]


@pytest.mark.parametrize(
    "settings", [{"critical_weight": 0}, {"low_weight": 1_001}, {"high_weight": "much"}, {"lane_starvation_ms": "1ms"}]
)
def test_a_weight_that_is_none_changes_nothing(client: httpx.Client, settings: dict[str, Any]) -> None:
    before = answered(client.get("/topics/t"))
    (name,) = settings
    assert name in refused(client.patch("/topics/t", json={"settings": settings}), 400, "invalid_settings")
    assert answered(client.get("/topics/t")) == before


# Figures


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_the_figures_of_a_broker_without_messages(client: httpx.Client, prefix: str) -> None:
    idle = {"lanes": every_lane({"messages": 0, "published": 0, "published_per_second": 0.0}), "groups": []}
    assert answered(client.get(f"{prefix}/priority/stats")) == {
        "messages_by_priority": dict.fromkeys(NAMES, 0),
        "avg_wait_time_by_priority": {},
        "partitions": [{"topic": "t", "partition": number, **idle} for number in (0, 1)],
        "total_partitions": 2,
    }


def test_the_figures_tell_what_came_what_waits_and_how_long_what_was_served_had_waited(
    client: httpx.Client, clock: ManualClock
) -> None:
    publish(client, "t", *"abc", partition=0, priority="critical")
    publish(client, "t", "d", partition=0, priority="low")
    publish(client, "t", "e", partition=1, priority="low")
    member = Member(client, "g", "t")
    clock.advance_ms(1_500)
    (first,) = member.poll(max_messages=1)
    assert (first["priority"], first["partition"]) == ("critical", 0)
    found = stats(client)
    assert found["messages_by_priority"] == {**dict.fromkeys(NAMES, 0), "critical": 3, "low": 2}
    assert found["avg_wait_time_by_priority"] == {"critical": "1s500ms"}
    nothing = {"messages": 0, "published": 0, "published_per_second": 0.0}
    unserved = {"ready": 0, "in_flight": 0, "delivered": 0, "delivered_per_second": 0.0}
    served = {
        "ready": 2,
        "in_flight": 1,
        "delivered": 1,
        "delivered_per_second": 0.017,
        "last_served": format_instant_ns(clock.now_ns()),
        "avg_wait": "1s500ms",
    }
    assert found["partitions"][0] == {
        "topic": "t",
        "partition": 0,
        "lanes": every_lane(
            nothing,
            critical={"messages": 3, "published": 3, "published_per_second": 0.049},
            low={"messages": 1, "published": 1, "published_per_second": 0.016},
        ),
        "groups": [{"group": "g", "lanes": every_lane(unserved, critical=served, low={**unserved, "ready": 1})}],
    }


def test_a_settled_message_is_neither_ready_nor_in_flight(client: httpx.Client) -> None:
    publish(client, "t", "a", partition=0, priority="high")
    (receipt,) = Member(client, "g", "t").receipts()
    answered(settle(client, "ack", receipt))
    (group,) = stats(client, topic="t")["partitions"][0]["groups"]
    high = group["lanes"]["high"]
    assert (high["ready"], high["in_flight"], high["delivered"]) == (0, 0, 1)
    assert stats(client)["messages_by_priority"]["high"] == 1


def test_a_nacked_message_is_ready_again_when_its_delay_is_over(client: httpx.Client) -> None:
    publish(client, "t", "a", partition=0, priority="high")
    (receipt,) = Member(client, "g", "t").receipts()
    answered(settle(client, "nack", receipt, delay="0s"))
    (group,) = stats(client)["partitions"][0]["groups"]
    assert (group["lanes"]["high"]["ready"], group["lanes"]["high"]["in_flight"]) == (1, 0)


def test_a_delayed_message_is_in_no_lane_until_it_is_due(host: Host, client: httpx.Client, clock: ManualClock) -> None:
    publish(client, "t", "a", partition=0, priority="high", delay="1s")
    Member(client, "g", "t")
    assert stats(client)["messages_by_priority"] == dict.fromkeys(NAMES, 0)
    assert stats(client)["partitions"][0]["groups"][0]["lanes"]["high"]["ready"] == 0
    clock.advance_ms(1_000)
    host.thread.run(_ring(host))
    until(lambda: stats(client)["messages_by_priority"]["high"] == 1)
    assert stats(client)["partitions"][0]["groups"][0]["lanes"]["high"]["ready"] == 1


async def _ring(host: Host) -> None:
    host.broker.clockwork.ring()


def test_a_stream_has_no_lanes(client: httpx.Client) -> None:
    publish(client, "t", "a", partition=0)
    Member(client, "readers", "t", mode="stream").poll()
    found = stats(client)
    assert (found["partitions"][0]["groups"], found["avg_wait_time_by_priority"]) == ([], {})


def test_the_figures_of_one_topic(client: httpx.Client) -> None:
    create(client, "other", 1)
    publish(client, "t", "a", priority="low")
    publish(client, "other", "b", priority="low")
    found = stats(client, topic="other")
    assert (places(found), found["total_partitions"]) == ([("other", 0)], 1)
    assert found["messages_by_priority"]["low"] == 1
    assert stats(client)["messages_by_priority"]["low"] == 2


def test_page_by_page_every_partition_is_shown_once_and_the_totals_are_of_all(client: httpx.Client) -> None:
    create(client, "t-1", 3)
    create(client, "u", 1)
    for topic in ("t", "t-1", "u"):
        publish(client, topic, "a", partition=0, priority="low")
    found: list[tuple[str, int]] = []
    query: dict[str, Any] = {}
    while True:
        page = stats(client, limit=2, **query)
        assert (page["messages_by_priority"]["low"], page["total_partitions"]) == (3, 6)
        found += places(page)
        if "next" not in page:
            break
        query = {"after": page["next"]}
    assert found == [("t", 0), ("t", 1), ("t-1", 0), ("t-1", 1), ("t-1", 2), ("u", 0)]
    assert places(stats(client, topic="t-1", after="t-1-1")) == [("t-1", 2)]
    assert places(stats(client, after="t-1")) == [("t-1", 0), ("t-1", 1), ("t-1", 2), ("u", 0)]
    # The topic at which a page ended may be gone meanwhile.
    answered(client.delete("/topics/t-1"))
    assert places(stats(client, after="t-1-1")) == [("u", 0)]


def test_a_page_is_bounded_by_its_groups_too(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(3):
        Member(client, f"g{at}", "t")
    monkeypatch.setattr(lanes, "_MAX_GROUPS", 5)
    first = stats(client)
    assert (places(first), first["next"], len(first["partitions"][0]["groups"])) == ([("t", 0)], "t-0", 3)
    assert places(stats(client, after="t-0")) == [("t", 1)]
    monkeypatch.setattr(lanes, "_MAX_GROUPS", 2)
    (cut,) = stats(client)["partitions"]
    assert (len(cut["groups"]), cut["groups_left_out"]) == (2, 1)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1_001}, "limit"),
        ({"after": ""}, "after"),
        ({"after": "t"}, "after"),
        ({"after": "-1"}, "after"),
        ({"after": "t-x"}, "after"),
        ({"after": "t-" + "1" * 300}, "after"),
        ({"topics": "t"}, "did you mean 'topic'"),
    ],
)
def test_figures_that_are_asked_for_wrongly_are_refused(
    client: httpx.Client, query: dict[str, Any], named: str
) -> None:
    assert named in refused(client.get("/priority/stats", params=query), 400, "invalid_request")


def test_a_topic_that_is_not_there_has_no_figures(client: httpx.Client) -> None:
    refused(client.get("/priority/stats", params={"topic": "not-there"}), 404, "topic_not_found")
