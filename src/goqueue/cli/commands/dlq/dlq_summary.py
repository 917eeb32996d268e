"""Where there are dead letters: by topic, group and error. Bounded: of very many, the first are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from goqueue.cli.terminal.failures import EXIT_INTERRUPTED
from goqueue.cli.terminal.message_text import cell
from goqueue.model.errors import TopicNotFound

if TYPE_CHECKING:
    from threading import Event

    from goqueue.cli.connection.broker_http import BrokerHttp

MOST_TOPICS = 2_000
"""Topics that are asked where their dead letters go."""
MOST_LETTERS = 20_000
"""Of one dead-letter topic."""
_PAGE = 1_000
_ERROR_WIDTH = 60
_SUFFIX = ".dlq"


@dataclass(slots=True)
class Pile:
    """Dead letters of one topic, group and error."""

    topic: str
    dlq_topic: str
    group: str
    error: str
    letters: int = 0
    redriven: int = 0
    latest: str = ""


def show(broker: BrokerHttp, wanted: dict[str, str], limit: int, *, as_json: bool) -> int:
    from goqueue.cli.commands.dlq.dlq_view import NOBODY
    from goqueue.cli.terminal import progress, styled_lines, tables

    piles: dict[tuple[str, ...], Pile] = {}
    is_whole = True
    with progress.stoppable() as stop, progress.shown("looking", None, "topics", is_wanted=not as_json) as bar:
        names = broker.get("/topics")["topics"]
        for name in _dead_letter_topics(broker, names, stop):
            if not stop.is_set():
                is_whole &= _count(broker, name, wanted, piles, stop)
                bar.advance()
        was_stopped = stop.is_set()
    found = sorted(piles.values(), key=lambda pile: (-pile.letters, pile.topic, pile.group, pile.error))
    shown = found[:limit]
    if as_json:
        fields = ("topic", "dlq_topic", "group", "error", "letters", "redriven", "latest")
        told = [{name: getattr(pile, name) for name in fields} for pile in shown]
        styled_lines.put_json({"dead_letters": told, "complete": is_whole and not was_stopped and len(found) <= limit})
    elif shown:
        rows = [
            [
                pile.topic,
                pile.group or NOBODY,
                cell(pile.error, _ERROR_WIDTH),
                f"{pile.letters:,}",
                f"{pile.redriven:,}",
            ]
            for pile in shown
        ]
        styled_lines.put(tables.table(["topic", "group", "error", "dead letters", "sent back"], rows))
    else:
        typer.echo("no dead letter fits" if wanted else "no topic has dead letters", err=True)
    if len(found) > limit:
        typer.echo(f"{len(found) - limit} more kinds; --limit shows more of them", err=True)
    if len(names) > MOST_TOPICS:
        typer.echo(f"there are {len(names)} topics; of the first {MOST_TOPICS} the settings were looked at", err=True)
    if not is_whole:
        typer.echo(f"of a topic with very many, the first {MOST_LETTERS:,} were counted", err=True)
    if was_stopped:
        typer.echo("stopped; there may be more", err=True)
        return EXIT_INTERRUPTED
    return 0


def _dead_letter_topics(broker: BrokerHttp, names: list[str], stop: Event) -> list[str]:
    """By their name, or because a topic is set to it."""
    there = set(names)
    found = {name for name in names if name.endswith(_SUFFIX)}
    for name in names[:MOST_TOPICS]:
        if stop.is_set():
            break
        if name.endswith(_SUFFIX):
            continue
        try:
            settings = broker.send("GET", ["topics", name])["settings"]
        except TopicNotFound:
            # Deleted since it was listed.
            continue
        if settings.get("dead_letter_topic") in there:
            found.add(settings["dead_letter_topic"])
    return sorted(found)


def _count(
    broker: BrokerHttp, name: str, wanted: dict[str, str], piles: dict[tuple[str, ...], Pile], stop: Event
) -> bool:
    """Whether all of them were counted."""
    place: dict[str, int] = {}
    count = 0
    while count < MOST_LETTERS and not stop.is_set():
        try:
            asked: dict[str, Any] = {**wanted, **place, "limit": _PAGE}
            answer = broker.send("GET", ["topics", name, "dead-letters"], asked)
        except TopicNotFound:
            return True
        for letter in answer["messages"]:
            key = letter["topic"], name, letter["group"], letter["error"]
            pile = piles.setdefault(key, Pile(*key))
            pile.letters += 1
            pile.redriven += letter["redriven"]
            pile.latest = max(pile.latest, letter["timestamp"])
        count += len(answer["messages"])
        following = answer.get("next")
        if following is None:
            return True
        place = {"from_partition": following["partition"], "from_offset": following["offset"]}
    return False
