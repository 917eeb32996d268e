"""Asking before something is destroyed."""

from __future__ import annotations

import sys

import typer

from goqueue.cli.connection.target import in_words
from goqueue.cli.terminal.running_command import command_arguments
from goqueue.observe.logs import escape


def confirmed(question: str, yes: bool) -> bool:
    """Whether to go on: without asking if ``yes``, else as the person at the terminal says.

    A command that has an option ``--server`` tells first which broker it is about: a variable that is set somewhere
    may have chosen another than the one that is thought of. Where nobody can be asked, what was not said beforehand
    is refused as a wrong request. After a "no" this says that nothing was changed; the command ends with EXIT_FAILED.
    Ctrl-C is a no as well, and interrupts. ``question`` is shown as it is: names in it are escaped by who asks.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here; say --yes to do it", param_hint="--yes")
    arguments = command_arguments()
    if "server" in arguments:
        server = arguments["server"]
        typer.echo(f"the broker is {escape(in_words(str(server) if server else None))}", err=True)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as abort:
        # The line of the question ends here.
        typer.echo(err=True)
        agreed, was_interrupted = False, isinstance(abort.__context__, KeyboardInterrupt)
    else:
        was_interrupted = False
    if not agreed:
        typer.echo("nothing was changed", err=True)
    if was_interrupted:
        raise KeyboardInterrupt
    return agreed
