"""What a broker refuses is told at a terminal with a command to go on with, whichever way it came."""

from __future__ import annotations

import re

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from goqueue.cli.app import app
from goqueue.cli.terminal import hints
from goqueue.cli.terminal.failures import reported
from goqueue.model.errors import (
    BrokerUnavailable,
    DeliveryTimeout,
    DiskFull,
    GoQueueError,
    GroupNotFound,
    Overloaded,
    PartitionNotFound,
    error_from,
)


@pytest.mark.parametrize("kind", hints.REMEDIES)
def test_every_hint_is_used_and_names_no_path(kind: type[GoQueueError]) -> None:
    code, remedy = hints.code_and_remedy(error_from(kind.code, "so it is"))
    assert (code, remedy) == (kind.code, hints.REMEDIES[kind])
    assert not re.search(r"\b(GET|PUT|POST) /|\?partition", remedy)


def test_a_refusal_that_lasted_until_the_time_ran_out_is_what_is_to_be_mended() -> None:
    late = DeliveryTimeout("not acknowledged within 5 ms; the last attempt said: no room")
    late.__cause__ = DiskFull("no room")
    assert hints.code_and_remedy(late) == ("disk_full", DiskFull.remedy)
    late.__cause__ = BrokerUnavailable("it is away")
    assert hints.code_and_remedy(late)[0] == "delivery_timeout"


@pytest.mark.parametrize("remedy", hints.REMEDIES.values())
def test_every_command_that_a_hint_names_is_there(remedy: str) -> None:
    for words in re.findall(r"'goqueue ([a-z ]+)", remedy):
        command = get_command(app)
        for word in words.split():
            command = command.commands[word]  # type: ignore[attr-defined]


def test_what_has_a_better_hint_already_or_none_stays_as_it_is() -> None:
    class Special(GroupNotFound):
        remedy = "Do this."

    for error in (Special("x"), Overloaded("x", retry_after_s=2)):
        assert hints.code_and_remedy(error) == (error.code, error.remedy)


def test_an_error_that_came_another_way_has_the_hint_as_well() -> None:
    """From a client over gRPC, say."""
    command = typer.Typer()

    @command.command()
    @reported
    def ask() -> int:
        raise PartitionNotFound("there is no partition 7")

    ran = CliRunner().invoke(command, [])
    assert ran.exit_code == 4
    error = "error: there is no partition 7 [partition_not_found]"
    assert ran.stderr.splitlines() == [error, f"hint: {hints.REMEDIES[PartitionNotFound]}"]


@pytest.mark.parametrize(
    ("why", "status"),
    [(None, 3), (BrokerUnavailable("gone"), 3), (DeliveryTimeout("late"), 3), (Overloaded("full"), 1)],
)
def test_a_broker_that_does_not_answer_is_not_there(why: GoQueueError | None, status: int) -> None:
    command = typer.Typer()

    @command.command()
    @reported
    def ask() -> int:
        raise DeliveryTimeout("not acknowledged") from why

    ran = CliRunner().invoke(command, [])
    assert ran.exit_code == status
    # One that refuses has a hint of its own.
    assert ("--timeout" in ran.stderr) == (status == 3)
    assert "delivery_timeout_ms" not in ran.stderr
