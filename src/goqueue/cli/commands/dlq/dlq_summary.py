"""Counts dead letters by topic, group and error. Bounded: of very many, only the first are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from goqueue.cli.commands.dlq.dlq_view import NO_GROUP
from goqueue.cli.terminal import progress, tables
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED
from goqueue.cli.terminal.message_text import cell_text
from goqueue.cli.terminal.output import print_json, print_lines
from goqueue.model.errors import TopicNotFound

if TYPE_CHECKING:
    from threading import Event

    from goqueue.cli.connection.broker_http import BrokerHttp

MOST_TOPICS = 2_000
"""The most topics whose dead-letter setting is looked up."""
MOST_LETTERS = 20_000
"""The most dead letters counted in one dead-letter topic."""
_PAGE = 1_000
_ERROR_WIDTH = 60
_SUFFIX = ".dlq"


@dataclass(slots=True)
class LetterCount:
    """Counts of the dead letters of one topic, group and error."""

    topic: str
    dlq_topic: str
    group: str
    error: str
    letters: int = 0
    redriven: int = 0
    latest: str = ""


def print_summary(broker: BrokerHttp, wanted: dict[str, str], limit: int, *, as_json: bool) -> int:
    counts: dict[tuple[str, ...], LetterCount] = {}
    is_whole = True
    with progress.stoppable() as stop, progress.progress_bar("looking", None, "topics", is_enabled=not as_json) as bar:
        names = broker.get("/topics")["topics"]
        for name in _dead_letter_topics(broker, names, stop):
            if not stop.is_set():
                is_whole &= _count_letters(broker, name, wanted, counts, stop)
                bar.advance()
        was_stopped = stop.is_set()
    found = sorted(counts.values(), key=lambda count: (-count.letters, count.topic, count.group, count.error))
    shown = found[:limit]
    if as_json:
        print_json({"dead_letters": shown, "complete": is_whole and not was_stopped and len(found) <= limit})
    elif shown:
        rows = [
            [
                count.topic,
                count.group or NO_GROUP,
                cell_text(count.error, _ERROR_WIDTH),
                f"{count.letters:,}",
                f"{count.redriven:,}",
            ]
            for count in shown
        ]
        print_lines(tables.table(["topic", "group", "error", "dead letters", "sent back"], rows))
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
    """Topics that are dead-letter topics by their name or by a topic's setting."""
    existing = set(names)
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
        if settings.get("dead_letter_topic") in existing:
            found.add(settings["dead_letter_topic"])
    return sorted(found)


def _count_letters(
    broker: BrokerHttp, name: str, wanted: dict[str, str], counts: dict[tuple[str, ...], LetterCount], stop: Event
) -> bool:
    """Count the dead letters of a topic. False if there were more than the limit, or it was stopped."""
    start: dict[str, int] = {}
    count = 0
    while count < MOST_LETTERS and not stop.is_set():
        try:
            parameters: dict[str, Any] = {**wanted, **start, "limit": _PAGE}
            answer = broker.send("GET", ["topics", name, "dead-letters"], parameters)
        except TopicNotFound:
            return True
        for letter in answer["messages"]:
            key = letter["topic"], name, letter["group"], letter["error"]
            letter_count = counts.setdefault(key, LetterCount(*key))
            letter_count.letters += 1
            letter_count.redriven += letter["redriven"]
            letter_count.latest = max(letter_count.latest, letter["timestamp"])
        count += len(answer["messages"])
        following = answer.get("next")
        if following is None:
            return True
        start = {"from_partition": following["partition"], "from_offset": following["offset"]}
    return False
