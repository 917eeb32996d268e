"""Draws ``goqueue top``: the newest reading of a broker, fitted to the lines and columns available."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.cells import cell_len, set_cell_size

from goqueue.cli.figures.figure_rates import BrokerReading, GroupReading, Latency
from goqueue.cli.terminal import figure_words
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.tables import GAP, shortened
from goqueue.observe.logs import escape

HISTORY = 120
_FIGURES_WIDTH = 38
_NARROWEST_SPARK, _WIDEST_SPARK = 8, 60
_NARROWEST_NAME = 6
_BETWEEN = "   "
_DIM, _BOLD, _BAD, _GOOD = "dim", "bold", "bold red", "green"

SORTS: dict[str, Callable[[GroupReading], tuple[float, str]]] = {
    "lag": lambda each: (-each.lag, each.group),
    "out/s": lambda each: (-(each.delivered_per_s or 0.0), each.group),
    "in flight": lambda each: (-each.in_flight, each.group),
    "name": lambda each: (0, each.group),
}


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A failed sample: why, and when (RFC 3339, as in a reading)."""

    why: str
    at: str


@dataclass(slots=True)
class ScreenState:
    """The state of the screen. ``away``: why the last sample failed; empty if it succeeded.

    ``away_at`` is the time of the last failure, ``away_since`` that of the first since the broker last answered.
    """

    server: str
    reading: BrokerReading | None = None
    away: str = ""
    away_at: str = ""
    away_since: str = ""
    sort: str = "lag"
    notes: deque[str] = field(default_factory=lambda: deque(maxlen=1))
    history: dict[str, deque[float | None]] = field(
        default_factory=lambda: {
            name: deque(maxlen=HISTORY) for name in ("published", "delivered", "read", "acked", "publish")
        }
    )

    def update(self, found: BrokerReading | Unreachable) -> None:
        """Take over the next sample."""
        if isinstance(found, Unreachable):
            self._take_failure(found)
        else:
            self._take_reading(found)

    def _take_reading(self, reading: BrokerReading) -> None:
        if reading.restarted:
            self.notes.append(f"it began again; seen at {clock(reading.at)}")
        self.reading, self.away = reading, ""
        for name in ("published", "delivered", "read", "acked"):
            self.history[name].append(_per_s(reading, name))
        self.history["publish"].append(reading.publish.p99_s)

    def _take_failure(self, found: Unreachable) -> None:
        if not self.away:
            self.away_since = found.at
        self.away, self.away_at = found.why, found.at
        for values in self.history.values():
            values.append(None)

    def sort_by_next(self) -> None:
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]


def screen_lines(watched: ScreenState, width: int, height: int, *, keys: str = "") -> list[Line]:
    """At most ``height`` lines of at most ``width`` columns. What does not fit is cut off at the end."""
    lines = [*_header(watched, width)]
    if watched.away:
        lines.append([(f"no answer since {clock(watched.away_since)}, trying again: {escape(watched.away)}", _BAD)])
    elif watched.notes:
        lines.append([(watched.notes[-1], "yellow")])
    if watched.reading is not None:
        # Snapshots in a file need no history: the earlier ones stand above.
        lines += _body_lines(watched, width, width - _FIGURES_WIDTH if keys else 0)
        room = height - len(lines) - (1 if keys else 0)
        lines += _table_lines(watched.reading, watched.sort, width, room)
    lines = lines[: max(0, height - 1)] if keys else lines[:height]
    if keys and height > 0:
        lines.append([(keys, _DIM)])
    return [cut_line(line, width) for line in lines]


