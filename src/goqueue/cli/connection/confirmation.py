"""Asks for confirmation before data is destroyed."""

from __future__ import annotations

import sys

import typer

from goqueue.cli.connection.target import BrokerOptions, in_words
from goqueue.observe.logs import escape


def confirmed(question: str, yes: bool, options: BrokerOptions | None = None) -> bool:
    """Whether to go on: True if ``yes``, else the answer of the user at the terminal.

    With the ``options`` of a command on a broker, the broker is printed first, because an environment variable may
    have chosen another than the one expected. Without a terminal to ask on, a missing ``--yes`` is a usage error. After
    a "no" this prints that nothing was changed, and the command should end with EXIT_FAILED. Ctrl-C counts as "no", and
    raises ``KeyboardInterrupt``. ``question`` is printed as it is: the caller escapes names in it.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here; say --yes to do it", param_hint="--yes")
    if options is not None:
        typer.echo(f"the broker is {escape(in_words(options.server))}", err=True)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as abort:
        # End the line of the question.
        typer.echo(err=True)
        agreed, was_interrupted = False, isinstance(abort.__context__, KeyboardInterrupt)
    else:
        was_interrupted = False
    if not agreed:
        typer.echo("nothing was changed", err=True)
    if was_interrupted:
        raise KeyboardInterrupt
    return agreed
