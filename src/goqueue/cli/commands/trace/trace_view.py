"""Draws traces: one message as a timeline, many as a table; in colour for a terminal, plain for a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells, set_cell_size

from goqueue.cli.commands.trace.event_words import event_words, group_words, status_words
from goqueue.cli.commands.trace.trace_answers import Story
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.tables import shortened
from goqueue.cli.terminal.times import Times, duration
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
class OutputFormat:
    """Output format. ``width`` is that of a line; ``None`` for unlimited lines."""

    times: Times
    width: int | None = None
    is_ascii: bool = True

    @property
    def ellipsis(self) -> str:
        return "..." if self.is_ascii else "…"

    @property
    def marks(self) -> tuple[str, str, str, str]:
        """Marks of the first, further and last events, and of continued lines."""
        return ("|", "|", "|", "|") if self.is_ascii else ("┌", "├", "└", "│")


def heading(story: Story, output: OutputFormat) -> list[Line]:
    """The message's position, key and trace."""
    is_marker = any(event.event_type == kinds.MARKER for event in story.events)
    first: Line = [("record  " if is_marker else "message ", "dim"), (escape(str(story.place)), "bold")]
    if story.key is not None:
        key = shortened(escape(story.key), _LONGEST_KEY, output.ellipsis) or "''"
        first += [(f"{_GAP}key ", "dim"), (key, "")]
    lines = [first, [("trace   ", "dim"), (escape(story.trace_id), "")]]
    if story.also:
        others = ", ".join(escape(str(each)) for each in story.also[:3])
        more = "" if len(story.also) <= 3 else f" and {len(story.also) - 3} more"
        lines.append([("also    ", "dim"), (f"{others}{more}", "")])
    return lines


def status_lines(story: Story, output: OutputFormat) -> list[Line]:
    """The message's status."""
    style = _STATUS_STYLES.get(story.status, "")
    line: Line = [("status  ", "dim"), (status_words(story, output.times), f"bold {style}".strip())]
    if not story.in_log:
        line.append((", and the log does not have it any more", "dim"))
    return [line]


def timeline(story: Story, output: OutputFormat, first_event: int = 0, *, is_open: bool = False) -> Iterator[Line]:
    """The events from index ``first_event`` on, each on one line or more if too long.

    ``is_open``: more events may come.
    """
    events = story.events
    for index in range(first_event, len(events)):
        event = events[index]
        at_ns = event.at_ns
        day = output.times.day(at_ns)
        if index == 0:
            yield [(f"{day}, {output.times.zone_name(at_ns)}", "dim")]
        elif day != output.times.day(events[index - 1].at_ns):
            yield [(day, "dim")]
        first, further, last, goes_on = output.marks
        mark = first if index == 0 else last if index == len(events) - 1 and not is_open else further
        step = "" if index == 0 else _signed(at_ns - events[index - 1].at_ns)
        total = "" if index == 0 else duration(at_ns - events[0].at_ns)
        clock = output.times.clock(at_ns)
        margin = f"{clock}{_GAP}{step:>{_STEP_WIDTH}}{_GAP}{total:>{_TOTAL_WIDTH}}{_GAP}"
        words = event_words(event, output.times) + _position_note(story, index)
        style = _STYLES.get(event.event_type, "")
        for number, part in enumerate(_wrap(words, output, len(margin) + 2)):
            if number == 0:
                spans = [(clock, ""), (margin[len(clock) :], "dim"), (f"{mark} ", "dim"), (part, style)]
            else:
                hangs = goes_on if mark != last or output.is_ascii else " "
                spans = [(" " * len(margin), ""), (f"{hangs} {' ' * _SET_IN}", "dim"), (part, style)]
            yield spans


