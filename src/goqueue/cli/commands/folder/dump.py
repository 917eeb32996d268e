"""``goqueue dump``: prints the contents of a file of a data folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from goqueue.cli.connection.target import JsonOption
from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED, EXIT_PROBLEMS, reported
from goqueue.cli.terminal.output import Line, print_lines
from goqueue.model.errors import InvalidRequest, NotFound
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from threading import Event

EXAMPLES = """\b
Examples:
  goqueue dump ./goqueue-data/logs/orders~*/0                     every message of a partition
  goqueue dump ./goqueue-data/logs/orders~*/0 --from 20 --limit 5
  goqueue dump ./goqueue-data/logs/__metadata/0 --json            events of topics
  goqueue dump ./goqueue-data/logs/orders~*/0/00000000000000000000.timeindex
  goqueue dump ./goqueue-data/checkpoint                          recovery points
"""
_MOST = 1 << 62
_SEGMENT = re.compile(r"\d{20}\.log")


class NoSuchFile(NotFound):
    """There is no file or folder at this path."""

    remedy = "Give a partition's folder (DATA/logs/TOPIC~ID/PARTITION), or a file in a data folder."


class NoPartition(InvalidRequest):
    """The folder is not that of a partition."""

    remedy = "Give a partition's folder (DATA/logs/TOPIC~ID/PARTITION), or a file in a data folder."


@reported
def dump(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A partition's folder, a segment or one of its index files, checkpoint or a snapshot."
        ),
    ],
    first: Annotated[int, typer.Option("--from", metavar="OFFSET", min=0, max=_MOST, help="Begin at this offset.")] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, max=_MOST, help="At most this many entries.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show whole keys, values and headers, and secrets.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Show the contents of a file of a data folder. Works beside a running broker; changes nothing."""
    where = Path(path)
    if not where.exists():
        raise NoSuchFile(f"there is no file or folder {where}")
    problems = False
    with progress.stoppable() as stop:
        for each in islice(_until(stop, _entries(where, first, full=full)), limit):
            problems = problems or each.get("kind") == "damaged"
            if as_json:
                typer.echo(_json_line(each))
            else:
                print_lines([_line(each)])
    if stop.is_set():
        return EXIT_INTERRUPTED
    return EXIT_PROBLEMS if problems else 0


def _until(stop: Event, entries: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in entries:
        if stop.is_set():
            return
        yield each


def _entries(path: Path, first: int, *, full: bool) -> Iterator[dict[str, Any]]:
    from goqueue.cli.commands.folder import dump_entries

    if path.is_dir():
        segments = sorted(each for each in path.iterdir() if _SEGMENT.fullmatch(each.name))
        if not segments:
            if not _is_of_partition(path.absolute()):
                raise NoPartition(f"{path} is no partition's folder: it has no segments")
            typer.echo(f"{path} is empty: nothing was stored there, or it was removed since", err=True)
        # Only segments that may hold offsets from ``first`` on.
        later = [each for each in segments if int(each.stem) > first]
        for each in [*segments[: len(segments) - len(later)][-1:], *later]:
            yield from dump_entries.frame_entries(each, first, full=full)
        return
    yield from dump_entries.file_entries(path, first, full=full)


def _is_of_partition(folder: Path) -> bool:
    return folder.name.isdigit() and folder.parent.parent.name in {"logs", "orphans"}


def _json_line(entry: dict[str, Any]) -> str:
    return msgspec.json.encode(entry, enc_hook=_as_text).decode()


def _line(entry: dict[str, Any]) -> Line:
    kind = entry["kind"]
    if kind == "message":
        return _message(entry)
    if kind == "events":
        events = entry["events"] if "events" in entry else entry["value"]
        return [*_position_spans(entry), (f"  {_display_text(events)}", "")]
    if kind in {"damaged", "torn"} and "position" in entry:
        text = (
            f"{kind}: {entry['size']} bytes from byte {entry['position']} of {entry['segment']} on are {entry['what']}"
        )
        return [(text, "bold red" if kind == "damaged" else "yellow")]
    rest = "  ".join(f"{name} {_display_text(value)}" for name, value in entry.items() if name != "kind")
    return [(f"{kind}: ", "dim"), (rest, "")]


def _position_spans(entry: dict[str, Any]) -> Line:
    where = f"  at byte {entry['position']}, {entry['size']} bytes  {entry['time']}"
    return [(f"{entry['offset']}", "bold"), (where, "dim")]


def _message(entry: dict[str, Any]) -> Line:
    spans = [*_position_spans(entry), (f"  {entry['lane']}", "")]
    if entry["flags"]:
        spans.append((f"  [{', '.join(entry['flags'])}]", "yellow"))
    if entry["key"] is not None:
        spans.append((f"  {escape(entry['key'])}", "cyan"))
    if entry["headers"]:
        spans.append((f"  {_display_text(entry['headers'])}", "dim"))
    if entry["value"] is not None:
        spans.append((f"  {escape(entry['value'])}", ""))
    return spans


def _display_text(value: object) -> str:
    return escape(value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=_as_text).decode())


def _as_text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
