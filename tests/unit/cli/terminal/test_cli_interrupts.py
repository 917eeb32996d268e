"""Ctrl-C in the first moments of a command, while Python still loads what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

NO_BROKER = "http://127.0.0.1:9"
# The process interrupts itself when it is about to load a module: no clock hits that moment as well.
STARTED = """
import os, signal, sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)

moment = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupted())
from goqueue.cli.main import main
main()
"""


def interrupted_at(module: str, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-c", STARTED, module, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize(
    "module",
    [
        "goqueue.cli.app",
        "typer",
        "goqueue.cli.commands.stats.stats",
        "msgspec",
        "goqueue.cli.connection.broker_http",
        "http.client",
    ],
)
def test_an_interrupt_in_the_first_moments_is_no_traceback(module: str) -> None:
    assert interrupted_at(module, "stats", "--server", NO_BROKER) == (130, "", "")


@pytest.mark.parametrize(
    "module",
    [
        "typer",
        "goqueue.cli.commands.produce.produce",
        "goqueue.cli.commands.produce.produce_rows",
        "numpy",
        "http.client",
    ],
)
def test_one_that_stops_produce_before_it_sends_says_so(module: str) -> None:
    said = interrupted_at(module, "produce", "t", "one", "--server", NO_BROKER)
    assert said == (130, "", "interrupted, nothing was sent\n")


def test_one_that_is_ignored_stays_ignored() -> None:
    command = [sys.executable, "-c", STARTED, "typer", "version"]
    ran = subprocess.run(["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", *command], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
