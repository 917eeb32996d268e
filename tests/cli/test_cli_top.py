"""``goqueue top`` against a broker in a process of its own: on a screen, in a pipe, and while the broker is away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from behaviour.terminal import Terminal
from behaviour.waiting import until
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.commands.stats.top import _print_readings
from goqueue.cli.commands.stats.top_view import ScreenState, Unreachable
from goqueue.model.units import parse_instant_ns
from goqueue.testing import BrokerProcess, running_broker

SCRIPT = str(Path(sys.executable).with_name("goqueue"))
QUICK = ["--every", "100ms"]
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker() as running:
        with running.client() as client:
            client.create_topic("orders", partitions=2)
            with client.producer() as producer:
                producer.send_many("orders", [b"x" * 50] * 40)
            for group in ("billing", "audit"):
                with client.consumer(group, ["orders"], kind="shared") as consumer:
                    consumer.ack(consumer.poll(3, timeout=30)).result()
        yield running


def top(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["top", *QUICK, *arguments], env={"GOQUEUE_SERVER": broker.url})


def screen(broker: BrokerProcess, *arguments: str, width: int = 80, height: int = 24) -> Terminal:
    return Terminal([SCRIPT, "top", *QUICK, *arguments], width, height, GOQUEUE_SERVER=broker.url)


def test_it_draws_follows_the_size_sorts_and_leaves_the_terminal_as_it_was(broker: BrokerProcess) -> None:
    with screen(broker) as terminal:
        terminal.shows("q quits")
        assert ENTER_SCREEN in terminal.seen and HIDE_CURSOR in terminal.seen
        assert not terminal.is_as_before(), "keys come one by one"
        for wanted in ("published", "end to end", "loop delay", "waiting: critical 0", "billing", "audit"):
            assert wanted in terminal.text, wanted
        terminal.press("s")
        terminal.shows("s sorts groups: by out/s")
        terminal.resize(40, 6)
        terminal.forget()
        # The line of keys goes where the screen now ends: figures that do not fit are gone.
        terminal.shows("q quits   s sorts groups: by out/s")
        terminal.forget()
        terminal.shows("published")
        assert "loop delay" not in terminal.text
        with broker.client() as client, client.producer() as producer:
            producer.send_many("orders", [b"more"] * 10)
        terminal.press("q")
        assert terminal.status() == 0
        assert LEAVE_SCREEN in terminal.seen and SHOW_CURSOR in terminal.seen
        assert terminal.is_as_before()


def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(broker: BrokerProcess) -> None:
    with screen(broker) as terminal:
        terminal.shows("q quits")
        terminal.interrupt()
        assert terminal.status() == 130
        assert LEAVE_SCREEN in terminal.seen and SHOW_CURSOR in terminal.seen
        assert terminal.is_as_before()
        assert "Traceback" not in terminal.text


def test_on_a_screen_it_ends_after_so_many_looks(broker: BrokerProcess) -> None:
    with screen(broker, "--count", "2") as terminal:
        assert terminal.status() == 0 and terminal.is_as_before()


def test_a_terminal_that_cannot_draw_gets_text(broker: BrokerProcess) -> None:
    command = [SCRIPT, "top", *QUICK, "--count", "1"]
    with Terminal(command, GOQUEUE_SERVER=broker.url, TERM="dumb") as terminal:
        assert terminal.status() == 0
        assert "published" in terminal.seen and "\x1b[?" not in terminal.seen


def test_in_a_pipe_it_prints_a_snapshot_for_each_look(broker: BrokerProcess) -> None:
    shown = top(broker, "--count", "2")
    assert shown.exit_code == 0 and not shown.stderr
    assert shown.stdout.count("goqueue top  ") == 2
    assert "\x1b" not in shown.stdout and "q quits" not in shown.stdout
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ("billing", "audit")] == ["audit", "billing"] * 2


def test_as_json_it_prints_a_line_for_each_look(broker: BrokerProcess) -> None:
    shown = top(broker, "--count", "3", "--json")
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert len(found) == 3
    for each in found:
        assert each["ready"] and not each["restarted"]
        assert each["rates"]["over_s"] > 0.05 and each["rates"]["cpu_percent"] >= 0
        assert {group["group"] for group in each["groups"]} == {"billing", "audit"}
        assert sum(each["lanes"].values()) > 0 and each["memory_bytes"] > 0


def test_rates_show_what_happened_between_two_looks(broker: BrokerProcess) -> None:
    command = [SCRIPT, "top", "--every", "300ms", "--json"]
    with (
        broker.client() as client,
        client.producer() as producer,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"GOQUEUE_SERVER": broker.url}
        ) as running,
    ):
        assert running.stdout is not None
        json.loads(running.stdout.readline())
        producer.send_many("orders", [b"y" * 100] * 50)
        seen = 0.0
        for line in running.stdout:
            now = json.loads(line)
            seen += now["rates"]["published"] * now["rates"]["over_s"]
            if now["rates"]["published"]:
                assert now["topics"][0]["topic"] == "orders"
            # A message is counted when it is written, and timed when it is on the disk: a look may come in between.
            if now["publish"]["p99_s"]:
                break
        running.terminate()
        assert running.wait(30) == 130
    # Both looks may have seen a part; none is counted twice.
    assert 0 < round(seen) <= 50


def test_a_broker_that_is_restarted_is_waited_for(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(running_broker(tmp_path / "data"))
        terminal = stack.enter_context(screen(first, width=120))
        piped = stack.enter_context(
            subprocess.Popen(
                [SCRIPT, "top", *QUICK, "--json"],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"GOQUEUE_SERVER": first.url},
            )
        )
        stack.callback(piped.kill)
        assert piped.stdout is not None
        printed = map(json.loads, piped.stdout)
        terminal.shows("q quits")
        assert next(printed)["ready"]
        first.kill()
        terminal.shows("no answer since ")
        terminal.shows("AWAY")
        until(lambda: "no broker can be reached" in next(printed).get("away", ""))
        gone, still_gone = next(printed), next(printed)
        assert gone["away_since"] == still_gone["away_since"] < gone["at"] < still_gone["at"]
        assert parse_instant_ns(gone["at"]) > 0
        terminal.forget()
        stack.enter_context(running_broker(tmp_path / "data", http_port=first.http_port))
        terminal.shows("it began again; seen at ")
        terminal.press("q")
        assert terminal.status() == 0
        until(lambda: next(printed).get("restarted"))
        assert next(printed)["rates"] is not None
        piped.terminate()
        assert piped.wait(30) == 130


def test_a_slow_look_is_not_followed_by_one_that_has_no_time_to_measure_in() -> None:
    looks: list[tuple[float, float]] = []

    def look() -> Unreachable:
        began = time.monotonic()
        if not looks:
            time.sleep(0.25)
        looks.append((began, time.monotonic()))
        return Unreachable("it is slow", "2026-01-31T12:00:00Z")

    assert _print_readings(ScreenState("http://127.0.0.1:1"), look, 0.1, 3, as_json=True) == 3
    ended, began = [end for _, end in looks[:-1]], [start for start, _ in looks[1:]]
    assert all(start - end >= 0.09 for end, start in zip(ended, began, strict=True))


def test_no_broker_from_the_beginning_ends_with_3() -> None:
    refused = CliRunner().invoke(app, ["top", "--server", "http://127.0.0.1:1", "--count", "1"])
    assert refused.exit_code == 3 and "hint: Start a broker" in refused.stderr


@pytest.mark.parametrize("every", ["10ms", "2h", "soon"])
def test_an_interval_out_of_range_is_refused(broker: BrokerProcess, every: str) -> None:
    refused = CliRunner().invoke(app, ["top", "--every", every], env={"GOQUEUE_SERVER": broker.url})
    assert refused.exit_code == 2 and "--every" in refused.stderr


def test_whoever_reads_the_beginning_alone_ends_it_well(broker: BrokerProcess) -> None:
    line = 'set -o pipefail; "$0" top --every 100ms --server "$1" | head -1'
    ran = subprocess.run(["bash", "-c", line, SCRIPT, broker.url], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "") and ran.stdout
