"""How a command ends when it cannot do what it was asked: a sentence and a hint, never a traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import typer

from goqueue.model.errors import GoQueueError, InvalidRequest

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
P = ParamSpec("P")


def reported(command: Callable[P, int]) -> Callable[P, None]:
    """Make a function that returns an exit status into a command that prints its errors.

    What the user can correct (a request or a configuration) ends with 2, every other ``GoQueueError`` with 1.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        raise typer.Exit(_status(functools.partial(command, *args, **kwargs)))

    return run


def _status(command: Callable[[], int]) -> int:
    try:
        return command()
    except GoQueueError as error:
        typer.echo(f"error: {error}", err=True)
        typer.echo(f"hint: {error.remedy}", err=True)
        return EXIT_USAGE if isinstance(error, InvalidRequest) else EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