def _body_lines(watched: ScreenState, width: int, spark_room: int) -> Iterator[Line]:
    """Everything but the tables, with ``spark_room`` columns for sparklines."""
    now = watched.reading
    if now is None:
        return
    rates, spark = now.rates, min(_WIDEST_SPARK, spark_room)
    if spark < _NARROWEST_SPARK:
        spark = 0
    yield [(f"{'':12}{'messages/s':>12}{'bytes/s':>11}", _DIM)]

    def flow(name: str, in_bytes: str = "") -> Line:
        size = _per_s(now, in_bytes) if in_bytes else None
        bytes_shown = "" if size is None else figure_words.size(size)
        drawn_history = figure_words.sparkline(watched.history[name], spark)
        return [
            (f"{name:12}", ""),
            (f"{_rate(now, name):>12}", _BOLD),
            (f"{bytes_shown:>11}   ", ""),
            (drawn_history, "cyan"),
        ]

    yield flow("published", "published_bytes")
    yield flow("delivered")
    yield flow("read", "read_bytes")
    yield flow("acked")
    yield [(f"{'':12}{'p50':>12}{'p99':>11}", _DIM)]
    yield _latency_line("publish", now.publish, figure_words.sparkline(watched.history["publish"], spark))
    yield _latency_line("end to end", now.end_to_end)
    rounds = "" if rates is None else f"{figure_words.count(rates.fsync_rounds)} rounds/s"
    yield _latency_line("fsync", now.fsync, rounds, width)
    yield _latency_line("loop delay", now.loop_delay)
    yield from _fact_lines(
        width,
        ("lag", figure_words.count(now.lag), ""),
        ("in flight", figure_words.count(now.in_flight), ""),
        ("given back", figure_words.count(now.retry), ""),
        ("again/s", _rate(now, "redelivered"), ""),
        ("dead letters/s", _rate(now, "dead_lettered"), _BAD if rates and rates.dead_lettered else ""),
        ("delayed", figure_words.count(now.delayed), ""),
    )
    yield from _lane_lines(now, width)
    oldest = f" (oldest {figure_words.seconds(now.oldest_transaction_s)})" if now.transactions else ""
    cpu = figure_words.NOTHING if rates is None else f"{rates.cpu_percent:.0f} %"
    is_low = now.disk_free_bytes < 2 * now.disk_min_free_bytes
    yield from _fact_lines(
        width,
        ("transactions", f"{now.transactions}{oldest}", ""),
        ("cpu", cpu, ""),
        ("memory", figure_words.size(now.memory_bytes), ""),
        ("disk free", figure_words.size(now.disk_free_bytes), _BAD if is_low else ""),
        ("connections", str(sum(now.connections.values())), ""),
    )


def cut_line(line: Line, width: int) -> Line:
    """The beginning of a line, as much as fits."""
    kept: Line = []
    room = width
    for text, style in line:
        if room <= 0:
            break
        fits = text if cell_len(text) <= room else set_cell_size(text, room)
        kept.append((fits, style))
        room -= cell_len(fits)
    return kept


def _header(watched: ScreenState, width: int) -> Iterator[Line]:
    now = watched.reading
    parts: Line = [("goqueue top", _BOLD), (escape(watched.server), "")]
    if now is None:
        return _flow(([part] for part in [*parts, ("looking", _DIM)]), width, GAP)
    state = ("ready", _GOOD) if now.ready else ("NOT READY", _BAD)
    if watched.away:
        state = ("AWAY", _BAD)
    parts += [(escape(now.version), ""), (f"up {figure_words.seconds(now.uptime_s)}", ""), state]
    if now.failed_partitions:
        parts.append((f"{now.failed_partitions} partitions failed", _BAD))
    if now.damaged_messages:
        parts.append((f"{now.damaged_messages} messages damaged", _BAD))
    parts.append((clock(now.at), _DIM))
    if now.look_s >= 0.1:
        parts.append((f"a look takes {figure_words.seconds(now.look_s)}", "yellow"))
    return _flow(([part] for part in parts), width, GAP)


def _flow(parts: Iterable[Line], width: int, gap: str) -> Iterator[Line]:
    """Lines with as many parts in each as fit; no part is broken."""
    line: Line = []
    used = 0
    for part in parts:
        wide = sum(cell_len(text) for text, _ in part)
        if line and used + len(gap) + wide > width:
            yield line
            line, used = [], 0
        if line:
            line.append((gap, ""))
            used += len(gap)
        line += part
        used += wide
    yield line


def clock(at: str) -> str:
    """The local time of day of an instant."""
    return datetime.fromisoformat(at[:19] + "+00:00").astimezone().strftime("%H:%M:%S")


