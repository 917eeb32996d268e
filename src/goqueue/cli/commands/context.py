"""``goqueue context``: names for brokers, and which of them is meant unless another is named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.connection.target import SERVER_VARIABLE, JsonOption, chosen, in_words
from goqueue.cli.terminal.failures import reported
from goqueue.model.addresses import is_host_and_port
from goqueue.model.fields import shown
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.connection.contexts import Context, Contexts

_EXAMPLES = """\b
Examples:
  goqueue context add staging http://staging.example.com:8080   name a broker; the first one becomes the current one
  goqueue context list                                          see them
  goqueue context use staging                                   commands talk to it from now on
  goqueue topic list --server staging                           or only this one
  goqueue context remove staging
"""

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the context.", show_default=False)]
UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="Such as http://HOST:8080.", show_default=False)]
GrpcOption = Annotated[
    str, typer.Option("--grpc", metavar="HOST:PORT", help="Where its gRPC is, if not where the broker itself says.")
]

app = typer.Typer(
    help="Give brokers names, and say which of them is meant.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
@reported
def add(name: NameArgument, url: UrlArgument, grpc: GrpcOption = "", as_json: JsonOption = False) -> int:
    """Give a broker a name, or change what a name stands for."""
    from goqueue.cli.connection import contexts
    from goqueue.cli.connection.broker_http import host_of
    from goqueue.cli.terminal import styled_lines

    host_of(url)
    if grpc:
        _check_address(grpc)
    kept = contexts.load()
    kept.add(name, contexts.Context(url, grpc))
    kept.current = kept.current or name
    contexts.save(kept)
    if as_json:
        styled_lines.put_json(_answer(kept, name))
    else:
        typer.echo(f"{name} is {url}" + (", and the current context" if kept.current == name else ""))
    if kept.current == name:
        _warn_of_variable(kept)
    return 0


@app.command("list")
@reported
def list_contexts(as_json: JsonOption = False) -> int:
    """List the names, and mark the one that is current."""
    from goqueue.cli.connection import contexts
    from goqueue.cli.terminal import styled_lines, tables

    kept = contexts.load()
    if as_json:
        # All fields, whatever they are: the file leaves out those that are empty.
        known = {name: _fields(each) for name, each in sorted(kept.contexts.items())}
        styled_lines.put_json({"current": kept.current, "contexts": known})
    elif kept.contexts:
        rows = [
            ["*" if name == kept.current else "", name, each.server, each.grpc]
            for name, each in sorted(kept.contexts.items())
        ]
        styled_lines.put(tables.table(["", "name", "server", "grpc"], rows))
    else:
        typer.echo("no broker has a name yet; 'goqueue context add NAME URL' gives one", err=True)
    _warn_of_variable(kept)
    return 0


@app.command()
@reported
def use(name: NameArgument, as_json: JsonOption = False) -> int:
    """Make a context the current one."""
    from goqueue.cli.connection import contexts
    from goqueue.cli.terminal import styled_lines

    kept = contexts.load()
    context = kept.get(name)
    kept.current = name
    contexts.save(kept)
    if as_json:
        styled_lines.put_json(_answer(kept, name))
    elif _is_overridden(kept):
        typer.echo(f"{name} is the current context, {context.server}")
    else:
        typer.echo(f"commands talk to {name}, {context.server}")
    _warn_of_variable(kept)
    return 0


@app.command()
@reported
def remove(name: NameArgument, as_json: JsonOption = False) -> int:
    """Forget a name. If it is the current one, none is."""
    from goqueue.cli.connection import contexts
    from goqueue.cli.terminal import styled_lines

    kept = contexts.load()
    answer = {**_answer(kept, name), "current": False}
    was_current = kept.current == name
    del kept.contexts[name]
    kept.current = "" if was_current else kept.current
    contexts.save(kept)
    if as_json:
        styled_lines.put_json(answer)
    elif was_current:
        typer.echo(f"{name} is forgotten, and no context is the current one: commands talk to {escape(in_words(None))}")
    else:
        typer.echo(f"{name} is forgotten")
    return 0


def _fields(context: Context) -> dict[str, str]:
    return {"server": context.server, "grpc": context.grpc}


def _answer(kept: Contexts, name: str) -> dict[str, object]:
    """For programs."""
    return {"name": name, **_fields(kept.get(name)), "current": kept.current == name}


def _is_overridden(kept: Contexts) -> bool:
    """Whether the environment names a broker, and not the one of the current context."""
    if not os.environ.get(SERVER_VARIABLE):
        return False
    return not kept.current or chosen(None) != kept.get(kept.current)


def _warn_of_variable(kept: Contexts) -> None:
    if not _is_overridden(kept):
        return
    named = escape(os.environ[SERVER_VARIABLE])
    instead = (
        f"not to {kept.current}; unset it, or say --server {kept.current}" if kept.current else "unset it to use one"
    )
    typer.echo(f"warning: {SERVER_VARIABLE} is set: commands talk to {named}, {instead}", err=True)


def _check_address(grpc: str) -> None:
    if not is_host_and_port(grpc):
        raise typer.BadParameter(f"{shown(grpc)} is not like HOST:PORT, such as 127.0.0.1:9090", param_hint="--grpc")
