"""Formats an entry of a file as one line."""

from __future__ import annotations

from typing import Any

import msgspec

from goqueue.cli.terminal.output import Line
from goqueue.observe.logs import escape


def json_line(entry: dict[str, Any]) -> str:
    return msgspec.json.encode(entry, enc_hook=_as_text).decode()


def line(entry: dict[str, Any]) -> Line:
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
