"""How far long work is, and how it is stopped."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading

import pytest
from doubles.patience import in_time

from goqueue.cli.connection import confirmation
from goqueue.cli.terminal import progress

WORK = """
from goqueue.cli.terminal import progress
with progress.progress_bar("copying", 40, "messages") as bar:
    bar.advance(15)
    bar.expect(60)
    bar.advance(15)
print("done")
"""


def drawn_by(work: str) -> bytes:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE, stderr=theirs, env=environment) as run:
        os.close(theirs)
        drawn = b""
        try:
            while chunk := os.read(ours, 65_536):
                drawn += chunk
        except OSError:
            pass  # Linux ends the reading of a closed terminal with an error.
        os.close(ours)
        assert run.stdout is not None
        assert run.stdout.read() == b"done\n"
    return drawn


def test_a_bar_is_drawn_on_a_terminal_and_not_on_the_output() -> None:
    drawn = drawn_by(WORK)
    assert b"copying" in drawn and b"30 of 60" in drawn


def test_bytes_are_told_as_everywhere_else() -> None:
    work = WORK.replace('40, "messages"', 'None, "bytes"').replace("60", "210_845_879").replace("(15)", "(12_400_000)")
    assert b"24.8 MB of 211 MB" in drawn_by(work)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_in_a_pipe_nothing_is_drawn(capfd: pytest.CaptureFixture[str], is_enabled: bool) -> None:
    with progress.progress_bar("copying", is_enabled=is_enabled) as bar:
        bar.advance()
        bar.expect(3)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_one_ends(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), progress.stoppable() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(60)
        os.kill(os.getpid(), number)
        pytest.fail("it was to end here")
    assert signal.getsignal(number) is before


def test_whoever_waits_is_woken_by_a_signal() -> None:
    with progress.stoppable() as stop:
        with in_time(30):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            assert stop.wait(60)
        assert stop.wait()


def test_waiting_ends_when_the_time_is_over() -> None:
    with progress.stoppable() as stop:
        assert not stop.wait(0.001)
        assert not stop.wait(-1)


def test_what_was_agreed_to_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert confirmation.confirmed("Really?", yes=True)
    assert capsys.readouterr() == ("", "")
