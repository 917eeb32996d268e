"""Deletes several topics or groups by name; if one of them does not exist, none is deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer

from goqueue.cli.terminal.output import print_json
from goqueue.model.errors import GoQueueError
from goqueue.observe.logs import escape


def look_up_all(
    names: Iterable[str], find: Callable[[str], dict[str, Any]], missing: type[GoQueueError], *, if_exists: bool
) -> list[dict[str, Any]]:
    """Look up each name, once. Raises if one is ``missing``, or skips it with ``if_exists``."""
    found = []
    for name in dict.fromkeys(names):
        try:
            found.append(find(name))
        except missing:
            if not if_exists:
                raise
    return found


def delete_each(
    names: Iterable[str], delete: Callable[[str], object], missing: type[GoQueueError], *, as_json: bool
) -> None:
    """Delete one after the other, and report what was deleted, also if an error comes in between."""
    deleted: list[str] = []
    try:
        for name in names:
            try:
                delete(name)
            except missing:
                # Deleted by another client since it was looked up.
                continue
            deleted.append(name)
            if not as_json:
                typer.echo(f"{escape(name)} is deleted")
    finally:
        # Report what was done, also after an error.
        if as_json:
            print_json({"deleted": deleted})
    if not as_json and not deleted:
        typer.echo("there was nothing to delete", err=True)
