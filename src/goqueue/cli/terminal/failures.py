"""Exit statuses and error reporting of commands: an error is printed as a sentence with its code and a hint, never as a
traceback."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import ParamSpec

import typer

from goqueue.cli.terminal import interrupts
from goqueue.cli.terminal.hints import code_and_remedy, is_silence
from goqueue.cli.terminal.interrupts import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from goqueue.model.errors import BrokerUnavailable, DeliveryTimeout, GoQueueError, InvalidRequest, OffsetOutOfRange

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_BROKER = 3
EXIT_NOT_FOUND = 4
EXIT_PROBLEMS = 5
"""The command succeeded, and what it examined has problems."""
_NOT_FOUND = 404
P = ParamSpec("P")


def reported(command: Callable[P, int]) -> Callable[P, None]:
    """Turn a function that returns an exit status into a command that prints its errors and exits with a status.

    The status is 2 for errors that the user can correct (a request or a configuration), 3 if no broker is reachable or
    answers in time, 4 if something does not exist on the broker, and 1 for every other ``GoQueueError``.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        interrupts.raise_again()
        try:
            status = _status(functools.partial(command, *args, **kwargs))
        finally:
            interrupts.raise_again()
        raise typer.Exit(status)

    return run


def reported_as(
    command: Callable[..., int], run: Callable[..., int], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """``reported`` for ``run``, with the name and help of ``command`` and these options."""
    functools.update_wrapper(run, command)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return reported(run)


def tell_error(message: str, code: str, remedy: str) -> None:
    """Print an error and its hint on standard error. The code ends the first line, where scripts find it even if the
    message has several lines."""
    first, *others = message.split("\n")
    typer.echo("\n".join([f"error: {first} {typer.style(f'[{code}]', dim=True)}", *others]), err=True)
    if remedy:
        typer.echo(f"hint: {remedy}", err=True)


def _status_of(error: GoQueueError) -> int:
    if isinstance(error, InvalidRequest | OffsetOutOfRange):
        return EXIT_USAGE
    if isinstance(error, BrokerUnavailable) or _is_unanswered(error):
        return EXIT_NO_BROKER
    return EXIT_NOT_FOUND if error.http_status == _NOT_FOUND else EXIT_FAILED


def _is_unanswered(error: GoQueueError) -> bool:
    """Whether the deadline passed because no broker answered."""
    why = error.__cause__
    return isinstance(error, DeliveryTimeout) and (not isinstance(why, GoQueueError) or is_silence(why))


def _status(command: Callable[[], int]) -> int:
    try:
        return command()
    except GoQueueError as error:
        tell_error(str(error), *code_and_remedy(error))
        return _status_of(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
