"""Figures over HTTP: what they say of a real broker at work, how they are written, and how many there can be."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as plain_families

from behaviour.clock import ManualClock
from behaviour.host import Host, config_for
from behaviour.http_member import Member, answered, publish, settle
from behaviour.scraped import scrape
from behaviour.waiting import until
from goqueue.broker.metrics.metric_families import FAMILIES

ROOT = Path(__file__).parents[2]
_NAMES = """
goqueue_build_info goqueue_topics goqueue_groups goqueue_disk_free_bytes goqueue_disk_min_free_bytes goqueue_ready
goqueue_failed_partitions goqueue_damaged_messages goqueue_connections
goqueue_messages_published_total goqueue_published_bytes_total goqueue_messages_read_total goqueue_read_bytes_total
goqueue_messages_delivered_total goqueue_messages_redelivered_total goqueue_messages_acked_total
goqueue_messages_nacked_total goqueue_messages_rejected_total goqueue_visibility_timeouts_total
goqueue_messages_dead_lettered_total goqueue_messages_expired_total goqueue_messages_redriven_total
goqueue_messages_discarded_total goqueue_messages_lost_total goqueue_messages_refused_total
goqueue_group_lag_messages goqueue_group_in_flight_messages goqueue_group_waiting_messages goqueue_group_members
goqueue_group_rebalances_total goqueue_lane_delivered_total goqueue_lane_wait_seconds_total
goqueue_delayed_messages goqueue_delayed_fired_total goqueue_delayed_cancelled_total goqueue_delayed_rescheduled_total
goqueue_delay_error_seconds
goqueue_transactions goqueue_oldest_transaction_seconds goqueue_transactions_overdue goqueue_transactions_held_up
goqueue_transactions_begun_total goqueue_transactions_committed_total goqueue_transactions_aborted_total
goqueue_transactions_timed_out_total goqueue_transaction_seconds goqueue_known_producers goqueue_producers_fenced_total
goqueue_known_batches_total goqueue_known_dedup_ids
goqueue_topic_partitions goqueue_topic_segments goqueue_topic_size_bytes goqueue_partition_start_offset
goqueue_partition_end_offset goqueue_partition_stable_offset goqueue_fsync_rounds_total
goqueue_publish_seconds goqueue_fsync_seconds goqueue_end_to_end_seconds goqueue_request_seconds
goqueue_event_loop_delay_seconds goqueue_requests_total
goqueue_trace_events_total goqueue_trace_dropped_total goqueue_trace_file_bytes goqueue_trace_spans_exported_total
goqueue_log_lines_suppressed_total
process_cpu_seconds_total process_resident_memory_bytes process_virtual_memory_bytes process_open_fds process_max_fds
process_start_time_seconds python_gc_collections_total
"""


def connect(host: Host) -> httpx.Client:
    return httpx.Client(base_url=host.url, timeout=30, trust_env=False)


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("metrics")), http=True, clock=clock)
    yield host
    host.stop()


@pytest.fixture
def client(host: Host) -> Iterator[httpx.Client]:
    """Of a broker with a topic ``t`` of two partitions, and nothing else."""
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        create(client, "t", 2)
        yield client
        for group in answered(client.get("/groups"))["groups"]:
            for member in answered(client.get(f"/groups/{group}"))["members"]:
                answered(client.post(f"/groups/{group}/leave", json={"member_id": member["member_id"]}))
            answered(client.delete(f"/groups/{group}"))
        for topic in answered(client.get("/topics"))["topics"]:
            answered(client.delete(f"/topics/{topic}"))


def create(client: httpx.Client, topic: str, partitions: int) -> None:
    assert client.post("/topics", json={"name": topic, "num_partitions": partitions}).status_code == 201


# What there is


def test_every_figure_is_there_with_its_meaning_and_none_other(client: httpx.Client) -> None:
    written = client.get("/metrics")
    assert written.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert re.findall(r"^# HELP (\S+) \S+", written.text, re.MULTILINE) == [each.name for each in FAMILIES]
    assert re.findall(r"^# TYPE (\S+) \S+", written.text, re.MULTILINE) == [each.name for each in FAMILIES]
    assert sorted(_NAMES.split()) == sorted(each.name for each in FAMILIES)
    strict = scrape(client).families
    assert list(strict) == [each.stem for each in FAMILIES]
    assert {each.documentation for each in strict.values()} == {each.help for each in FAMILIES}


def test_labels_are_those_that_are_documented(client: httpx.Client) -> None:
    publish(client, "t", "a")
    Member(client, "g", "t").poll()
    for family, found in zip(FAMILIES, scrape(client).families.values(), strict=True):
        for sample in found.samples:
            assert set(sample.labels) - {"le"} == set(family.labels), sample


def test_the_page_in_the_documentation_has_every_figure() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [
        (each.name, each.kind, ", ".join(f"`{label}`" for label in each.labels), each.help) for each in FAMILIES
    ]


def test_both_formats_have_the_same_series(client: httpx.Client) -> None:
    publish(client, "t", "a")

    def series(families: Any) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        return {(each.name, frozenset(each.labels.items())) for family in families for each in family.samples}

    # Twice, so that the requests themselves have been counted.
    for _ in range(2):
        plain = series(plain_families(client.get("/metrics").text))
        strict = series(scrape(client).families.values())
    assert plain == strict
    assert len(plain) > 100


# What figures say


def test_publishing_is_counted_by_topic_and_lane(client: httpx.Client) -> None:
    before = scrape(client)
    publish(client, "t", "a", "b", "c", partition=0)
    publish(client, "t", "d", "e", partition=1, priority="critical")
    publish(client, "t", "later", partition=1, delay="1h")
    client.post("/topics/t/messages", json={"messages": [{"value": "x", "partition": 9}]})
    mixed = [{"value": "now", "partition": 0}, {"value": "late", "partition": 0, "delay": "1h"}]
    answered(client.post("/topics/t/messages", json={"messages": mixed}))
    found = scrape(client)
    assert found.all("messages_published_total", "lane", topic="t") == {
        "critical": 2,
        "high": 0,
        "normal": 4,
        "low": 0,
        "background": 0,
    }
    # A frame has 34 bytes and its value.
    assert found("published_bytes_total", topic="t") == 5 * 35 + 34 + len("now")
    assert found("topic_partitions", topic="t") == 2
    assert found("topic_segments", topic="t") == 2
    assert found.all("partition_end_offset", "partition", topic="t") == {"0": 5, "1": 3}
    assert found.all("partition_start_offset", "partition", topic="t") == {"0": 0, "1": 0}
    assert (found("topics"), found("groups"), found("ready"), found("delayed_messages")) == (1, 0, 1, 2)
    assert found.since(before, "publish_seconds_count") == 8
    assert found("fsync_seconds_count") == found("fsync_rounds_total")
    size_bytes = found("topic_size_bytes", topic="t")
    assert size_bytes is not None
    assert size_bytes > 8 * 34


def test_reading_by_offset_is_counted_and_reading_in_a_group_is_not(client: httpx.Client) -> None:
    publish(client, "t", *"abcde", partition=0)
    path = "/topics/t/partitions/0/messages"
    assert len(answered(client.get(path, params={"limit": 3}))["messages"]) == 3
    frames = client.get(path, params={"offset": 3}, headers={"accept": "application/vnd.goqueue.frames"})
    assert frames.status_code == 200
    Member(client, "g", "t").poll()
    found = scrape(client)
    assert found("messages_read_total", topic="t") == 5
    assert found("read_bytes_total", topic="t") == 5 * 35


def test_a_group_tells_what_became_of_its_messages(client: httpx.Client, clock: ManualClock) -> None:
    publish(client, "t", *"abcdef", partition=0)
    publish(client, "t", "g", partition=1, ttl="1s")
    clock.advance_ms(2_000)
    member = Member(client, "g", "t")
    receipts = member.receipts()
    assert len(receipts) == 6
    answered(settle(client, "ack", receipts[:2]))
    answered(settle(client, "nack", receipts[2], delay="0s"))
    answered(settle(client, "nack", receipts[3], delay="1h"))
    answered(settle(client, "reject", receipts[4]))
    until(lambda: scrape(client)("messages_dead_lettered_total", group="g", topic="t") == 1)
    again = member.receipts()
    assert len(again) == 1
    found, pair = scrape(client), {"group": "g", "topic": "t"}
    assert found("messages_delivered_total", **pair) == 6
    assert found("messages_redelivered_total", **pair) == 1
    assert found("messages_acked_total", **pair) == 2
    assert found("messages_nacked_total", **pair) == 2
    assert found("messages_rejected_total", **pair) == 1
    assert found("messages_dead_lettered_total", **pair) == 1
    assert found("messages_expired_total", **pair) == 1
    assert found("visibility_timeouts_total", **pair) == 0
    assert found("group_in_flight_messages", **pair) == 2
    assert found("group_waiting_messages", **pair) == 1
    assert found.all("group_lag_messages", "partition", group="g", topic="t") == {"0": 3, "1": 0}
    assert found("group_members", group="g") == 1
    assert found("group_rebalances_total", group="g") == 1
    assert found("lane_delivered_total", group="g", lane="normal") == 7
    assert found("lane_wait_seconds_total", group="g", lane="normal") == 14.0
    # Only first deliveries tell how fast messages get here.
    assert found("end_to_end_seconds_count", group="g") == 6
    assert found("end_to_end_seconds_sum", group="g") == 12.0
    assert found("end_to_end_seconds_bucket", group="g", le="1.0") == 0
    assert found("end_to_end_seconds_bucket", group="g", le="2.5") == 6

    clock.advance_ms(60_000)
    until(lambda: scrape(client)("visibility_timeouts_total", **pair) == 2)
    answered(client.post("/topics/t/redrive", json={}))
    until(lambda: scrape(client)("messages_redriven_total", topic="t") == 1)


def test_a_stream_counts_like_a_queue_where_it_can(client: httpx.Client) -> None:
    publish(client, "t", *"abc", partition=0)
    member = Member(client, "g", "t", settings={"mode": "stream", "kind": "sticky"})
    assert len(member.poll()) == 3
    answered(member.ask_commit("t", {"0": 2}))
    found, pair = scrape(client), {"group": "g", "topic": "t"}
    assert found("messages_delivered_total", **pair) == 3
    assert found("messages_acked_total", **pair) == 2
    assert found("end_to_end_seconds_count", group="g") == 3
    assert found.all("group_lag_messages", "partition", group="g", topic="t") == {"0": 1, "1": 0}


def test_delays_tell_how_late_they_are(client: httpx.Client, clock: ManualClock) -> None:
    before = scrape(client)
    publish(client, "t", "a", "b", partition=0, delay="10s")
    publish(client, "t", "c", "d", "e", partition=0, delay="1h")
    answered(client.delete("/topics/t/delayed/0/2"))
    answered(client.patch("/topics/t/delayed/0/3", json={"delay": "2h"}))
    found = scrape(client)
    assert found("delayed_messages") == 4
    changes = ("delayed_cancelled_total", "delayed_rescheduled_total", "delayed_fired_total")
    assert [found.since(before, name) for name in changes] == [1, 1, 0]
    clock.advance_ms(13_000)
    until(lambda: scrape(client).since(before, "delay_error_seconds_count") == 2)
    found = scrape(client)
    assert (found("delayed_messages"), found.since(before, "delayed_fired_total")) == (2, 2)
    assert found.since(before, "delay_error_seconds_sum") == 6.0
    assert found("messages_published_total", topic="t", lane="normal") == 2


def test_requests_are_counted_by_their_pattern_and_answer(client: httpx.Client) -> None:
    before = scrape(client)
    publish(client, "t", "a")
    assert client.post("/v1/topics/t/messages", json={"messages": []}).status_code == 400
    assert client.post("/topics/nowhere/messages", json={"messages": [{"value": "a"}]}).status_code == 404
    assert client.get("/topics/t").status_code == client.get("/v1/topics/t").status_code == 200
    for path in ("/nowhere", "/topics/t/what", "/wp-admin.php", '/"}{'):
        assert client.get(path).status_code == 404
    assert client.delete("/topics").status_code == 405
    assert client.post("/topics", headers={"origin": "http://elsewhere.example"}, json={}).status_code == 403
    assert client.request("BREW", "/topics").status_code == 400
    found = scrape(client)

    def counted(endpoint: str) -> dict[str, float]:
        was = before.all("requests_total", "code", endpoint=endpoint, api="http")
        now = found.all("requests_total", "code", endpoint=endpoint, api="http")
        return {code: count - was.get(code, 0) for code, count in now.items() if count > was.get(code, 0)}

    assert counted("POST /topics/{topicName}/messages") == {"200": 1, "400": 1, "404": 1}
    assert counted("GET /topics/{topicName}") == {"200": 2}
    assert counted("__other") == {"404": 4, "405": 1, "403": 1, "400": 1}
    # A request is counted when it has ended: the scrape before is, this one is not yet.
    assert counted("GET /metrics") == {"200": 1}
    timed = {"api": "http", "endpoint": "GET /topics/{topicName}"}
    assert found.since(before, "request_seconds_count", **timed) == 2
    assert found("connections", api="http") == 1


def test_the_process_and_its_loop_are_there(client: httpx.Client) -> None:
    until(lambda: (scrape(client)("event_loop_delay_seconds_count") or 0) > 0)
    families = scrape(client).families
    for name in ("process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"):
        assert families[name].samples[0].value > 0
    assert {sample.labels["generation"] for sample in families["python_gc_collections"].samples} == {"0", "1", "2"}
    assert families["goqueue_build"].samples[0].labels.keys() == {"version", "python"}


def test_a_topic_that_is_made_again_begins_at_nothing(client: httpx.Client) -> None:
    publish(client, "t", "a", partition=0)
    Member(client, "g", "t").poll()
    assert scrape(client)("published_bytes_total", topic="t") == 35
    answered(client.delete("/topics/t"))
    found = scrape(client)
    assert found.all("published_bytes_total", "topic") == {}
    assert found.all("messages_delivered_total", "topic") == {}
    create(client, "t", 3)
    found = scrape(client)
    assert found("published_bytes_total", topic="t") == 0
    assert found.all("partition_end_offset", "partition", topic="t") == {"0": 0, "1": 0, "2": 0}


# Asking at a bad time


def test_topics_and_groups_may_go_while_figures_are_put_together(host: Host, client: httpx.Client) -> None:
    create(client, "many", 300)
    member = Member(client, "g", "many", "t")

    async def change_meanwhile() -> list[bytes]:
        broker = host.broker
        scrapes = [asyncio.create_task(broker.metrics.scrape(openmetrics=True)) for _ in range(5)]
        await asyncio.sleep(0)
        await broker.delete_topic("many")
        await broker.groups.membership.leave("g", member.id)
        await broker.groups.delete("g")
        return await asyncio.gather(*scrapes)

    texts = host.thread.run(change_meanwhile())
    assert all(text.endswith(b"# EOF\n") for text in texts)
    assert scrape(client)("groups") == 0
