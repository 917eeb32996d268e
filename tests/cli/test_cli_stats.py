"""``goqueue stats`` against a broker in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.commands.stats.stats import gather
from goqueue.cli.commands.stats.stats_view import stats_lines
from goqueue.cli.connection.broker_http import BrokerHttp
from goqueue.cli.figures import broker_figures
from goqueue.cli.terminal.output import plain_text
from goqueue.testing import BrokerProcess, running_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker() as running:
        with running.client() as client:
            for topic, count in (("orders", 30), ("clicks", 5)):
                client.create_topic(topic, partitions=2)
                with client.producer() as producer:
                    producer.send_many(topic, [b"x" * 50] * count)
            with client.producer() as producer:
                producer.send("orders", b"late", delay=3_600).result()
                producer.send("clicks", b"urgent", priority="high").result()
            for group, topics in (("billing", ["orders"]), ("audit", ["clicks"])):
                with client.consumer(group, topics, kind="shared") as consumer:
                    consumer.ack(consumer.poll(2, timeout=30)).result()
        yield running


def stats(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["stats", *arguments], env={"GOQUEUE_SERVER": broker.url})


def cells(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


def test_what_there_is_and_how_it_is(broker: BrokerProcess) -> None:
    shown = stats(broker)
    assert shown.exit_code == 0
    assert f"{broker.url}  ok, takes messages  version " in shown.stdout
    rows = {row[0]: row for row in cells(shown.stdout) if row}
    # A delayed message lies in the log, too.
    assert rows["orders"][1:3] == ["2", "31"]
    assert rows["clicks"][1:3] == ["2", "6"]
    assert rows["group"] == ["group", "lag", "in", "flight", "given", "back", "members"]
    lags = {name: int(rows[name][1]) for name in ("billing", "audit")}
    assert lags == {"billing": 28, "audit": 4}
    order = [row[0] for row in cells(shown.stdout) if row and row[0] in ("orders", "clicks", "billing", "audit")]
    assert order == ["orders", "clicks", "billing", "audit"], "the largest first"
    assert "delays           waiting 1, the next at " in shown.stdout
    assert "deliveries       acked 4\n" in shown.stdout
    assert "transactions     open 0\n" in shown.stdout


def test_as_json_it_is_one_object(broker: BrokerProcess) -> None:
    found = json.loads(stats(broker, "--json").stdout)
    assert found["health"]["status"] == "ok" and found["readiness"]["checks"]
    assert found["topics"]["orders"]["messages"] == 31
    assert {each["group"]: each["lag"] for each in found["groups"]} == {"billing": 28, "audit": 4}
    assert found["delays"]["pending_count"] == 1
    assert sum(found["waiting_by_lane"].values()) == 32
    assert found["reliability"]["acks_total"] == 4
    assert found["broker"]["messages"] == 37 and found["broker"]["disk_free_bytes"] > 0


def test_of_one_topic_only_what_belongs_to_it(broker: BrokerProcess) -> None:
    found = json.loads(stats(broker, "clicks", "--json").stdout)
    assert list(found["topics"]) == ["clicks"]
    assert [(each["group"], each["lag"]) for each in found["groups"]] == [("audit", 4)]
    assert sum(found["waiting_by_lane"].values()) == 4
    text = stats(broker, "clicks").stdout
    assert "clicks" in text and "orders" not in text and "billing" not in text


def test_beside_one_topic_what_is_of_all_topics_is_said_to_be(broker: BrokerProcess) -> None:
    whole, one = (json.loads(stats(broker, *topic, "--json").stdout) for topic in ([], ["clicks"]))
    for name in ("messages", "total_size_bytes"):
        assert one["broker"][name] == whole["broker"][name]
    assert one["topic"] == "clicks" and whole["topic"] is None
    text = stats(broker, "clicks").stdout
    assert "\n  all topics: offsets 37, stored " in text
    before, _, after = text.partition("\nof all topics\n")
    assert "waiting by lane  " in before and "delays " not in before
    assert "delays        waiting 1" in after and "deliveries    acked 4" in after
    assert "all topics" not in stats(broker).stdout


def test_what_waits_in_a_part_of_the_partitions_does_not_pass_for_all(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "partitions)" not in stats(broker).stdout
    monkeypatch.setattr(broker_figures, "MOST_PARTITIONS", 3)
    text = stats(broker).stdout
    found = json.loads(stats(broker, "--json").stdout)
    assert (found["lanes_of_partitions"], found["partitions"]) == (3, 4)
    assert "background 0 (in the first 3 of 4 partitions)\n" in text


def test_what_is_left_out_is_counted(broker: BrokerProcess) -> None:
    text = stats(broker, "--limit", "1").stdout
    assert "1 more topics; --limit shows them" in text and "1 more groups; --limit shows them" in text
    assert "clicks" not in text and "audit" not in text


def test_a_topic_that_does_not_exist_ends_with_4(broker: BrokerProcess) -> None:
    refused = stats(broker, "nowhere")
    assert refused.exit_code == 4 and "nowhere" in refused.stderr and not refused.stdout


def test_no_broker_ends_with_3() -> None:
    refused = CliRunner().invoke(app, ["stats", "--server", "http://127.0.0.1:1"])
    assert refused.exit_code == 3 and "hint: Start a broker" in refused.stderr


def test_what_is_no_broker_is_said_to_be_none(broker: BrokerProcess) -> None:
    refused = CliRunner().invoke(app, ["stats", "--server", f"http://127.0.0.1:{broker.grpc_port}"])
    assert refused.exit_code == 3 and refused.stderr.startswith("error: ") and not refused.stdout


def test_a_broker_that_takes_no_messages_is_a_problem() -> None:
    # More room than any disk has: publishing is refused from the start.
    with running_broker(settings={"storage.min_free_bytes": "16TiB"}) as full:
        shown = stats(full)
        assert shown.exit_code == 5
        assert "degraded, TAKES NO MESSAGES" in shown.stdout
        assert "problem: " in shown.stdout
        as_json = stats(full, "--json")
        assert as_json.exit_code == 5 and json.loads(as_json.stdout)["readiness"]["status"] == "fail"


def test_large_counts_have_their_digits_in_threes(broker: BrokerProcess) -> None:
    found = json.loads(stats(broker, "--json").stdout)
    found["waiting_by_lane"] = {"normal": 6_596_509}
    assert "waiting by lane  normal 6,596,509\n" in plain_text(stats_lines(found, 10)) + "\n"


def test_lines_that_are_too_wide_are_broken_between_figures_and_nowhere_else(broker: BrokerProcess) -> None:
    found = gather(BrokerHttp(broker.url, 60), None)
    found["server"] = "http://a-broker-of-a-shop.in-some-data-centre.example:8080"
    wide = plain_text(stats_lines(found, 20)).splitlines()
    narrow = plain_text(stats_lines(found, 20, 80)).splitlines()
    assert max(map(len, wide)) > 80 >= max(map(len, narrow))
    assert " ".join(wide).split() == " ".join(narrow).split()
    assert any(line.endswith(",") for line in narrow)


def test_markers_of_transactions_do_not_pass_for_messages() -> None:
    with running_broker() as own, own.client() as client:
        client.create_topic("paid", partitions=1)
        with client.producer() as producer:
            for number in range(5):
                with producer.transaction() as transaction:
                    transaction.send("paid", f"{number}")
        shown = stats(own).stdout
        assert next(row for row in cells(shown) if row[:1] == ["topic"])[:3] == ["topic", "partitions", "offsets"]
        assert "offsets " in shown and "messages 10" not in shown
