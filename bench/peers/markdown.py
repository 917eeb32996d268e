"""The tables of the page."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.numerals import NOTHING, ratio, significant
from bench.peers.results import Results, Subject
from bench.peers.summary import (
    CLIENT_US,
    P50,
    P99,
    PEAK_MB,
    RATE,
    RATED,
    SERVER_US,
    WAITED,
    WORST,
    Asked,
    Measure,
    best_of,
    left_to_client,
    runs,
    standing,
)
from bench.peers.table import rate_cell
from bench.peers.work import Durability, Work

VERSUS = "GoQueue vs. best peer"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column is text, the others are numbers."""
    lines = [[_cell(each) for each in row] for row in (titles, *rows)]
    lines.insert(1, ["---", *("---:" for _ in titles[1:])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rates(results: Results, durability: Durability) -> str:
    """Messages a second of every work that is done as fast as possible."""
    subjects = results.measured(durability)

    def cell(subject: Subject, asked: Asked) -> str:
        text = rate_cell(results, subject.key, asked)
        return f"**{text}**" if subject == best_of(results, subjects, asked, RATE) else text

    rows = [
        [_named(asked), *(cell(subject, asked) for subject in subjects), _versus(results, asked, (RATE,))]
        for asked in _rows(results, durability, RATED)
    ]
    return table(["messages/s", *(subject.name for subject in subjects), VERSUS], rows)


def waits(results: Results, durability: Durability) -> str:
    """How long messages waited, in milliseconds."""
    subjects = results.measured(durability)

    def cell(subject: Subject, asked: Asked) -> str:
        worst = runs(results, subject.key, asked, WORST)
        if worst is None:
            return NOTHING
        # Of the worst waits the worst is told: a median of them would be a promise.
        parts = [_number(results, subjects, subject, asked, measure) for measure in (P50, P99)]
        return " / ".join([*parts, significant(max(worst.values))])

    rows = [
        [_named(asked), *(cell(subject, asked) for subject in subjects), _versus(results, asked, (P50, P99))]
        for asked in _rows(results, durability, WAITED)
    ]
    return table(["p50 / p99 / max, ms", *(subject.name for subject in subjects), VERSUS], rows)


def costs(results: Results, durability: Durability) -> str:
    """Processor time for each message, and memory."""
    subjects = results.measured(durability)

    def cell(subject: Subject, asked: Asked) -> str:
        if runs(results, subject.key, asked, PEAK_MB) is None:
            return NOTHING
        return " / ".join(
            _number(results, subjects, subject, asked, measure) for measure in (SERVER_US, CLIENT_US, PEAK_MB)
        )

    rows = [
        [_named(asked), *(cell(subject, asked) for subject in subjects)]
        for asked in _rows(results, durability, tuple(Work))
    ]
    return table(["server µs / client µs / MB", *(subject.name for subject in subjects)], rows)


def left(results: Results, durability: Durability) -> str:
    """What the server left of the processors to its client while both did what they could."""
    subjects = results.measured(durability)

    def cell(subject: Subject, asked: Asked) -> str:
        share = left_to_client(results, subject.key, asked)
        return NOTHING if share is None else f"{share * 100:.0f} %"

    works = tuple(work for work in RATED if work is not Work.SINGLE)
    rows = [
        [_named(asked), *(cell(subject, asked) for subject in subjects)] for asked in _rows(results, durability, works)
    ]
    return table(["left to the client", *(subject.name for subject in subjects)], rows) if rows else ""


def _rows(results: Results, durability: Durability, works: tuple[Work, ...]) -> list[Asked]:
    done = {(piece.work, piece.size) for piece in results.pieces if piece.durability is durability}
    asked = [Asked(durability, work, size) for work in works for size in results.sizes]
    return [each for each in asked if (each.work, each.size) in done]


def _named(asked: Asked) -> str:
    return f"{asked.work}, {asked.size:,} B"


def _number(results: Results, subjects: list[Subject], subject: Subject, asked: Asked, measure: Measure) -> str:
    found = runs(results, subject.key, asked, measure)
    if found is None:
        return NOTHING
    text = significant(found.median)
    return f"**{text}**" if subject == best_of(results, subjects, asked, measure) else text


def _versus(results: Results, asked: Asked, measures: tuple[Measure, ...]) -> str:
    found = [each for measure in measures if (each := standing(results, asked, measure))]
    return " / ".join(ratio(each.ratio) for each in found) or NOTHING


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
