"""Deleting several things by name, topics or groups: if one is not there, none is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer

from goqueue.cli.terminal.styled_lines import put_json
from goqueue.model.errors import GoQueueError
from goqueue.observe.logs import escape


def found_of(
    names: Iterable[str], find: Callable[[str], dict[str, Any]], missing: type[GoQueueError], *, if_exists: bool
) -> list[dict[str, Any]]:
    """What there is under each name; ``if_exists`` without those that are ``missing``."""
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
    """One after the other, and tell of it."""
    deleted: list[str] = []
    try:
        for name in names:
            try:
                delete(name)
            except missing:
                # Someone else did it meanwhile.
                continue
            deleted.append(name)
            if not as_json:
                typer.echo(f"{escape(name)} is deleted")
    finally:
        # Whatever comes between: what was done is told.
        if as_json:
            put_json({"deleted": deleted})
    if not as_json and not deleted:
        typer.echo("there was nothing to delete", err=True)
