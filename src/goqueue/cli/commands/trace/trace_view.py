"""Draws traces: one message as in a flight recorder, many as a table; in colour for a terminal, plain for a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells, set_cell_size

from goqueue.cli.commands.trace.event_words import event_words, group_words, status_words
from goqueue.cli.commands.trace.trace_answers import Story
from goqueue.cli.terminal.styled_lines import Line
from goqueue.cli.terminal.tables import shortened
from goqueue.cli.terminal.time_words import Times, duration
from goqueue.observe import trace_event as kinds
from goqueue.observe.logs import escape

_STATUS_STYLES = {"completed": "green", "error": "red", "pending": "yellow"}
_STYLES = {
    kinds.PUBLISH: "bold",
    kinds.FIRED: "bold",
    kinds.ACK: "green",
    kinds.COMMITTED: "green",
    kinds.NACK: "yellow",
    kinds.RELEASED: "yellow",
    kinds.EXPIRED: "yellow",
    kinds.REDRIVEN: "cyan",
    kinds.CANCELLED: "cyan",
    kinds.REJECT: "red",
    kinds.DLQ: "red",
    kinds.LOST: "red",
    kinds.CUT: "red",
    kinds.DISCARDED: "red",
    kinds.DELETED: "red",
    kinds.ABORTED: "red",
    kinds.RESET: "yellow",
    kinds.SKIPPED: "yellow",
}
_STATE_STYLES = {"settled": "green", "dead-lettered": "red", "expired": "red", "moving": "red"}
_TITLES = ("time", "message", "key", "status", "duration", "last event")
_GAP = "  "
_LONGEST_KEY = 40
_KEY_IN_TABLE = 16
_NARROWEST = 20
_STEP_WIDTH, _TOTAL_WIDTH = 8, 7
_SET_IN = 2


@dataclass(frozen=True, slots=True)
class Paper:
    """What is drawn on. ``width`` is that of a line; ``None`` for a line as long as it has to be."""

    times: Times
    width: int | None = None
    is_ascii: bool = True

    @property
    def ellipsis(self) -> str:
        return "..." if self.is_ascii else "…"

    @property
    def rail(self) -> tuple[str, str, str, str]:
        """First, further and last events, and what a line goes on with."""
        return ("|", "|", "|", "|") if self.is_ascii else ("┌", "├", "└", "│")


def heading(story: Story, paper: Paper) -> list[Line]:
    """Which message this is."""
    is_marker = any(event.event_type == kinds.MARKER for event in story.events)
    first: Line = [("record  " if is_marker else "message ", "dim"), (escape(str(story.place)), "bold")]
    if story.key is not None:
        key = shortened(escape(story.key), _LONGEST_KEY, paper.ellipsis) or "''"
        first += [(f"{_GAP}key ", "dim"), (key, "")]
    lines = [first, [("trace   ", "dim"), (escape(story.trace_id), "")]]
    if story.also:
        others = ", ".join(escape(str(each)) for each in story.also[:3])
        more = "" if len(story.also) <= 3 else f" and {len(story.also) - 3} more"
        lines.append([("also    ", "dim"), (f"{others}{more}", "")])
    return lines


def verdict(story: Story, paper: Paper) -> list[Line]:
    """How it fared."""
    style = _STATUS_STYLES.get(story.status, "")
    line: Line = [("status  ", "dim"), (status_words(story, paper.times), f"bold {style}".strip())]
    if not story.in_log:
        line.append((", and the log does not have it any more", "dim"))
    return [line]


def timeline(story: Story, paper: Paper, shown: int = 0, *, is_open: bool = False) -> Iterator[Line]:
    """A line for each event behind the first ``shown``, or more where there is not enough room.

    ``is_open``: there may be more to come.
    """
    events = story.events
    for index in range(shown, len(events)):
        event = events[index]
        at_ns = event.at_ns
        day = paper.times.day(at_ns)
        if index == 0:
            yield [(f"{day}, {paper.times.zone_name(at_ns)}", "dim")]
        elif day != paper.times.day(events[index - 1].at_ns):
            yield [(day, "dim")]
        first, further, last, goes_on = paper.rail
        mark = first if index == 0 else last if index == len(events) - 1 and not is_open else further
        step = "" if index == 0 else _signed(at_ns - events[index - 1].at_ns)
        total = "" if index == 0 else duration(at_ns - events[0].at_ns)
        clock = paper.times.clock(at_ns)
        margin = f"{clock}{_GAP}{step:>{_STEP_WIDTH}}{_GAP}{total:>{_TOTAL_WIDTH}}{_GAP}"
        words = event_words(event, paper.times) + _where(story, index)
        style = _STYLES.get(event.event_type, "")
        for number, part in enumerate(_wrapped(words, paper, len(margin) + 2)):
            if number == 0:
                spans = [(clock, ""), (margin[len(clock) :], "dim"), (f"{mark} ", "dim"), (part, style)]
            else:
                hangs = goes_on if mark != last or paper.is_ascii else " "
                spans = [(" " * len(margin), ""), (f"{hangs} {' ' * _SET_IN}", "dim"), (part, style)]
            yield spans


def standings(story: Story, paper: Paper) -> Iterator[Line]:
    """Where each group is with it now."""
    groups = story.groups_now()
    widest = max((cell_len(escape(each.group)) for each in groups), default=0)
    seen_ns = story.events[-1].at_ns if story.events else 0
    for number, each in enumerate(groups):
        name = set_cell_size(escape(each.group), widest)
        margin = f"{'now' if number == 0 else '':8}{name}{_GAP}"
        words = group_words(each, paper.times, seen_ns)
        for row, part in enumerate(_wrapped(words, paper, cell_len(margin))):
            start: Line = [(margin[:8], "dim"), (margin[8:], "")] if row == 0 else [(" " * cell_len(margin), "")]
            yield [*start, (part, _STATE_STYLES.get(each.state, "yellow"))]


def drawn(story: Story, paper: Paper) -> Iterator[Line]:
    """All of it."""
    yield from heading(story, paper)
    yield from verdict(story, paper)
    yield []
    yield from timeline(story, paper, is_open=story.status == "pending")
    if story.groups:
        yield []
        yield from standings(story, paper)


def table(stories: Sequence[Story], paper: Paper, now_ns: int) -> Iterator[Line]:
    """A line for each message, with the time of its last event."""
    rows = [_row(story, paper, now_ns) for story in stories]
    widths = [max(cell_len(row[column]) for row in [_TITLES, *rows]) for column in range(len(_TITLES))]
    if paper.width is not None:
        room = paper.width - sum(widths[:-1]) - len(_GAP) * (len(_TITLES) - 1)
        widths[-1] = min(widths[-1], max(room, _NARROWEST))
    yield [(_aligned(_TITLES, widths, paper), "bold")]
    for story, row in zip(stories, rows, strict=True):
        status = _STATUS_STYLES.get(story.status, "")
        before = _aligned(row[:3], widths[:3], paper, is_last=False)
        after = _aligned(row[4:], widths[4:], paper)
        yield [(before + _GAP, ""), (set_cell_size(row[3], widths[3]) + _GAP, status), (after, "")]


def paper_here() -> Paper:
    """For standard output as it is."""
    if not sys.stdout.isatty():
        return Paper(Times())
    from rich.console import Console

    console = Console()
    return Paper(Times(), console.width, console.options.ascii_only)


def _row(story: Story, paper: Paper, now_ns: int) -> tuple[str, ...]:
    if story.events:
        last = story.events[-1]
        is_today = paper.times.day(last.at_ns) == paper.times.day(now_ns)
        clock = paper.times.clock(last.at_ns)
        time = clock if is_today else f"{paper.times.day(last.at_ns)} {clock[:5]}"
        happened = event_words(last, paper.times)
    else:
        time, happened = "", ""
    key = shortened(escape(story.key or ""), _KEY_IN_TABLE, paper.ellipsis)
    return time, escape(str(story.place)), key, escape(story.status), duration(story.duration_ns), happened


def _aligned(cells: Sequence[str], widths: Sequence[int], paper: Paper, *, is_last: bool = True) -> str:
    fitted = [
        set_cell_size(shortened(cell, width, paper.ellipsis), width) for cell, width in zip(cells, widths, strict=True)
    ]
    text = _GAP.join(fitted)
    return text.rstrip() if is_last else text


def _where(story: Story, index: int) -> str:
    """The place of an event, if the line before does not lead there."""
    here = story.place_of(story.events[index])
    if index == 0:
        there = story.place
    else:
        before = story.events[index - 1]
        there = before.attributes.to or story.place_of(before)
    return "" if here == there else f" ({escape(str(here))})"


def _signed(span_ns: int) -> str:
    return duration(span_ns) if span_ns < 0 else f"+{duration(span_ns)}"


def _wrapped(words: str, paper: Paper, margin: int) -> list[str]:
    """In lines that fit; what does not fit the first is set in a little by whoever draws it."""
    if paper.width is None:
        return [words]
    room = max(paper.width - margin, _NARROWEST)
    lines = [""]
    for word in words.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= room - (_SET_IN if len(lines) > 1 else 0):
            lines[-1] = joined
            continue
        lines += chop_cells(word, room - _SET_IN)
    return [line for line in lines if line] or [""]
