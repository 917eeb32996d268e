"""Chooses the broker that a command talks to, and declares the options that all such commands share.

The broker is given by ``--server``, as a URL or the name of a context; else by ``$GOQUEUE_SERVER``; else by the current
context; else it is at the default address on this machine.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, TypeVar

import typer

from goqueue.cli.connection import contexts
from goqueue.cli.terminal.failures import reported_as
from goqueue.cli.terminal.output import Line, print_answer
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
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long to wait for the broker.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options that all commands on a broker share, as given: ``--server``, ``--json`` and ``--timeout``."""

    server: str | None
    as_json: bool
    timeout: str

    def broker(self) -> BrokerHttp:
        """An HTTP client of the chosen broker."""
        return broker_at(self.server, self.timeout)

    def client(self) -> Client:
        """A client of the chosen broker, to be closed by the caller."""
        from goqueue.client.sync import Client

        return Client(grpc_address(self.server, self.timeout))

    def show(self, answer: object, lines: str | Iterable[Line]) -> int:
        """Print an answer, as JSON or as the text or lines made of it; return the exit status of success."""
        return print_answer(answer, lines, as_json=self.as_json)


def on_broker(command: Callable[Concatenate[BrokerOptions, ...], int]) -> Callable[..., None]:
    """``reported`` for a command on a broker: adds the shared options to its own, and passes them as its first
    argument."""

    def run(server: str | None, as_json: bool, timeout: str, **own: Any) -> int:
        return command(BrokerOptions(server, as_json, timeout), **own)

    _, *parameters = inspect.signature(command, eval_str=True).parameters.values()
    parameters += [
        inspect.Parameter("server", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ServerOption),
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
        inspect.Parameter("timeout", inspect.Parameter.KEYWORD_ONLY, default=DEFAULT_TIMEOUT, annotation=TimeoutOption),
    ]
    return reported_as(command, run, parameters)


class NoGrpc(InvalidRequest):
    """The command needs gRPC, and the broker does not serve it."""

    remedy = "Start the broker with grpc.enabled=true, or give the context its address: goqueue context add … --grpc."


def resolve_broker(server: str | None) -> Context:
    """The address of the broker to talk to."""
    from goqueue.cli.connection.broker_http import default_server

    address = server or os.environ.get(SERVER_VARIABLE)
    if address:
        # A context's name has neither dots nor colons. A name that is not a context may be a host.
        known = contexts.load().contexts if address.isprintable() and not set(address) & set("./:") else {}
        return known.get(address) or contexts.Context(address)
    saved = contexts.load()
    if saved.current:
        return saved.get(saved.current)
    return contexts.Context(default_server())


def in_words(server: str | None) -> str:
    """The broker's address and where it was configured, for questions before data is destroyed."""
    address = resolve_broker(server).server
    if server:
        return f"{address} (--server {server})" if server != address else address
    if variable := os.environ.get(SERVER_VARIABLE):
        return f"{address} ({SERVER_VARIABLE}={variable})" if variable != address else f"{address} ({SERVER_VARIABLE})"
    current = contexts.load().current
    return f"{address} (context {current})" if current else address


def broker_at(server: str | None, timeout: str = DEFAULT_TIMEOUT) -> BrokerHttp:
    """An HTTP client of the chosen broker."""
    from goqueue.cli.connection.broker_http import BrokerHttp

    return BrokerHttp(resolve_broker(server).server, timeout_s(timeout))


def grpc_address(server: str | None, timeout: str = DEFAULT_TIMEOUT) -> str:
    """HOST:PORT of the broker's gRPC: from the context, else asked of the broker over HTTP."""
    from goqueue.cli.connection.broker_http import BrokerHttp, host_of

    context = resolve_broker(server)
    if context.grpc:
        return context.grpc
    port = BrokerHttp(context.server, timeout_s(timeout)).get("/version").get("grpc_port")
    if not port:
        raise NoGrpc(f"the broker at {context.server} does not serve gRPC, which this command needs")
    host = host_of(context.server)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def timeout_s(timeout: str) -> float:
    try:
        timeout_ms = parse_duration_ms(timeout)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from None
    if not 1 <= timeout_ms <= _LONGEST_MS:
        raise typer.BadParameter(f"{shown(timeout)} is out of range; 1ms to 1d", param_hint="--timeout")
    return timeout_ms / 1_000


def complete_topics(incomplete: str) -> list[str]:
    """Shell completion of topic names. Offers nothing, silently, if no broker answers."""
    return _names_with_prefix("topics", incomplete)


def complete_groups(incomplete: str) -> list[str]:
    """Shell completion of group names. Offers nothing, silently, if no broker answers."""
    return _names_with_prefix("groups", incomplete)


def complete_lanes(incomplete: str) -> list[str]:
    """Shell completion of lanes, whose names are the same on every broker."""
    return [label for label in PRIORITY_LABELS if label.startswith(incomplete)]


def _names_with_prefix(kind: str, incomplete: str) -> list[str]:
    try:
        found = broker_at(None, _COMPLETION_TIMEOUT).get(f"/{kind}")[kind]
    except GoQueueError:
        return []
    return [name for name in found if name.startswith(incomplete)]


NameOrNames = TypeVar("NameOrNames", str, None, list[str])


def require_topic_name(names: NameOrNames) -> NameOrNames:
    """Argument callback that refuses an empty topic name, such as that of an unset variable in a script."""
    return _require_name("topic", names)


def require_group_name(names: NameOrNames) -> NameOrNames:
    """Argument callback that refuses an empty group name, such as that of an unset variable in a script."""
    return _require_name("group", names)


def _require_name(kind: str, names: NameOrNames) -> NameOrNames:
    if names is not None and "" in ([names] if isinstance(names, str) else names):
        raise typer.BadParameter(f"a {kind} has a name; this one is empty")
    return names


def topic_argument(help: str) -> Any:
    """An argument for topic names, with completion; empty names are refused."""
    return typer.Argument(
        metavar="TOPIC", help=help, show_default=False, autocompletion=complete_topics, callback=require_topic_name
    )


def group_argument(help: str) -> Any:
    """An argument for group names, with completion; empty names are refused."""
    return typer.Argument(
        metavar="GROUP", help=help, show_default=False, autocompletion=complete_groups, callback=require_group_name
    )


TopicArgument = Annotated[str, topic_argument("Its name.")]
GroupArgument = Annotated[str, group_argument("Its name.")]
