"""The tour shows what it says, notices when it is not so, and leaves nothing behind."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from behaviour.waiting import until
from rich.console import Console

from examples.tour import exactly_once, orders, spark, traces
from examples.tour.__main__ import run
from examples.tour.processes import Broker, Processes
from examples.tour.shop import OPENS_AT, Shipments, Shop, make_order
from examples.tour.stage import NotSo, Stage
from examples.tour.worker import shipment
from goqueue import Client, to_json

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "examples.tour", "--no-spark"]
HEADLINES = 8
CHECKS = 15


def processes_of(folder: Path) -> list[str]:
    """What runs with this as its temporary folder, or one below it."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (each / "environ").read_bytes():
                found.append((each / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.timeout(400)
def test_the_tour_shows_what_it_says_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ran = subprocess.run(
        COMMAND, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, timeout=380
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = ran.stdout.splitlines()
    assert [line[0] for line in shown if line[:1].isdigit()][:HEADLINES] == list("12345678")
    assert sum("✓" in line for line in shown) == CHECKS
    assert "Left out. It was asked for: --no-spark." in ran.stdout
    assert f"{CHECKS} checks in " in ran.stdout
    assert ran.stderr == ""
    assert len(shown) < 120
    assert "\x1b" not in ran.stdout, "no colours in a pipe"
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


@pytest.mark.timeout(400)
def test_ctrl_c_ends_it_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        [COMMAND[0], "-u", *COMMAND[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as touring:
        assert touring.stdout is not None
        for line in touring.stdout:
            if "orders shipped in" in line:
                break
        # The tour, its broker and its workers; for a moment those before are gone and those after not there yet.
        until(lambda: len(processes_of(tmp_path)) > 2)
        touring.send_signal(signal.SIGINT)
        _, said = touring.communicate(timeout=60)
        assert touring.returncode == 130, said
    assert "nothing is left behind" in said
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


def test_if_something_is_not_so_it_says_what_and_ends_with_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = io.StringIO()
    processes = Processes()

    def publish_behind_its_back(shop: Shop) -> None:
        with shop.client.producer(serializer=to_json) as producer:
            producer.send_many("orders", [make_order(-1)])

    def look(shop: Shop) -> None:
        shop.check_log()
        raise AssertionError("it has noticed nothing")

    assert run([orders.show, publish_behind_its_back, look], Stage(Console(file=said)), processes) == 1
    assert "✗ This should not be: the log holds {'order': -1" in said.getvalue()
    assert "checks in" not in said.getvalue()
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """With a few topics, and orders that nobody sent."""
    processes = Processes()
    try:
        broker = Broker(processes)
        with Client(broker.address) as client:
            made = Shop(Stage(Console(file=io.StringIO())), processes, broker, client)
            made.orders = {number: make_order(number) for number in range(3)}
            client.create_topic("shipments", partitions=1)
            yield made
    finally:
        processes.clear_up()


def ship(shop: Shop, *numbers: int) -> None:
    with shop.client.producer(serializer=to_json) as producer:
        producer.send_many("shipments", [shipment(make_order(number), "ada", mended=True) for number in numbers])


def test_an_order_that_is_missing_shipped_twice_or_unknown_is_noticed(shop: Shop) -> None:
    ship(shop, 0, 1)
    with pytest.raises(NotSo, match=r"or the reverse: \[2\]"):
        shop.shipments.check(set(shop.orders))
    ship(shop, 2)
    shop.shipments.check(set(shop.orders))
    assert shop.shipments.by_worker == {"ada": 3}
    with pytest.raises(NotSo, match=r"or the reverse: \[2\]"):
        shop.shipments.check({0, 1})
    ship(shop, 1)
    with pytest.raises(NotSo, match="1 orders were shipped more than once; one of them is order 1"):
        shop.shipments.check(set(shop.orders))


def test_a_worker_that_dies_is_noticed_while_others_are_waited_for(shop: Shop) -> None:
    dying = shop.processes.start("examples.tour.worker", "an address and no name", log="bob.log")
    shop.workers["bob"] = dying
    try:
        with pytest.raises(NotSo, match=r"bob ended with 2: .*required: name"):
            Shipments(shop.client, shop.check_workers).wait_for({-1})
    finally:
        shop.workers.clear()
        shop.processes.kill(dying)


def test_money_that_nobody_paid_is_noticed(shop: Shop) -> None:
    aborted = exactly_once.book(shop)
    exactly_once.check_ledger(shop, aborted)
    with pytest.raises(NotSo, match="0 transactions were aborted"):
        exactly_once.check_ledger(shop, 0)
    with shop.client.producer(serializer=to_json) as producer:
        producer.send_many("ledger", [{"account": "shop", "euros": 1}])
    with pytest.raises(NotSo, match="'shop': 126"):
        exactly_once.check_ledger(shop, aborted)


def test_a_story_that_lacks_something_is_noticed(shop: Shop) -> None:
    told = "\n".join(f"09:00:00 | {event} …" for event, times in traces.EVENTS.items() for _ in range(times))
    traces.check_story(shop, told)
    with pytest.raises(NotSo, match="'acked by': 0"):
        traces.check_story(shop, told.replace("acked by", "seen by"))


def test_a_command_that_fails_is_noticed(shop: Shop) -> None:
    with pytest.raises(NotSo, match=r"'goqueue topic describe nowhere' ended with 4: error: .*nowhere"):
        shop.command("topic", "describe", "nowhere")


def test_figures_of_spark_that_are_wrong_missing_or_there_twice_are_noticed(shop: Shop) -> None:
    expected = spark.takings_by_window(shop)
    assert sum(each.orders for each in expected.values()) == len(shop.orders)
    right = {window: [takings] for window, takings in expected.items()}
    spark.check(shop, right, expected)
    window = next(iter(right))
    for wrong in ([], right[window] * 2, [right[window][0] + spark.Takings(0, 1)]):
        with pytest.raises(NotSo, match="of 1 windows the figures are not those of the orders"):
            spark.check(shop, right | {window: wrong}, expected)
    with pytest.raises(NotSo, match="of 1 windows"):
        spark.check(shop, right | {("Oslo", OPENS_AT - timedelta(days=1)): [spark.Takings(1, 1)]}, expected)


def test_without_a_jdk_it_says_what_to_install(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "install one" in spark.missing()
    said = io.StringIO()
    monkeypatch.setattr(shop, "stage", Stage(Console(file=said)))
    spark.show(shop)
    assert "Left out. Spark needs a JDK" in said.getvalue()


def test_the_chart_is_as_high_as_its_highest_value() -> None:
    drawn = spark.chart(["09h", "10h", "11h"], [400, 200, 0])
    assert [line[15:].rstrip() for line in drawn] == [
        *["█████"] * 3,
        *["█████  █████"] * 3,
        "─" * 19,
        " 09h    10h    11h",
    ]
    assert drawn[0].startswith("      4.00 € │")
