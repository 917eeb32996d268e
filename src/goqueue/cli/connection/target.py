"""Which broker a command talks to, and the options that every such command has.

The one that ``--server`` names, by its URL or by the name of a context; else the one of ``$GOQUEUE_SERVER``; else the
current context; else a broker of this machine that nobody told to listen elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.message import PRIORITY_LABELS
from goqueue.model.units import parse_duration_ms

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp
    from goqueue.cli.connection.contexts import Context
    from goqueue.client.sync import Client

SERVER_VARIABLE = "GOQUEUE_SERVER"
DEFAULT_TIMEOUT = "60s"
_LONGEST_MS = 86_400_000
_COMPLETION_TIMEOUT = "1s"

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        metavar="URL|CONTEXT",
        help="The broker; else $GOQUEUE_SERVER, else the current context, else http://127.0.0.1:8080.",
    ),
]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long the broker may take.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON, for programs.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


class NoGrpc(InvalidRequest):
    """The command needs gRPC, and the broker does not serve it."""

    remedy = "Start the broker with grpc.enabled=true, or give the context its address: goqueue context add … --grpc."


def chosen(server: str | None) -> Context:
    """Where the broker is."""
    from goqueue.cli.connection import contexts
    from goqueue.cli.connection.broker_http import default_server

    named = server or os.environ.get(SERVER_VARIABLE)
    if named:
        # Names of contexts have neither dots nor colons. One that is no context may be the name of a host.
        known = contexts.load().contexts if named.isprintable() and not set(named) & set("./:") else {}
        return known.get(named) or contexts.Context(named)
    kept = contexts.load()
    if kept.current:
        return kept.get(kept.current)
    return contexts.Context(default_server())


def in_words(server: str | None) -> str:
    """Which broker is meant, and who says so: for questions that are asked before something is destroyed."""
    from goqueue.cli.connection import contexts

    address = chosen(server).server
    if server:
        return f"{address} (--server {server})" if server != address else address
    if named := os.environ.get(SERVER_VARIABLE):
        return f"{address} ({SERVER_VARIABLE}={named})" if named != address else f"{address} ({SERVER_VARIABLE})"
    current = contexts.load().current
    return f"{address} (context {current})" if current else address


def broker_at(server: str | None, timeout: str = DEFAULT_TIMEOUT) -> BrokerHttp:
    """To be asked over HTTP."""
    from goqueue.cli.connection.broker_http import BrokerHttp

    return BrokerHttp(chosen(server).server, timeout_s(timeout))


def grpc_address(server: str | None, timeout: str = DEFAULT_TIMEOUT) -> str:
    """HOST:PORT of its gRPC: as the context says, else as the broker itself tells."""
    from goqueue.cli.connection.broker_http import BrokerHttp, host_of

    context = chosen(server)
    if context.grpc:
        return context.grpc
    port = BrokerHttp(context.server, timeout_s(timeout)).get("/version").get("grpc_port")
    if not port:
        raise NoGrpc(f"the broker at {context.server} does not serve gRPC, which this command needs")
    host = host_of(context.server)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def client_at(server: str | None, timeout: str = DEFAULT_TIMEOUT) -> Iterator[Client]:
    """A client of it, closed behind the block."""
    from goqueue.client.sync import Client

    with Client(grpc_address(server, timeout)) as client:
        yield client


def timeout_s(timeout: str) -> float:
    try:
        timeout_ms = parse_duration_ms(timeout)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from None
    if not 1 <= timeout_ms <= _LONGEST_MS:
        raise typer.BadParameter(f"{shown(timeout)} is out of range; 1ms to 1d", param_hint="--timeout")
    return timeout_ms / 1_000


def topics_that_begin_with(incomplete: str) -> list[str]:
    """For completion in a shell. Without a broker there is nothing to offer, and nothing to say."""
    return _names("topics", incomplete)


def groups_that_begin_with(incomplete: str) -> list[str]:
    """The same for groups."""
    return _names("groups", incomplete)


def lanes_that_begin_with(incomplete: str) -> list[str]:
    """The same for lanes, which are the same everywhere."""
    return [label for label in PRIORITY_LABELS if label.startswith(incomplete)]


def _names(kind: str, incomplete: str) -> list[str]:
    try:
        found = broker_at(None, _COMPLETION_TIMEOUT).get(f"/{kind}")[kind]
    except GoQueueError:
        return []
    return [name for name in found if name.startswith(incomplete)]


Named = TypeVar("Named", str, None, list[str])


def topic_named(given: Named) -> Named:
    """For arguments: a variable that a script did not set must not stand for something else."""
    return _not_empty("topic", given)


def group_named(given: Named) -> Named:
    """The same for groups."""
    return _not_empty("group", given)


def _not_empty(kind: str, given: Named) -> Named:
    if given is not None and "" in ([given] if isinstance(given, str) else given):
        raise typer.BadParameter(f"a {kind} has a name; this one is empty")
    return given


TopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="Its name.",
        show_default=False,
        autocompletion=topics_that_begin_with,
        callback=topic_named,
    ),
]
GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="Its name.",
        show_default=False,
        autocompletion=groups_that_begin_with,
        callback=group_named,
    ),
]