def _latency_line(name: str, found: Latency, more: str = "", width: int = sys.maxsize) -> Line:
    """A row of latencies, with ``more`` if there is room for it."""
    return [
        (f"{name:12}{figure_words.latency(found.p50_s, is_at_least=found.p50_is_at_least):>12}", ""),
        (f"{figure_words.latency(found.p99_s, is_at_least=found.p99_is_at_least):>11}   ", _BOLD),
        (more if _FIGURES_WIDTH + cell_len(more) <= width else "", "cyan"),
    ]


def _per_s(reading: BrokerReading, name: str) -> float | None:
    return None if reading.rates is None else float(getattr(reading.rates, name))


def _rate(reading: BrokerReading, name: str) -> str:
    per_s = _per_s(reading, name)
    return figure_words.NOTHING if per_s is None else figure_words.count(per_s)


def _fact_lines(width: int, *facts: tuple[str, str, str]) -> Iterator[Line]:
    """Lines with as many names and figures in each as fit."""
    return _flow(([(f"{name} ", _DIM), (value, style or _BOLD)] for name, value, style in facts), width, _BETWEEN)


def _lane_lines(now: BrokerReading, width: int) -> Iterator[Line]:
    if now.lanes is None:
        yield [("waiting by lane: ", _DIM), (figure_words.NOTHING, "")]
        return
    of_all = "waiting:" if now.lanes_of_partitions is None else f"waiting in {now.lanes_of_partitions:,} partitions:"
    (first, most), *others = ((lane, figure_words.count(count)) for lane, count in now.lanes.items())
    yield from _fact_lines(width, (f"{of_all} {first}", most, ""), *((lane, count, "") for lane, count in others))


def _table_lines(now: BrokerReading, sort: str, width: int, room: int) -> Iterator[Line]:
    """Tables of groups and topics. Groups come first, because lag matters most. Topics get the rest, at least a
    third."""
    topics = min(len(now.topics), max(room - len(now.groups) - 3, room // 3 - 1)) if now.topics else 0
    for_groups = room - (topics + 1 if topics > 0 else 0)
    groups = sorted(now.groups, key=SORTS[sort])
    if groups and for_groups >= 2:
        yield from _fitted_table(
            ["group", "lag", "change/s", "in flight", "given back", "members", "out/s", "p99"],
            [_group_cells(each) for each in groups],
            width,
            for_groups,
        )
    if topics > 0:
        rows = [
            [each.topic, figure_words.count(each.published_per_s), figure_words.size(each.published_bytes_per_s)]
            for each in now.topics
        ]
        yield from _fitted_table(["topic", "in/s", "bytes/s"], rows, width, topics + 1)


def _group_cells(each: GroupReading) -> list[str]:
    change = each.lag_change_per_s
    rising = figure_words.NOTHING if change is None else f"{'+' if change > 0 else ''}{figure_words.count(change)}"
    return [
        each.group,
        figure_words.count(each.lag),
        rising,
        figure_words.count(each.in_flight),
        figure_words.count(each.retry),
        str(each.members),
        figure_words.NOTHING if each.delivered_per_s is None else figure_words.count(each.delivered_per_s),
        figure_words.latency(each.end_to_end.p99_s, is_at_least=each.end_to_end.p99_is_at_least),
    ]


def _fitted_table(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, room: int) -> Iterator[Line]:
    """A table of at most ``room`` lines, titles included; the last one counts the rows left out."""
    shown = rows if len(rows) < room else rows[: max(0, room - 2)]
    cells = [[escape(row[0]), *row[1:]] for row in shown]
    widths = [max(cell_len(row[at]) for row in [titles, *cells]) for at in range(len(titles))]
    name_width = max(_NARROWEST_NAME, min(widths[0], width - sum(widths[1:]) - 2 * (len(widths) - 1)))
    for number, row in enumerate([titles, *cells]):
        name = set_cell_size(shortened(row[0], name_width, "…"), name_width)
        figures = "".join(
            "  " + " " * (wide - cell_len(cell)) + cell for wide, cell in zip(widths[1:], row[1:], strict=True)
        )
        yield [(f"{name}{figures}", _DIM if number == 0 else "")]
    if len(shown) < len(rows):
        yield [(f"{len(rows) - len(shown)} more", _DIM)]
