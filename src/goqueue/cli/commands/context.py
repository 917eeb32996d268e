"""``goqueue context``: gives brokers names, and chooses the one that commands talk to by default."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.connection import contexts
from goqueue.cli.connection.target import SERVER_VARIABLE, JsonOption, in_words, resolve_broker
from goqueue.cli.terminal import tables
from goqueue.cli.terminal.failures import reported
from goqueue.cli.terminal.output import print_answer, print_json, print_lines
from goqueue.cli.terminal.plain_help import command_group
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

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The context's name.", show_default=False)]
UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="Such as http://HOST:8080.", show_default=False)]
GrpcOption = Annotated[
    str, typer.Option("--grpc", metavar="HOST:PORT", help="Its gRPC address, if not the one that the broker reports.")
]

app = command_group("Name brokers, and choose the one that commands talk to.", _EXAMPLES)


@app.command()
@reported
def add(name: NameArgument, url: UrlArgument, grpc: GrpcOption = "", as_json: JsonOption = False) -> int:
    """Name a broker, or change the address of a name."""
    from goqueue.cli.connection.broker_http import host_of

    host_of(url)
    if grpc:
        _check_address(grpc)
    saved = contexts.load()
    saved.add(name, contexts.Context(url, grpc))
    saved.current = saved.current or name
    contexts.save(saved)
    text = f"{name} is {url}" + (", and the current context" if saved.current == name else "")
    print_answer(_context_json(saved, name), text, as_json=as_json)
    if saved.current == name:
        _warn_of_variable(saved)
    return 0


@app.command("list")
@reported
def list_contexts(as_json: JsonOption = False) -> int:
    """List the contexts, and mark the current one."""
    saved = contexts.load()
    if as_json:
        # All fields: the file omits empty ones.
        known = {name: _fields(each) for name, each in sorted(saved.contexts.items())}
        print_json({"current": saved.current, "contexts": known})
    elif saved.contexts:
        rows = [
            ["*" if name == saved.current else "", name, each.server, each.grpc]
            for name, each in sorted(saved.contexts.items())
        ]
        print_lines(tables.table(["", "name", "server", "grpc"], rows))
    else:
        typer.echo("no broker has a name yet; 'goqueue context add NAME URL' gives one", err=True)
    _warn_of_variable(saved)
    return 0


@app.command()
@reported
def use(name: NameArgument, as_json: JsonOption = False) -> int:
    """Make a context the current one."""
    saved = contexts.load()
    context = saved.get(name)
    saved.current = name
    contexts.save(saved)
    text = f"{name} is the current context" if _is_overridden(saved) else f"commands talk to {name}"
    print_answer(_context_json(saved, name), f"{text}, {context.server}", as_json=as_json)
    _warn_of_variable(saved)
    return 0


@app.command()
@reported
def remove(name: NameArgument, as_json: JsonOption = False) -> int:
    """Remove a context. If it is the current one, there is none afterwards."""
    saved = contexts.load()
    answer = {**_context_json(saved, name), "current": False}
    was_current = saved.current == name
    del saved.contexts[name]
    saved.current = "" if was_current else saved.current
    contexts.save(saved)
    text = f"{name} is forgotten"
    if was_current and not as_json:
        text += f", and no context is the current one: commands talk to {escape(in_words(None))}"
    return print_answer(answer, text, as_json=as_json)


def _fields(context: Context) -> dict[str, str]:
    return {"server": context.server, "grpc": context.grpc}


def _context_json(saved: Contexts, name: str) -> dict[str, object]:
    """The JSON output for one context."""
    return {"name": name, **_fields(saved.get(name)), "current": saved.current == name}


def _is_overridden(saved: Contexts) -> bool:
    """Whether the environment names a broker other than the current context's."""
    if not os.environ.get(SERVER_VARIABLE):
        return False
    return not saved.current or resolve_broker(None) != saved.get(saved.current)


def _warn_of_variable(saved: Contexts) -> None:
    if not _is_overridden(saved):
        return
    named = escape(os.environ[SERVER_VARIABLE])
    instead = (
        f"not to {saved.current}; unset it, or say --server {saved.current}" if saved.current else "unset it to use one"
    )
    typer.echo(f"warning: {SERVER_VARIABLE} is set: commands talk to {named}, {instead}", err=True)


def _check_address(grpc: str) -> None:
    if not is_host_and_port(grpc):
        raise typer.BadParameter(f"{shown(grpc)} is not like HOST:PORT, such as 127.0.0.1:9090", param_hint="--grpc")
