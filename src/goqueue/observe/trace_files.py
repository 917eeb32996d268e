"""Trace files: events as lines of JSON in a sequence of files, of which the oldest are deleted beyond a limit.

Events are written frequently and never synced: a power loss may lose the last few. The logs hold the same facts, so
nothing depends on trace files. A truncated line is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import msgspec

from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.logging import get_logger
from goqueue.observe.trace_event import TraceEvent, covers, extent
from goqueue.storage.files.files import File, Files

log = get_logger(__name__)

_SUFFIX = ".jsonl"
_CHUNK_BYTES = 256 << 10
_LONGEST_LINE = 16 << 20
_FILES_FOR_RETENTION = 8
"""A file covers at most this fraction of the retention time, so that old events are deleted even if there are few."""
_NEVER_NS = 1 << 62
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TraceEvent)


@dataclass(slots=True)
class _Summary:
    """Contents of a file in brief, so that most files need not be read."""

    first_ns: int = _NEVER_NS
    last_ns: int = 0
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Range of offsets of the events of each partition."""
    copies: set[str] = field(default_factory=set)
    """Partitions that copies were written to."""

    def add(self, event: TraceEvent) -> None:
        self.first_ns, self.last_ns = min(self.first_ns, event.at), max(self.last_ns, event.at)
        first, end = extent(event.offsets)
        known = self.places.get(event.place)
        self.places[event.place] = (first, end) if known is None else (min(first, known[0]), max(end, known[1]))
        if event.to:
            self.copies.add(event.to)


@dataclass(slots=True)
class _TraceFile:
    path: Path
    size: int
    begun_ns: int
    summary: _Summary | None
    """``None`` if the file has not been read completely since the start."""
    end: int | None = None
    """Number of the event after the last in the file; ``None`` if the file was written before the start."""
    events: int = 0
    ended_ns: int | None = None
    """Time at which the file was closed; ``None`` for the current file."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Criteria of a search for events. ``places`` are whole partitions, or partitions with one offset each."""

    places: dict[str, int | None] | None = None
    start_ns: int = 0
    end_ns: int = _NEVER_NS
    kind: str | None = None
    copies_in: str | None = None
    """If set, only events that wrote copies to this partition."""

    def fits(self, event: TraceEvent) -> bool:
        if self.kind is not None and event.event != self.kind:
            return False
        if self.copies_in is not None and event.to != self.copies_in:
            return False
        if not self.start_ns <= event.at <= self.end_ns:
            return False
        if self.places is None:
            return True
        if event.place not in self.places:
            return False
        offset = self.places[event.place]
        return offset is None or covers(event.offsets, offset)

    def may_be_in(self, summary: _Summary) -> bool:
        if summary.last_ns < self.start_ns or summary.first_ns > self.end_ns:
            return False
        if self.copies_in is not None and self.copies_in not in summary.copies:
            return False
        if self.places is None:
            return True
        return any(
            (known := summary.places.get(place)) is not None and (offset is None or known[0] <= offset < known[1])
            for place, offset in self.places.items()
        )


@dataclass(slots=True)
class Budget:
    """Number of bytes that a search may still read."""

    left_bytes: int
    is_spent: bool = False
    whole: Budget | None = None
    """The budget that this one is a part of."""

    def take(self, size: int) -> bool:
        if size > self.left_bytes or (self.whole is not None and not self.whole.take(size)):
            self.is_spent = True
            return False
        self.left_bytes -= size
        return True

    def part(self, most_bytes: int) -> Budget:
        """A budget for one of several searches, up to ``most_bytes`` of what is left; the rest stays in the whole."""
        return Budget(most_bytes, whole=self)


