"""``docs/reference/cli.md``, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from goqueue.cli.app import app
from reference_pages.markdown import anchor, block, code, link, page, table

_NAME = "goqueue"
_INTRO = """\
# Command line

Every command, as `-h` tells it. [The guide](../cli.md) shows them at work."""


def command_page() -> str:
    """The text of the page."""
    root = typer.main.get_command(app)
    commands = list(_commands(root, _NAME))
    rows = [
        (link(code(name), anchor(name)), _paragraphs(command.help)[0])
        for name, command in commands
        if name != _NAME and not _children(command)
    ]
    return page(
        _INTRO, table(("Command", "What it does"), rows), *(_command(name, command) for name, command in commands)
    )


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A command and all below it, in the order of the help."""
    yield name, command
    for child, own in _children(command).items():
        if not own.hidden:
            yield from _commands(own, f"{name} {child}")


def _children(command: Any) -> dict[str, Any]:
    return getattr(command, "commands", {})


def _command(name: str, command: Any) -> str:
    # A command inside a group is one heading lower than its group.
    level = "##" if name.count(" ") <= 1 else "###"
    first, *more = _paragraphs(command.help)
    parts = [f"{level} {name}", first]
    context = typer.Context(command, info_name=name)
    if children := _children(command):
        if name != _NAME:
            below = [(link(code(f"{name} {child}"), anchor(f"{name} {child}")), child) for child in children]
            parts.append("Commands: " + ", ".join(target for target, _ in below) + ".")
    else:
        parts.append(block("text", _usage(name, command, context)))
    parts += more
    parts.append(_parameters(command, context, "argument", "Argument"))
    parts.append(_parameters(command, context, "option", "Option"))
    parts += _epilog(command.epilog or "")
    return "\n\n".join(part for part in parts if part)


def _usage(name: str, command: Any, context: Any) -> str:
    return " ".join([name, *(re.sub(r"[{}]", "", piece) for piece in command.collect_usage_pieces(context))])


def _parameters(command: Any, context: Any, kind: str, title: str) -> str:
    rows = []
    for parameter in command.params:
        record = parameter.get_help_record(context) if parameter.param_type_name == kind else None
        if record is None or getattr(parameter, "hidden", False):
            continue
        names, said = record
        said, _, notes = said.partition("  [")
        rows.append((code(_without_plain_type(names)), said.strip(), _notes(notes)))
    return table((title, "Meaning", ""), rows)


def _without_plain_type(names: str) -> str:
    """``TOPIC <str>`` says no more than ``TOPIC``."""
    return re.sub(r" <(list\[str\]|[a-z ]+)>$", "", names)


def _notes(notes: str) -> str:
    """What is said in brackets behind the help: the default, the bounds, whether it must be given."""
    said = []
    for note in notes.strip().removesuffix("]").split("; "):
        name, colon, value = note.partition(": ")
        said.append(f"{name}: {code(value)}" if colon else (code(note) if "=" in note else note))
    return "; ".join(said)


def _epilog(epilog: str) -> list[str]:
    """What comes behind the options: titles with a colon, and lines below them that are kept as they are."""
    parts = []
    for paragraph in epilog.replace("\b", "").strip().split("\n\n"):
        title, _, lines = paragraph.strip().partition("\n")
        if not lines:
            parts.append(title)
            continue
        kept = [line.removeprefix("  ") for line in lines.splitlines()]
        parts += [f"**{title.rstrip(':')}**", block("text", "\n".join(kept))]
    return parts


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in (text or "").replace("\b", "").split("\n\n")] or [""]
