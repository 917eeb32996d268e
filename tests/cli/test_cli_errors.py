"""The code of an error, where a person and a script find it, against a broker in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from behaviour.terminal import Terminal
from typer.testing import CliRunner

from goqueue.cli.app import app
from goqueue.testing import BrokerProcess, running_broker

SCRIPT = str(Path(sys.executable).with_name("goqueue"))


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    ("command", "status", "code"),
    [
        ("topic describe nowhere", 4, "topic_not_found"),
        ("topic create no/name", 2, "invalid_topic_name"),
        ("group describe nobody", 4, "group_not_found"),
        ("schema show nothing", 4, "subject_not_found"),
        ("trace nowhere 0 0", 4, "topic_not_found"),
        ("produce nowhere x", 4, "topic_not_found"),
        ("consume nowhere", 4, "topic_not_found"),
    ],
)
def test_the_first_line_of_an_error_ends_with_its_code(
    broker: BrokerProcess, command: str, status: int, code: str, as_json: list[str]
) -> None:
    ran = CliRunner().invoke(app, [*command.split(), *as_json], env={"GOQUEUE_SERVER": broker.url})
    assert (ran.exit_code, ran.stdout) == (status, "")
    error, hint = ran.stderr.splitlines()
    assert error.startswith("error: ") and error.endswith(f" [{code}]")
    assert hint.startswith("hint: ")


def test_a_broker_that_is_not_there_has_a_code() -> None:
    with running_broker() as gone:
        gone.kill()
        ran = CliRunner().invoke(app, ["topic", "list"], env={"GOQUEUE_SERVER": gone.url})
    assert ran.exit_code == 3 and ran.stderr.splitlines()[0].endswith(" [broker_unavailable]")


def test_what_the_command_line_cannot_read_has_no_code(broker: BrokerProcess) -> None:
    ran = CliRunner().invoke(app, ["topic", "list", "--odd"], env={"GOQUEUE_SERVER": broker.url})
    assert ran.exit_code == 2 and "--odd" in ran.stderr and not ran.stderr.rstrip().endswith("]")


def test_the_code_is_dimmed_on_a_terminal(broker: BrokerProcess) -> None:
    with Terminal([SCRIPT, "topic", "describe", "nowhere"], GOQUEUE_SERVER=broker.url) as terminal:
        assert terminal.status() == 4
    assert "does not exist \x1b[2m[topic_not_found]\x1b[0m\r\n" in terminal.seen
