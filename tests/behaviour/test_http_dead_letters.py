"""Dead letters over HTTP: looking at them with all they know, and sending them back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from behaviour.clock import ManualClock
from behaviour.host import Host, config_for
from behaviour.http_member import Member, answered, publish, refused, settle
from behaviour.load import FRAMES, envelope
from behaviour.waiting import until
from goqueue.model.units import format_instant_ns
from goqueue.wire.frame import Flag, encode_frame

HOUR_MS = 3_600_000


class Mortuary:
    """A topic ``t`` of two partitions, and ways to have messages die."""

    def __init__(self, host: Host, client: httpx.Client, clock: ManualClock) -> None:
        self.host = host
        self.client = client
        self.clock = clock
        assert client.post("/topics", json={"name": "t", "num_partitions": 2}).status_code == 201
        self._died = 0

    def kill(self, *values: str, group: str = "g", reason: str = "no", **fields: Any) -> None:
        publish(self.client, "t", *values, **{"partition": 0, **fields})
        member = Member(self.client, group, "t")
        mine = [each["receipt_handle"] for each in member.poll() if each["value"] in values]
        answered(settle(self.client, "reject", mine, reason=reason))
        self._died += len(values)
        member.leave()
        self.await_dead()

    def await_dead(self) -> None:
        until(lambda: self.host.broker.groups.settling.tally.dead_letters == self._died)

    def browse(self, **query: Any) -> Any:
        return answered(self.client.get("/topics/t/dead-letters", params=query))

    def values(self, **query: Any) -> list[str]:
        return [each["value"] for each in self.browse(**query)["messages"]]

    def redrive(self, **fields: Any) -> Any:
        return answered(self.client.post("/topics/t/redrive", json=fields))

    def now(self) -> str:
        return format_instant_ns(self.clock.now_ns())


@pytest.fixture
def mortuary(tmp_path: Path) -> Iterator[Mortuary]:
    clock = ManualClock()
    host = Host(config_for(tmp_path, http={"max_read_bytes": 100_000}), http=True, clock=clock)
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield Mortuary(host, client, clock)
    host.stop()


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_dead_letter_tells_all_about_itself(mortuary: Mortuary, prefix: str) -> None:
    published = mortuary.now()
    publish(mortuary.client, "t", "other", partition=1)
    mortuary.kill("v", key="k", partition=1, priority="high", headers={"h": "1"}, reason="cannot be read", ttl="1h")
    answer = answered(mortuary.client.get(f"{prefix}/topics/t/dead-letters"))
    assert answer == {
        "dlq_topic": "t.dlq",
        "messages": [
            {
                "partition": 1,
                "offset": 0,
                "timestamp": mortuary.now(),
                "value": "v",
                "priority": "high",
                "encoding": "text",
                "key": "k",
                "headers": {"h": "1"},
                "topic": "t",
                "origin_partition": 1,
                "origin_offset": 1,
                "origin_timestamp": published,
                "group": "g",
                "error": "cannot be read",
                "deliveries": 1,
                "redriven": False,
            }
        ],
    }


def test_the_dead_letter_topic_itself_shows_the_same(mortuary: Mortuary) -> None:
    mortuary.kill("v")
    own = answered(mortuary.client.get("/topics/t.dlq/dead-letters"))
    assert own == mortuary.browse()


def test_who_reads_the_dead_letter_topic_sees_where_they_came_from_and_nothing_internal(mortuary: Mortuary) -> None:
    mortuary.kill("v", headers={"own": "1"})
    (message,) = Member(mortuary.client, "readers", "t.dlq").poll()
    headers = message["headers"]
    assert headers["own"] == "1"
    assert (headers["goqueue-origin-topic"], headers["goqueue-error"]) == ("t", "no")
    assert "goqueue-copy-of" not in headers


def test_dead_letters_are_chosen_by_group_error_and_time(mortuary: Mortuary) -> None:
    mortuary.kill("a", group="g", reason="disk is full")
    mortuary.clock.advance_ms(HOUR_MS)
    noon = mortuary.now()
    mortuary.kill("b", group="h", reason="disk is slow")
    assert mortuary.values() == ["a", "b"]
    assert mortuary.values(group="h") == ["b"]
    assert mortuary.values(error="disk is") == ["a", "b"]
    assert mortuary.values(error="full") == ["a"]
    assert (mortuary.values(since=noon), mortuary.values(until=noon)) == (["b"], ["a"])
    assert mortuary.values(group="g", error="slow") == []


def test_dead_letters_are_browsed_page_by_page(mortuary: Mortuary) -> None:
    mortuary.kill(*"abc")
    mortuary.kill("d", partition=1)
    found, query = [], {}
    while True:
        page = mortuary.browse(limit=2, **query)
        found.append([each["value"] for each in page["messages"]])
        if "next" not in page:
            break
        query = {"from_partition": page["next"]["partition"], "from_offset": page["next"]["offset"]}
    assert found == [["a", "b"], ["c", "d"], []]


@pytest.mark.parametrize("packs", [False, True])
def test_a_page_of_dead_letters_is_bounded_by_its_bytes(mortuary: Mortuary, packs: bool) -> None:
    if packs:
        frame = encode_frame(b"", zstandard.compress(b"x" * 60_000), b"", mortuary.clock.now_ns(), 2, Flag.COMPRESSED)
        path = "/topics/t/partitions/0/messages"
        mortuary.client.post(path, content=envelope([frame] * 3), headers={"content-type": FRAMES})
        mortuary.kill("y")
        mortuary._died += 3
        Member(mortuary.client, "g", "t")
        member = Member(mortuary.client, "h", "t")
        receipts = [each["receipt_handle"] for each in member.poll() if each["value"] != "y"]
        answered(settle(mortuary.client, "reject", receipts))
        mortuary.await_dead()
    else:
        for at in range(3):
            mortuary.kill("x" * 60_000 + str(at))
    found: list[int] = []
    query: dict[str, Any] = {}
    while True:
        page = mortuary.browse(**query)
        assert sum(len(each["value"]) for each in page["messages"]) <= 125_000
        found += [each["offset"] for each in page["messages"]]
        if "next" not in page:
            break
        query = {"from_partition": page["next"]["partition"], "from_offset": page["next"]["offset"]}
    assert found == list(range(4 if packs else 3))


def test_a_dry_run_tells_what_would_happen_and_moves_nothing(mortuary: Mortuary) -> None:
    mortuary.kill(*"abc")
    report = mortuary.redrive(dry_run=True)
    assert report == {"matched": 3, "redriven": 0, "already": 0, "unreachable": 0, "by_topic": {"t": 3}, "more": False}
    assert [each["redriven"] for each in mortuary.browse()["messages"]] == [False] * 3
    assert Member(mortuary.client, "g", "t").poll() == []


def test_redriven_messages_come_back_to_their_own_group_only_and_once(mortuary: Mortuary) -> None:
    mortuary.kill("a", "b", key="k", headers={"h": "1"})
    report = mortuary.redrive()
    assert report == {"matched": 2, "redriven": 2, "already": 0, "unreachable": 0, "by_topic": {"t": 2}, "more": False}
    assert [each["redriven"] for each in mortuary.browse()["messages"]] == [True] * 2
    messages = Member(mortuary.client, "g", "t").poll()
    assert [(each["value"], each["key"], each["deliveries"]) for each in messages] == [("a", "k", 1), ("b", "k", 1)]
    assert messages[0]["headers"].keys() == {"h", "goqueue-origin-timestamp"}
    assert [each["value"] for each in Member(mortuary.client, "others", "t").poll()] == ["a", "b"]
    again = mortuary.redrive()
    assert again == {"matched": 0, "redriven": 0, "already": 2, "unreachable": 0, "by_topic": {}, "more": False}
    stats = answered(mortuary.client.get("/reliability/stats"))
    assert stats["redriven"] == 2


def test_dead_letters_are_redriven_one_by_one_by_filter_and_up_to_a_limit(mortuary: Mortuary) -> None:
    mortuary.kill("a", "b", "c", reason="disk is full")
    mortuary.kill("d", reason="disk is slow")
    assert mortuary.redrive(messages=[{"partition": 0, "offset": 1}])["redriven"] == 1
    assert mortuary.redrive(error="slow")["redriven"] == 1
    assert mortuary.redrive(group="nobody")["matched"] == 0
    limited = mortuary.redrive(limit=1, rate=1_000)
    assert (limited["redriven"], limited["more"]) == (1, True)
    assert [each["value"] for each in Member(mortuary.client, "g", "t").poll()] == ["b", "d", "a"]


def test_what_has_nowhere_to_go_back_to_is_counted_and_holds_up_nothing(mortuary: Mortuary) -> None:
    mortuary.kill("a", group="gone")
    mortuary.kill("b", group="here")
    answered(mortuary.client.delete("/groups/gone"))
    report = mortuary.redrive()
    assert (report["redriven"], report["unreachable"], report["more"]) == (1, 1, False)
    assert [each["redriven"] for each in mortuary.browse()["messages"]] == [False, True]


def test_what_the_broker_knows_of_redriven_messages_is_nobodys_group(mortuary: Mortuary) -> None:
    mortuary.kill("a")
    mortuary.redrive()
    assert "__redrive" not in answered(mortuary.client.get("/groups"))["groups"]
    refused(mortuary.client.delete("/groups/__redrive"), 400, "invalid_group_name")
    assert mortuary.redrive()["already"] == 1


def test_a_topic_without_dead_letters_says_so(mortuary: Mortuary) -> None:
    assert "has no dead letters" in refused(mortuary.client.get("/topics/t/dead-letters"), 404, "topic_not_found")
    refused(mortuary.client.post("/topics/t/redrive", json={}), 404, "topic_not_found")
    refused(mortuary.client.get("/topics/not-there/dead-letters"), 404, "topic_not_found")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 10_001}, "limit"),
        ({"group": ""}, "group"),
        ({"error": "x" * 1_001}, "error"),
        ({"since": "yesterday"}, "yesterday"),
        ({"until": "2026-01-01"}, "2026-01-01"),
        ({"from_partition": -1}, "from_partition"),
        ({"from_offset": -1}, "from_offset"),
        ({"sice": "2026-01-01T00:00:00Z"}, "did you mean 'since'"),
    ],
)
def test_a_search_that_is_wrong_is_refused(mortuary: Mortuary, query: dict[str, Any], named: str) -> None:
    mortuary.kill("a")
    answer = mortuary.client.get("/topics/t/dead-letters", params=query)
    assert named in refused(answer, 400, "invalid_request")


@pytest.mark.parametrize(
    "fields",
    [
        {"limit": 0},
        {"limit": 10_001},
        {"rate": 0},
        {"rate": -1},
        {"rate": 1_000_001},
        {"rate": "fast"},
        {"messages": []},
        {"messages": [{"partition": 0}]},
        {"messages": [{"partition": 0, "offset": 0}] * 10_001},
        {"group": ""},
        {"since": "now"},
        {"dry-run": True},
    ],
)
def test_a_redrive_that_is_wrong_moves_nothing(mortuary: Mortuary, fields: dict[str, Any]) -> None:
    mortuary.kill("a")
    refused(mortuary.client.post("/topics/t/redrive", json=fields), 400, "invalid_request")
    assert [each["redriven"] for each in mortuary.browse()["messages"]] == [False]
