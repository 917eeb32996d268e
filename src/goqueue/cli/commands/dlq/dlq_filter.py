"""Options that select dead letters."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from goqueue.cli.connection.target import complete_groups
from goqueue.cli.terminal.times import instant_ns, since_ns
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.units import format_instant_ns, parse_duration_ms

MOST_NAMED = 10_000
_POSITION = re.compile(r"([0-9]{1,9})[:/]([0-9]{1,18})")

GroupOption = Annotated[
    str | None,
    typer.Option("--group", metavar="NAME", help="Only those of this group.", autocompletion=complete_groups),
]
ErrorOption = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only those whose error contains this text.")
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only those dead-lettered since: 2h (ago), or an instant."),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only those dead-lettered before: 2h (ago), or an instant."),
]
MessagesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--message", metavar="PARTITION:OFFSET", help="This one, by its position in the dead-letter topic; repeatable."
    ),
]


def filter_parameters(group: str | None, error: str | None, since: str | None, until: str | None) -> dict[str, str]:
    """The filter as the broker takes it, in a query or in a body."""
    wanted = {
        "group": group,
        "error": error,
        "since": since and _parse_time("--since", since),
        "until": until and _parse_time("--until", until),
    }
    return {name: text for name, text in wanted.items() if text is not None}


def _parse_time(option: str, text: str) -> str:
    """Parse an instant, or a duration back from now."""
    try:
        parse_duration_ms(text)
    except InvalidRequest:
        return format_instant_ns(instant_ns(option, text))
    return format_instant_ns(min(since_ns(option, text), time.time_ns()))


def parse_position(text: str, option: str) -> tuple[int, int]:
    """Parse a partition and an offset."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{shown(text)} is no place; write PARTITION:OFFSET, such as 0:17", param_hint=option)
    return int(found[1]), int(found[2])


def parse_positions(texts: list[str], option: str) -> list[dict[str, int]]:
    """Parse positions, each once, into the form of a redrive request."""
    if len(texts) > MOST_NAMED:
        raise typer.BadParameter(f"{len(texts)} messages; at most {MOST_NAMED} at a time", param_hint=option)
    return [
        {"partition": partition, "offset": offset}
        for partition, offset in dict.fromkeys(parse_position(text, option) for text in texts)
    ]
