"""Formats the output of ``goqueue delay``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from goqueue.cli.terminal import tables
from goqueue.cli.terminal.message_text import cell_text, key_text, value_line
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.times import Times, duration
from goqueue.model.errors import GoQueueError
from goqueue.model.units import parse_instant_ns

if TYPE_CHECKING:
    from goqueue.cli.commands.delay.delay_calls import Position

_KEY_WIDTH = 20
_VALUE_WIDTH = 50


def delayed_table(messages: Sequence[dict[str, Any]], now_ns: int) -> Iterator[Line]:
    """A row for each delayed message."""
    rows = []
    for each in messages:
        left_ns = parse_instant_ns(each["deliver_at"]) - now_ns
        size = each.get("size_bytes", 0)
        rows.append(
            [
                str(each["partition"]),
                str(each["offset"]),
                Times().later(each["deliver_at"], now_ns),
                duration(left_ns) if left_ns > 0 else "now",
                cell_text(key_text(each), _KEY_WIDTH),
                value_line(each, _VALUE_WIDTH) if "value" in each else f"({size:,} bytes)",
            ]
        )
    return tables.table(["partition", "offset", "due at", "in", "key", "value"], rows)


def due_text(instant: str, now_ns: int) -> str:
    left_ns = parse_instant_ns(instant) - now_ns
    return f"at {Times().later(instant, now_ns)}, in {duration(left_ns)}" if left_ns > 0 else "now"


def outcome_json(position: Position, error: GoQueueError | None) -> dict[str, Any]:
    """The JSON result of cancelling one message."""
    result: dict[str, Any] = {"partition": position[0], "offset": position[1], "cancelled": error is None}
    return result if error is None else {**result, "error": str(error)}


def failures_table(done: Sequence[tuple[Position, GoQueueError | None]]) -> Iterator[Line]:
    """The messages that could not be cancelled, and why."""
    rows = [[str(partition), str(offset), str(error)] for (partition, offset), error in done if error is not None]
    return tables.table(["partition", "offset", "problem"], rows)