class TraceFiles:
    """Written by one thread at a time, read by any number."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        file_bytes: int,
        retention_bytes: int,
        retention_ms: int,
        now_ns: Callable[[], int],
    ) -> None:
        self._files = files
        self._folder = folder
        self._file_bytes = file_bytes
        self._retention_bytes = retention_bytes
        self._retention_ns = retention_ms * NANOS_PER_MS
        self._now_ns = now_ns
        self._lock = Lock()
        self._current: File | None = None
        files.make_dirs(folder)
        names = sorted(name for name in files.list_dir(folder) if name.endswith(_SUFFIX) and _digits(name[:-6]))
        self._known = [
            _TraceFile(folder / name, files.size(folder / name), int(name.removesuffix(_SUFFIX)), None)
            for name in names
        ]
        for each, following in zip(self._known, self._known[1:], strict=False):
            each.ended_ns = following.begun_ns
        if self._known:
            self._known[-1].ended_ns = now_ns()

    @property
    def size_bytes(self) -> int:
        return sum(each.size for each in list(self._known))

    def write(self, events: Sequence[TraceEvent], first: int = 0) -> None:
        """Append events; starts a new file and deletes old ones when due. Raises ``OSError``: then none of the events
        counts as written.

        ``first`` is the number of the first event since the start; numbers are consecutive.
        """
        lines = b"".join(_encoder.encode(event) + b"\n" for event in events)
        with self._lock:
            # Event numbers in a file are consecutive, so that events also held in memory are easily skipped.
            if self._current is None or self._known[-1].end != first or self._is_full(self._known[-1]):
                self._start_file(first)
            current = self._known[-1]
            assert self._current is not None and current.summary is not None
            try:
                self._current.write(current.size, lines)
            except OSError:
                # The state of the file is unknown after a failed write: the next write goes to a new file.
                self._give_up(current)
                raise
            current.size += len(lines)
            current.end = first + len(events)
            current.events += len(events)
            for event in events:
                current.summary.add(event)
        self.clean()

    def _is_full(self, current: _TraceFile) -> bool:
        return current.size >= self._file_bytes or self._is_too_old(current)

    def _is_too_old(self, current: _TraceFile) -> bool:
        return self._now_ns() - current.begun_ns > self._retention_ns // _FILES_FOR_RETENTION

    def _start_file(self, first: int) -> None:
        """Start a new file, named after its start time."""
        begun_ns = max(self._now_ns(), self._known[-1].begun_ns + 1 if self._known else 0)
        path = self._folder / f"{begun_ns:020}{_SUFFIX}"
        opened = self._files.open(path, create=True)
        self._close_current(begun_ns)
        self._current = opened
        self._known.append(_TraceFile(path, 0, begun_ns, _Summary(), first))

    def _close_current(self, now_ns: int) -> None:
        """Close the current file for writing."""
        self._current = None
        if self._known and self._known[-1].ended_ns is None:
            self._known[-1].ended_ns = now_ns

    def _give_up(self, current: _TraceFile) -> None:
        self._close_current(self._now_ns())
        if not current.size:
            # While a disk is full, every attempt would leave another empty file.
            self._known.remove(current)
            with suppress(OSError):
                self._files.remove(current.path)

    def clean(self) -> None:
        """Delete files that are too old or exceed the total size; the current one only if it is too old itself."""
        with self._lock:
            total, now_ns = self.size_bytes, self._now_ns()
            if self._current is not None and self._is_too_old(self._known[-1]):
                # Close the file even without new events: its age counts from now on.
                self._close_current(now_ns)
            while self._known and (ended_ns := self._known[0].ended_ns) is not None:
                is_too_much = total > self._retention_bytes and len(self._known) > 1
                if not is_too_much and now_ns - ended_ns <= self._retention_ns:
                    return
                oldest = self._known.pop(0)
                total -= oldest.size
                try:
                    self._files.remove(oldest.path)
                except OSError as error:
                    log.warning("an old trace file cannot be deleted", path=str(oldest.path), error=str(error))

    def search(self, wanted: Wanted, budget: Budget, before: int | None = None) -> Iterator[list[TraceEvent]]:
        """Matching events, newest first, a few at a time; ``before`` excludes events from that number on.

        To be called in a thread. Files beyond the budget are skipped, which the budget records.
        """
        with self._lock:
            newest_first = [(each, each.size, each.end, each.events) for each in reversed(self._known)]
        for each, size, end, events in newest_first:
            if before is not None and end is not None and end - events >= before:
                continue
            if each.summary is not None and not wanted.may_be_in(each.summary):
                continue
            passed_over = max(0, end - before) if before is not None and end is not None else 0
            yield from self._read(each, size, wanted, budget, passed_over)
            if budget.is_spent:
                return

    def _read(
        self, each: _TraceFile, size: int, wanted: Wanted, budget: Budget, passed_over: int
    ) -> Iterator[list[TraceEvent]]:
        """Matching events of a file without its last ``passed_over`` events."""
        summary = _Summary() if each.summary is None else None
        begins, holds = _marks(wanted)
        for lines in self._newest_lines_first(each.path, size, budget):
            found: list[TraceEvent] = []
            for line in lines:
                if not line:
                    continue
                if passed_over:
                    passed_over -= 1
                    continue
                if summary is None and not (line.startswith(begins) and all(mark in line for mark in holds)):
                    continue
                event = _decoded(line)
                if event is None:
                    continue
                if summary is not None:
                    summary.add(event)
                if wanted.fits(event):
                    found.append(event)
            yield found
        if summary is not None and each.summary is None and not budget.is_spent:
            each.summary = summary

    def _newest_lines_first(self, path: Path, size: int, budget: Budget) -> Iterator[list[bytes]]:
        rest = b""
        try:
            file = self._files.open(path)
            for end in range(size, 0, -_CHUNK_BYTES):
                start = max(0, end - _CHUNK_BYTES)
                if not budget.take(end - start):
                    return
                lines = (file.read(start, end - start) + rest).split(b"\n")
                # The first line may begin before this block.
                rest = lines.pop(0) if start else b""
                if len(rest) > _LONGEST_LINE:
                    rest = b""
                lines.reverse()
                yield lines
        except OSError as error:
            # Most likely deleted meanwhile because of its age.
            log.debug("a trace file cannot be read", path=str(path), error=str(error))


def _marks(wanted: Wanted) -> tuple[tuple[bytes, ...], list[bytes]]:
    """Prefixes of lines that may match, and byte strings they contain: most lines need not be decoded."""
    begins: tuple[bytes, ...] = (b"",)
    if wanted.places is not None:
        begins = tuple(b'{"place":' + _encoder.encode(place) + b"," for place in wanted.places)
    holds = []
    if wanted.kind is not None:
        holds.append(b'"event":' + _encoder.encode(wanted.kind))
    if wanted.copies_in is not None:
        holds.append(b'"to":' + _encoder.encode(wanted.copies_in))
    return begins, holds


def _decoded(line: bytes) -> TraceEvent | None:
    """The event; ``None`` if the line is no event or is truncated."""
    try:
        event = _decoder.decode(line)
        first, end = extent(event.offsets)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    is_whole = isinstance(event.offsets, str) or len(event.offsets) % 2 == 0
    is_placed = all(_digits(place.rpartition("/")[2]) for place in (event.place, event.to or event.place))
    return event if is_whole and is_placed and 0 <= first < end else None


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
