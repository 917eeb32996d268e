"""What ``dlq-triage`` asks a broker before Spark is started, and what it says while it redrives. Without a JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from behaviour.waiting import until

from goqueue.client.sync import Client
from goqueue.model.errors import TopicNotFound
from goqueue.spark.pipelines import dlq_triage
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.summary import Summary
from goqueue.testing import BrokerProcess, running_broker

_DEAD = 8


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With dead letters of a topic in another that has a name of its own."""
    with running_broker(tmp_path_factory.mktemp("data")) as process:
        with process.client() as client:
            client.create_topic("graves", partitions=1)
            client.create_topic("orders", partitions=1, dead_letter_topic="graves")
            client.create_topic("parcels", partitions=1)
            with client.producer() as producer:
                producer.send_many("orders", [f"order {number}" for number in range(_DEAD)])
            with client.consumer("billing", ["orders"], kind="shared") as consumer:
                dead = 0
                while dead < _DEAD:
                    for message in consumer.poll(_DEAD - dead, timeout=10):
                        message.reject(f"no customer {dead}")
                        dead += 1
            # They are moved when the answer has been given.
            until(lambda: sum(1 for _ in client.read("graves")) == _DEAD, 60)
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with broker.client() as client:
        yield client


class Asked(Exception):
    """Spark was asked to read something."""


class WithoutSpark(Context):
    """Tells what would be read, and reads nothing."""

    def read(self, **options: str | int) -> None:  # type: ignore[override]
        raise Asked(options["topics"])


def _context(broker: BrokerProcess, told: list[Progress] | None = None, **given: object) -> Context:
    settings = Settings(dlq_triage.PIPELINE.settings, given)
    return WithoutSpark("dlq-triage", settings, broker.address, "", tell=[].append if told is None else told.append)


def _triaged(broker: BrokerProcess, **given: object) -> Summary:
    return dlq_triage.run(_context(broker, **given))


def test_what_the_broker_knows_is_told_without_spark(broker: BrokerProcess) -> None:
    with pytest.raises(TopicNotFound, match="'order'"):
        _triaged(broker, topic="order")
    for given, note in (
        ({"topic": "parcels"}, "Topic parcels has no dead letters."),
        (
            {"topic": "orders", "group": "biling"},
            "Topic orders has no dead letters of group biling; there is no such group now; did you mean 'billing'?",
        ),
        (
            {"topic": "orders", "group": "billing", "until": "2020-01-01T00:00:00Z"},
            "Topic orders has no dead letters of group billing in this time.",
        ),
    ):
        summary = _triaged(broker, **given)
        assert (summary.numbers, summary.notes) == ({"dead letters": 0}, [note])


@pytest.mark.parametrize("topic", ["orders", "graves"])
def test_dead_letters_are_read_where_they_lie(broker: BrokerProcess, topic: str) -> None:
    with pytest.raises(Asked, match="graves"):
        _triaged(broker, topic=topic, group="billing", since="2020-01-01T00:00:00Z")


def _redriven(broker: BrokerProcess, client: Client, count: int, **given: object) -> tuple[dict[str, int], list[str]]:
    """Of the first so many letters: what is counted, and what was said meanwhile."""
    told: list[Progress] = []
    summary = Summary()
    context = _context(broker, told, topic="orders", redrive="all", **given)
    letters = list(client.dead_letters("orders"))[:count]
    dlq_triage.redrive(context, client, iter(letters), summary)
    return summary.numbers, [f"{each.doing}: {each.done}" for each in told]


def test_progress_counts_what_is_sent_and_a_dry_run_says_that_it_is_one(broker: BrokerProcess, client: Client) -> None:
    numbers, told = _redriven(broker, client, 2, dry_run="true")
    assert (numbers["redriven"], numbers["would be redriven"], numbers["chosen for redrive"]) == (0, 2, 2)
    assert told == ["looking at what would be redriven: 0", "looking at what would be redriven: 2"]
    numbers, told = _redriven(broker, client, 2)
    assert (numbers["redriven"], numbers["chosen, but redriven before"]) == (2, 0)
    assert told == ["redriving: 0", "redriving: 2"]
    numbers, told = _redriven(broker, client, 3)
    assert (numbers["redriven"], numbers["chosen, but redriven before"], numbers["chosen for redrive"]) == (1, 2, 3)
    assert told == ["redriving: 0", "redriving: 1"]
    assert _redriven(broker, client, 0)[0]["chosen for redrive"] == 0


def test_a_slow_redrive_can_be_stopped_between_its_parts(
    broker: BrokerProcess, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two at once, at this rate.
    monkeypatch.setattr(dlq_triage, "_REDRIVE_BATCH_S", 0.002)
    summary = Summary()
    context = _context(broker, topic="orders", redrive="all", rate=1_000)
    context.tell = lambda report: context.stopping.set() if report.done else None
    waiting = [each for each in client.dead_letters("orders") if not each.redriven]
    assert len(waiting) > 2
    dlq_triage.redrive(context, client, iter(waiting), summary)
    assert summary.numbers["redriven"] == 2
