"""Help and refusals of wrong arguments are for people who know no Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from goqueue.cli.app import app

# A terminal of 80 columns, less the margin of the help.
WIDTH = 78


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Every command, and whether there are others below it."""
    below = getattr(command, "commands", {})
    yield path, bool(below)
    for name, own in below.items():
        yield from paths(own, (*path, name))


ALL = list(paths(get_command(app)))


def told(*arguments: str) -> str:
    ran = CliRunner().invoke(app, list(arguments), terminal_width=WIDTH)
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("path", [path for path, is_group in ALL if is_group])
def test_no_line_of_a_list_of_commands_is_cut(path: tuple[str, ...]) -> None:
    commands = told(*path, "-h").partition("\nCommands:\n")[2].partition("\n\n")[0]
    assert commands and "..." not in commands


@pytest.mark.parametrize("path", [path for path, is_group in ALL if not is_group])
def test_help_names_no_type_of_python(path: tuple[str, ...]) -> None:
    text = told(*path, "-h")
    usage = text.partition("\n\n")[0]
    assert not re.search(r"<(str|int|path|list|.* range)\b|list\[", text)
    assert not re.search(r"[{}]|\[\[|…\.\.\.", usage)


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["consume", "t", "-n", "0"], "'--limit' / '-n': it must be at least 1"),
        (["consume", "t", "-n", str(1 << 70)], f"'--limit' / '-n': it must be at most {1 << 62}"),
        (["consume", "t", "-n", "many"], "'--limit' / '-n': it is no whole number"),
        (["consume", "t", "-n", "1.5"], "'--limit' / '-n': it is no whole number"),
        (["produce", "t", "x", "--acks", "some"], "'--acks': 'some' is not one of 'none', 'leader', 'all'."),
    ],
)
def test_a_wrong_value_is_refused_in_plain_words(arguments: list[str], refusal: str) -> None:
    assert told(*arguments).endswith(f"Error: Invalid value for {refusal}\n")
