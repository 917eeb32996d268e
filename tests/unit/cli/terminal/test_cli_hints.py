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
    TopicNotFound,
    error_from,
    error_table,
)

KINDS = [kind for kind in vars(hints).values() if isinstance(kind, type) and kind.__module__ == hints.__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_hint_is_used_and_names_no_path(kind: type[GoQueueError]) -> None:
    told = hints.at_a_terminal(error_from(kind.code, "so it is"))
    assert (type(told), str(told)) == (kind, "so it is")
    assert not re.search(r"\b(GET|PUT|POST) /|\?partition", told.remedy)


def test_a_refusal_that_lasted_until_the_time_ran_out_is_what_is_to_be_mended() -> None:
    late = DeliveryTimeout("not acknowledged within 5 ms; the last attempt said: no room")
    late.__cause__ = DiskFull("no room")
    told = hints.at_a_terminal(late)
    assert (told.code, str(told), told.remedy) == ("disk_full", str(late), DiskFull.remedy)
    late.__cause__ = BrokerUnavailable("it is away")
    assert hints.at_a_terminal(late).code == "delivery_timeout"


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_that_a_hint_names_is_there(kind: type[GoQueueError]) -> None:
    for words in re.findall(r"'goqueue ([a-z ]+)", kind.remedy):
        command = get_command(app)
        for word in words.split():
            command = command.commands[word]  # type: ignore[attr-defined]


def test_codes_stand_for_the_broker_s_own_errors_still() -> None:
    assert TopicNotFound in error_table() and hints.NoSuchTopic not in error_table()
    assert type(error_from("topic_not_found", "")) is TopicNotFound


def test_what_has_a_better_hint_already_or_none_stays_as_it_is() -> None:
    class Special(GroupNotFound):
        remedy = "Do this."

    for error in (Special("x"), Overloaded("x", retry_after_s=2), hints.NoSuchTopic("x")):
        assert hints.at_a_terminal(error) is error


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
    assert ran.stderr.splitlines() == [error, f"hint: {hints.NoSuchPartition.remedy}"]


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
