"""Help and usage errors in plain English, where typer's own texts address Python programmers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

_TYPE = re.compile(r" <[^<>]*>$")
_REQUIRED = re.compile(r"\{(.*)\}")
_IN_PLAIN_WORDS: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"^Input should be greater than or equal to "), "it must be at least "),
    (re.compile(r"^Input should be less than or equal to "), "it must be at most "),
    (
        re.compile(r"^(Input should be a valid|Unable to parse input string as an) integer.*", re.S),
        "it is no whole number",
    ),
)


class PlainCommand(TyperCommand):
    """A command whose help shows no Python types and whose usage errors are in plain English."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = plain_refusal(error.message)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [_REQUIRED.sub(r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            records = [each.get_help_record(ctx) for each in self.get_params(ctx) if each.param_type_name == kind]
            rows = [(_TYPE.sub(_type_to_show, names), help) for names, help in filter(None, records)]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def command_group(help: str, examples: str) -> typer.Typer:
    """A command whose subcommands are to be added."""
    return typer.Typer(help=help, epilog=examples, no_args_is_help=True, rich_markup_mode=None)


def plain_refusal(refusal: str) -> str:
    """Rewrite a validation error of the argument parser in plain English."""
    for pattern, plain in _IN_PLAIN_WORDS:
        refusal = pattern.sub(plain, refusal)
    return refusal


def use_plain_help(app: typer.Typer) -> None:
    """Use ``PlainCommand`` for all commands of ``app`` and of the groups below it."""
    for command in app.registered_commands:
        command.cls = PlainCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            use_plain_help(group.typer_instance)


def _type_to_show(found: re.Match[str]) -> str:
    """Keep a type that lists choices; drop one that adds nothing to the option's name."""
    return found[0] if "|" in found[0] else ""
