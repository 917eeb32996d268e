"""Finding messages by what happened to them, over HTTP: in memory, in files, after a restart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from behaviour.http_member import Member, answered, refused
from behaviour.traced import SECOND_MS, Traced, kinds, states, traced
from behaviour.waiting import until
from goqueue.model.units import format_instant_ns
from goqueue.wire.trace_context import derived_trace_id


class Shop(Traced):
    """What the searches below look for::

    second  orders/0          orders/1      bills/0
         0  0 "a"  1 "b"      0 "c"
         1                                  0 "a" (delayed until 3, then 1)
         2  0 acked by g      0 rejected by g, dead at once
         3  1 delivered to g                1 acked by h
         4  2 "a"
    """


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with traced(tmp_path_factory.mktemp("search")) as it:
        it.topic("orders", 2)
        it.topic("bills")
        for value, partition in (("a", 0), ("b", 0), ("c", 1)):
            it.publish("orders", value, key=f"key {value}", partition=partition)
        it.let_pass(SECOND_MS)
        it.publish("bills", "a", key="key a", delay="2s")
        it.let_pass(SECOND_MS)
        member = Member(it.client, "g", "orders")
        first = {
            each["value"]: each["receipt_handle"] for each in member.poll(max_messages=1) + member.poll(max_messages=1)
        }
        mine = first | {each["value"]: each["receipt_handle"] for each in member.poll()}
        it.settle("ack", mine["a"])
        it.settle("reject", mine["c"])
        it.until_dead(1)
        it.settle("nack", mine["b"], delay="0s")
        it.let_pass(SECOND_MS)
        member.poll()
        it.settle("ack", Member(it.client, "h", "bills").receipts())
        it.let_pass(SECOND_MS)
        it.publish("orders", "a", key="key a", partition=0)
        yield it


ALL = [("orders", 2), ("orders", 1), ("bills", 0), ("orders/1", 0), ("orders", 0)]


def found(shop: Traced, **query: Any) -> list[tuple[str, int]]:
    traces = shop.search(**query)["traces"]
    return [(each["topic"] + ("/1" if each["partition"] else ""), each["offset"]) for each in traces]


def test_the_latest_come_first(shop: Traced) -> None:
    assert sorted(found(shop)) == sorted(ALL)
    assert found(shop)[0] == ("orders", 2)
    latest = answered(shop.client.get("/traces"))
    assert latest == shop.search()
    assert (latest["count"], latest["complete"]) == (5, True)
    assert answered(shop.client.get("/traces", params={"limit": 2}))["traces"] == latest["traces"][:2]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"topic": "orders"}, [("orders", 2), ("orders", 1), ("orders/1", 0), ("orders", 0)]),
        ({"topic": "orders", "partition": 1}, [("orders/1", 0)]),
        ({"topic": "orders", "partition": 0, "offset": 1}, [("orders", 1)]),
        ({"topic": "orders", "partition": 0, "offset": 1, "status": "error"}, []),
        ({"topic": "orders", "partition": 0, "offset": 1, "status": "pending"}, [("orders", 1)]),
        ({"topic": "bills", "partition": 0, "offset": 1}, [("bills", 0)]),
        ({"topic": "orders.dlq", "partition": 1, "offset": 0}, [("orders/1", 0)]),
        ({"key": "key a"}, [("orders", 2), ("bills", 0), ("orders", 0)]),
        ({"key": "key"}, []),
        ({"key": "key a", "topic": "bills"}, [("bills", 0)]),
        ({"consumer_group": "g"}, [("orders", 1), ("orders/1", 0), ("orders", 0)]),
        ({"consumer_group": "h"}, [("bills", 0)]),
        ({"consumer_group": "nobody"}, []),
        ({"status": "completed"}, [("bills", 0), ("orders", 0)]),
        ({"status": "error"}, [("orders/1", 0)]),
        ({"status": "pending"}, [("orders", 2), ("orders", 1)]),
        ({"status": "completed", "consumer_group": "h"}, [("bills", 0)]),
        ({"slower_than": "1s"}, [("bills", 0), ("orders", 0)]),
        ({"slower_than": "2s"}, []),
        ({"slower_than": "1999ms", "topic": "orders"}, [("orders", 0)]),
        ({"start": 4}, [("orders", 2)]),
        ({"start": 3}, [("orders", 2), ("orders", 1), ("bills", 0)]),
        ({"end": 1}, [("orders", 1), ("orders/1", 0), ("orders", 0)]),
        ({"start": 1, "end": 2}, [("bills", 0)]),
        ({"start": 5}, []),
        ({"start": 2, "end": 2}, []),
        ({"limit": 1, "status": "completed"}, [("bills", 0)]),
        ({"topic": "orders", "key": "key a", "consumer_group": "g", "status": "completed", "end": 3}, [("orders", 0)]),
    ],
)  # fmt: skip
def test_each_criterion_and_several_at_once(
    shop: Traced, query: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    for instant in ("start", "end"):
        if instant in query:
            query = {**query, instant: shop.after(query[instant])}
    assert found(shop, **query) == expected


def test_what_a_search_tells_is_the_whole_story(shop: Traced) -> None:
    for trace in shop.search()["traces"]:
        assert trace == shop.trace(trace["trace_id"])


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"topic": "nowhere"}, 404, "topic_not_found"),
        ({"topic": "orders", "partition": 2}, 404, "partition_not_found"),
        ({"topic": "orders", "partition": 10**30}, 404, "partition_not_found"),
        ({"topic": "orders", "partition": 0, "offset": 99}, 404, "trace_not_found"),
        ({"topic": "orders", "partition": 0, "offset": 10**30}, 404, "trace_not_found"),
        ({"topic": "orders", "partition": 0, "offset": 1 << 64}, 404, "trace_not_found"),
        ({"partition": 0}, 400, "invalid_request"),
        ({"topic": "orders", "offset": 0}, 400, "invalid_request"),
        ({"topic": "orders", "partition": -1}, 400, "invalid_request"),
        ({"topic": "orders", "partition": 0, "offset": -1}, 400, "invalid_request"),
        ({"topic": "orders", "partition": "x"}, 400, "invalid_request"),
        ({"topic": "x" * 1_001}, 400, "invalid_request"),
        ({"consumer_group": "x" * 1_001}, 400, "invalid_request"),
        ({"status": "lost"}, 400, "invalid_request"),
        ({"status": ""}, 400, "invalid_request"),
        ({"key": ""}, 400, "invalid_request"),
        ({"slower_than": "soon"}, 400, "invalid_request"),
        ({"slower_than": "-1s"}, 400, "invalid_request"),
        ({"slower_than": "99999d"}, 400, "invalid_request"),
        ({"start": "yesterday"}, 400, "invalid_request"),
        ({"start": "2030-01-02T00:00:00Z", "end": "2030-01-01T00:00:00Z"}, 400, "invalid_request"),
        ({"limit": 0}, 400, "invalid_request"),
        ({"limit": 1_001}, 400, "invalid_request"),
        ({"limit": "all"}, 400, "invalid_request"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_for_is_told(shop: Traced, query: dict[str, Any], status: int, code: str) -> None:
    refused(shop.client.get("/traces/search", params=query), status, code)


def test_figures_tell_how_messages_fare(shop: Traced) -> None:
    stats = shop.stats()
    assert {name: stats[name] for name in ("traces_total", "traces_completed", "traces_error")} == {
        "traces_total": 5, "traces_completed": 2, "traces_error": 1
    }  # fmt: skip
    assert {stats[name] for name in ("avg_latency", "p50_latency", "p99_latency", "slowest")} == {"2.000s"}
    assert (stats["sampling"], stats["dropped"], stats["exported"]) == (1.0, {"file": 0}, {})
    assert stats["events_total"] == stats["events_in_memory"] > 10
    shop.until_written()
    assert shop.stats()["file_bytes"] > 1_000


def test_as_many_as_are_asked_for(tmp_path: Path) -> None:
    with traced(tmp_path) as it:
        it.topic("t")
        it.publish("t", *(str(number) for number in range(1_200)), key="k")
        for query in ({}, {"key": "k"}, {"status": "pending"}):
            assert it.found(limit=1_000, **query) == [("t", offset) for offset in range(1_199, 199, -1)]


def test_what_is_older_than_memory_is_found_in_files(tmp_path: Path) -> None:
    with traced(tmp_path, trace={"memory_events": 100}) as it:
        it.topic("t")
        it.publish("t", "old", key="old")
        member = Member(it.client, "g", "t")
        it.settle("ack", member.receipts())
        it.let_pass(SECOND_MS)
        for number in range(300):
            it.publish("t", str(number))
        # Whether they are written by now or not, nothing is missing and nothing told twice.
        for _ in range(2):
            story = it.at("t", 0)
            assert (kinds(story), story["status"]) == (["publish", "consume", "ack"], "completed")
            assert it.search(key="old")["traces"] == it.search(end=it.now())["traces"] == [story]
            latest = it.found(limit=1_000)
            assert latest == [("t", offset) for offset in range(300, 0, -1)][: len(latest)]
            assert it.found(topic="t", limit=1_000) == [("t", offset) for offset in range(300, -1, -1)]
            it.until_written()
        assert it.stats()["events_in_memory"] == 100
        it.restart()
        assert it.at("t", 0) == story
        assert it.found(topic="t", limit=1_000) == [("t", offset) for offset in range(300, -1, -1)]
        it.publish("t", "more")
        assert it.found(topic="t", limit=1_000) == [("t", offset) for offset in range(301, -1, -1)]


def test_a_message_published_before_all_that_is_kept_is_found_by_what_happened_since(tmp_path: Path) -> None:
    with traced(tmp_path, trace={"memory_events": 100, "exporters": ""}) as it:
        it.topic("t")
        it.publish("t", "old", "dead")
        it.publish("t", "late", delay="1s")
        for number in range(150):
            it.publish("t", str(number))
        it.let_pass(SECOND_MS)
        member = Member(it.client, "g", "t")
        mine = {each["value"]: each["receipt_handle"] for each in member.poll(max_messages=1_000)}
        it.settle("reject", mine["dead"])
        it.until_dead(1)
        it.let_pass(SECOND_MS)
        it.settle("ack", [mine["old"], mine["late"]])
        old, late = (kinds(it.at("t", offset)) for offset in (0, 2))
        assert (old, late) == (["publish", "consume", "ack"], ["publish", "fired", "consume", "ack"])
        assert it.at("t", 0)["events"][0]["attributes"] == {"source": "log"}
        recent = {each["offset"]: each for each in it.search(status="completed")["traces"]}
        assert recent == {0: it.at("t", 0), 2: it.at("t", 2)}
        assert it.found(status="error") == [("t", 1)]
        assert "file" not in it.stats()["dropped"]


def test_without_tracing_the_log_and_the_groups_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What nobody notes is not put together either.
    monkeypatch.delattr("goqueue.broker.events.event_recorder.joined")
    with traced(tmp_path, trace={"sampling": 0.0}) as it:
        it.topic("t")
        it.publish("t", *"ab")
        it.settle("ack", Member(it.client, "g", "t").receipts(max_messages=1))
        story = it.at("t", 0)
        assert it.timeline(story) == [(0, "publish", {"source": "log"})]
        assert (story["status"], states(story)) == ("completed", [("g", "settled")])
        assert (it.at("t", 1)["status"], states(it.at("t", 1))) == ("pending", [("g", "waiting")])
        assert it.found() == []
        assert 'goqueue_messages_acked_total{group="g",topic="t"} 1' in it.client.get("/metrics").text
        assert not (tmp_path / "traces").exists()
        refused(it.client.get(f"/traces/{derived_trace_id('t', 0, 2)}"), 404, "trace_not_found")


def test_without_events_a_dead_letter_tells_what_became_of_its_message(tmp_path: Path) -> None:
    with traced(tmp_path, trace={"sampling": 0.0}) as it:
        it.topic("t")
        it.publish("t", *(str(number) for number in range(12)))
        member = Member(it.client, "g", "t")
        mine = member.receipts()
        it.let_pass(SECOND_MS)
        it.settle("reject", mine[11], reason="other")
        it.until_dead(1)
        it.settle("reject", mine[1], reason="no such customer")
        it.until_dead(2)
        story = it.at("t", 1)
        dead = {"group": "g", "reason": "no such customer", "source": "log"}
        to = {"topic": "t.dlq", "partition": 0, "offset": 1}
        assert it.timeline(story) == [(0, "publish", {"source": "log"}), (1, "dlq", {**dead, "to": to})]
        assert (story["status"], states(story)) == ("error", [("g", "dead-lettered")])
        # What is looked through for it counts.
        it.host.broker.traces._search_bytes = 10
        assert it.at("t", 1)["complete"] is False


def test_offsets_that_a_crash_has_freed_have_only_their_new_story(tmp_path: Path) -> None:
    with traced(tmp_path) as it:
        it.topic("t")
        it.publish("t", "kept")
        it.publish("t", "lost")
        it.settle("ack", Member(it.client, "g", "t").receipts())
        log = it.host.broker.topic("t").partition(0).log
        it.client.close()
        it.host.stop()
        (segment,) = Path(log.folder).glob("*.log")
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size // 2)
        for checkpoint in tmp_path.rglob("*checkpoint*"):
            checkpoint.unlink()
        it.clock.advance_ms(SECOND_MS)
        it.host.start()
        it._connect()
        gone = it.at("t", 1)
        assert (kinds(gone), gone["status"]) == (["publish", "consume", "ack", "cut"], "completed")
        assert it.publish("t", "new")[0]["offset"] == 1
        assert [event for _, event, _ in it.timeline(it.at("t", 1))] == ["publish"]
        assert it.timeline(it.at("t", 1))[0][0] == 1
        assert [kinds(each) for each in it.search(start=it.after(1))["traces"]] == [["publish"]]


def test_what_a_damaged_file_has_lost_the_log_tells(tmp_path: Path) -> None:
    with traced(tmp_path) as it:
        it.topic("t")
        it.publish("t", *"abc")
        it.until_written()
        it.client.close()
        it.host.stop()
        (file,) = (tmp_path / "traces").glob("*.jsonl")
        file.write_bytes(b"\xff\x00garbage\n" + file.read_bytes()[:-5])
        it.host.start()
        it._connect()
        assert it.timeline(it.at("t", 0)) == [(0, "publish", {"source": "log"})]


def test_only_one_searches_at_a_time_and_no_crowd_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with traced(tmp_path) as it, ThreadPoolExecutor(40) as pool:
        it.topic("t")
        it.publish("t", "v")
        go_on = threading.Event()
        searching: list[int] = []
        files = it.host.broker.tracing.files
        assert files is not None
        search = files.search

        def slow(*args: Any) -> Any:
            searching.append(1)
            go_on.wait(30)
            yield from search(*args)

        monkeypatch.setattr(files, "search", slow)
        asked = [pool.submit(it.client.get, "/traces/search", params={"topic": "t"}) for _ in range(30)]
        until(lambda: sum(each.done() for each in asked) == 10)
        assert len(searching) == 1
        # Everyone else goes on meanwhile.
        it.publish("t", "w")
        go_on.set()
        codes = sorted(each.result().status_code for each in asked)
    assert codes == [200] * 20 + [503] * 10


def test_a_search_that_may_not_read_everything_says_so(tmp_path: Path) -> None:
    with traced(tmp_path, trace={"memory_events": 100, "search_bytes": 1 << 20}) as it:
        it.topic("t")
        it.publish("t", "old")
        files = it.host.broker.tracing.files
        assert files is not None
        it.let_pass(SECOND_MS)
        tracer = it.host.broker.tracing.tracer
        event = tracer.recent[-1]
        it.host.thread.run(_note(tracer, event, 30_000))
        it.until_written()
        found = it.search(start=format_instant_ns(0), end=it.now(), limit=1)
        assert (found["complete"], found["count"]) == (False, 1)
        assert it.at("t", 0)["complete"] is False


async def _note(tracer: Any, event: Any, times: int) -> None:
    for _ in range(times):
        tracer.note(event)