def group_lines(story: Story, output: OutputFormat) -> Iterator[Line]:
    """The current state of each group."""
    groups = story.groups_now()
    widest = max((cell_len(escape(each.group)) for each in groups), default=0)
    seen_ns = story.events[-1].at_ns if story.events else 0
    for number, each in enumerate(groups):
        name = set_cell_size(escape(each.group), widest)
        margin = f"{'now' if number == 0 else '':8}{name}{_GAP}"
        words = group_words(each, output.times, seen_ns)
        for row, part in enumerate(_wrap(words, output, cell_len(margin))):
            start: Line = [(margin[:8], "dim"), (margin[8:], "")] if row == 0 else [(" " * cell_len(margin), "")]
            yield [*start, (part, _STATE_STYLES.get(each.state, "yellow"))]


def story_lines(story: Story, output: OutputFormat) -> Iterator[Line]:
    """The whole history of one message."""
    yield from heading(story, output)
    yield from status_lines(story, output)
    yield []
    yield from timeline(story, output, is_open=story.status == "pending")
    if story.groups:
        yield []
        yield from group_lines(story, output)


def stories_table(stories: Sequence[Story], output: OutputFormat, now_ns: int) -> Iterator[Line]:
    """A row for each message, with the time of its last event."""
    rows = [_row(story, output, now_ns) for story in stories]
    widths = [max(cell_len(row[column]) for row in [_TITLES, *rows]) for column in range(len(_TITLES))]
    if output.width is not None:
        room = output.width - sum(widths[:-1]) - len(_GAP) * (len(_TITLES) - 1)
        widths[-1] = min(widths[-1], max(room, _NARROWEST))
    yield [(_align(_TITLES, widths, output), "bold")]
    for story, row in zip(stories, rows, strict=True):
        status = _STATUS_STYLES.get(story.status, "")
        before = _align(row[:3], widths[:3], output, is_last=False)
        after = _align(row[4:], widths[4:], output)
        yield [(before + _GAP, ""), (set_cell_size(row[3], widths[3]) + _GAP, status), (after, "")]


def output_format() -> OutputFormat:
    """The format for the current standard output."""
    if not sys.stdout.isatty():
        return OutputFormat(Times())
    from rich.console import Console

    console = Console()
    return OutputFormat(Times(), console.width, console.options.ascii_only)


def _row(story: Story, output: OutputFormat, now_ns: int) -> tuple[str, ...]:
    if story.events:
        last = story.events[-1]
        is_today = output.times.day(last.at_ns) == output.times.day(now_ns)
        clock = output.times.clock(last.at_ns)
        time = clock if is_today else f"{output.times.day(last.at_ns)} {clock[:5]}"
        happened = event_words(last, output.times)
    else:
        time, happened = "", ""
    key = shortened(escape(story.key or ""), _KEY_IN_TABLE, output.ellipsis)
    return time, escape(str(story.place)), key, escape(story.status), duration(story.duration_ns), happened


def _align(cells: Sequence[str], widths: Sequence[int], output: OutputFormat, *, is_last: bool = True) -> str:
    fitted = [
        set_cell_size(shortened(cell, width, output.ellipsis), width) for cell, width in zip(cells, widths, strict=True)
    ]
    text = _GAP.join(fitted)
    return text.rstrip() if is_last else text


def _position_note(story: Story, index: int) -> str:
    """The position of an event, if it differs from where the event before leads."""
    here = story.position_of(story.events[index])
    if index == 0:
        there = story.place
    else:
        before = story.events[index - 1]
        there = before.attributes.to or story.position_of(before)
    return "" if here == there else f" ({escape(str(here))})"


def _signed(span_ns: int) -> str:
    return duration(span_ns) if span_ns < 0 else f"+{duration(span_ns)}"


def _wrap(words: str, output: OutputFormat, margin: int) -> list[str]:
    """Break into lines that fit; the caller indents all but the first."""
    if output.width is None:
        return [words]
    room = max(output.width - margin, _NARROWEST)
    lines = [""]
    for word in words.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= room - (_SET_IN if len(lines) > 1 else 0):
            lines[-1] = joined
            continue
        lines += chop_cells(word, room - _SET_IN)
    return [line for line in lines if line] or [""]
