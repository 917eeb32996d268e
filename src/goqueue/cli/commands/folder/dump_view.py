"""How an entry of a file looks, on one line."""

from __future__ import annotations

from typing import Any

import msgspec

from goqueue.cli.terminal.styled_lines import Line
from goqueue.observe.logs import escape


def json_line(entry: dict[str, Any]) -> str:
    return msgspec.json.encode(entry, enc_hook=_as_text).decode()


def line(entry: dict[str, Any]) -> Line:
    kind = entry["kind"]
    if kind == "message":
        return _message(entry)
    if kind == "events":
        told = entry["events"] if "events" in entry else entry["value"]
        return [*_place(entry), (f"  {_shown(told)}", "")]
    if kind in {"damaged", "torn"} and "position" in entry:
        text = (
            f"{kind}: {entry['size']} bytes from byte {entry['position']} of {entry['segment']} on are {entry['what']}"
        )
        return [(text, "bold red" if kind == "damaged" else "yellow")]
    rest = "  ".join(f"{name} {_shown(value)}" for name, value in entry.items() if name != "kind")
    return [(f"{kind}: ", "dim"), (rest, "")]


def _place(entry: dict[str, Any]) -> Line:
    where = f"  at byte {entry['position']}, {entry['size']} bytes  {entry['time']}"
    return [(f"{entry['offset']}", "bold"), (where, "dim")]


def _message(entry: dict[str, Any]) -> Line:
    made = [*_place(entry), (f"  {entry['lane']}", "")]
    if entry["flags"]:
        made.append((f"  [{', '.join(entry['flags'])}]", "yellow"))
    if entry["key"] is not None:
        made.append((f"  {escape(entry['key'])}", "cyan"))
    if entry["headers"]:
        made.append((f"  {_shown(entry['headers'])}", "dim"))
    if entry["value"] is not None:
        made.append((f"  {escape(entry['value'])}", ""))
    return made


def _shown(value: object) -> str:
    return escape(value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=_as_text).decode())


def _as_text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
