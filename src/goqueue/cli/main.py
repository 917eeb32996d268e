"""The ``goqueue`` command.

Commands import what is heavy only when they need it: asking for the version must not load a server.
"""

from __future__ import annotations

import ipaddress
import sys
from typing import Annotated

import typer

import goqueue
from goqueue.cli.failures import reported
from goqueue.cli.options import (
    ConfigOption,
    DataOption,
    FsyncOption,
    GrpcPortOption,
    HostOption,
    LogFormatOption,
    LogLevelOption,
    PortOption,
    SetOption,
    load,
)
from goqueue.cli.schema import app as schema_app
from goqueue.cli.trace import EXAMPLES as _TRACE_EXAMPLES
from goqueue.cli.trace import trace
from goqueue.cli.transactions import app as transactions_app
from goqueue.model.logging import get_logger

_log = get_logger(__name__)

_ROOT_EXAMPLES = """\b
Examples:
  goqueue serve                          start a broker on 127.0.0.1:8080
  goqueue serve --data /var/lib/goqueue  keep messages there
  goqueue config                         see every setting and where it came from
  goqueue trace orders 0 1234            see where a message went
  goqueue schema list                    see which schemas are registered
  goqueue transactions list              see which transactions are open
"""
_SERVE_EXAMPLES = """\b
Examples:
  goqueue serve
  goqueue serve --data /var/lib/goqueue --port 9000
  goqueue serve --config broker.toml --log-format json
  goqueue serve --fsync interval --set topic.retention_ms=3d
"""
_CONFIG_EXAMPLES = """\b
Examples:
  goqueue config
  goqueue config --config broker.toml --json
  GOQUEUE_HTTP_PORT=9000 goqueue config | grep http.port
"""

app = typer.Typer(
    name="goqueue",
    help="One message system instead of two: a log and a queue over the same topics.",
    epilog=_ROOT_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"goqueue {goqueue.__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One message system instead of two: a log and a queue over the same topics."""


@app.command(epilog=_SERVE_EXAMPLES)
@reported
def serve(
    config: ConfigOption = None,
    data: DataOption = None,
    host: HostOption = None,
    port: PortOption = None,
    grpc_port: GrpcPortOption = None,
    fsync: FsyncOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    assign: SetOption = None,
) -> int:
    """Run a broker until it is told to stop (Ctrl-C or SIGTERM)."""
    named = _named_settings(data, host, port, grpc_port, fsync, log_format, log_level)
    settings = load(config, named, assign).config

    from goqueue.api.server import serve as run_server
    from goqueue.observe.logs import configure

    configure(settings.log.format, settings.log.level)
    for host in sorted({settings.http.host, settings.grpc.host if settings.grpc.enabled else settings.http.host}):
        warn_if_exposed(host)
    status: int = run_server(settings)
    return status


@app.command("config", epilog=_CONFIG_EXAMPLES)
@reported
def config_command(
    config: ConfigOption = None,
    data: DataOption = None,
    host: HostOption = None,
    port: PortOption = None,
    grpc_port: GrpcPortOption = None,
    fsync: FsyncOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    assign: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON, for programs.")] = False,
    _as_table: Annotated[bool, typer.Option("--print", help="Print it as a table, as without this option.")] = False,
) -> int:
    """Check the configuration and print it: each setting, its value and where it came from."""
    from goqueue.cli import config_view

    loaded = load(config, _named_settings(data, host, port, grpc_port, fsync, log_format, log_level), assign)
    if as_json:
        typer.echo(config_view.as_json(loaded))
    elif sys.stdout.isatty():
        config_view.print_table(loaded)
    else:
        typer.echo(config_view.as_plain_text(loaded))
    return 0


app.command(epilog=_TRACE_EXAMPLES)(trace)
app.add_typer(schema_app, name="schema")
app.add_typer(transactions_app, name="transactions")


@app.command()
@reported
def version() -> int:
    """Print the version."""
    typer.echo(f"goqueue {goqueue.__version__}")
    return 0


def warn_if_exposed(host: str) -> None:
    """Say so in the log if others than this machine can reach a broker that asks nobody who they are."""
    if not is_loopback(host):
        _log.warning(
            "listening without authentication",
            host=host,
            remedy="keep http.host and grpc.host on 127.0.0.1, or let only trusted networks reach it",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on ``host``; a name other than localhost is not trusted to."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _named_settings(
    data: str | None,
    host: str | None,
    port: str | None,
    grpc_port: str | None,
    fsync: str | None,
    log_format: str | None,
    log_level: str | None,
) -> dict[str, str | None]:
    return {
        "storage.path": data,
        "http.host": host,
        "grpc.host": host,
        "http.port": port,
        "grpc.port": grpc_port,
        "topic.fsync": fsync,
        "log.format": log_format,
        "log.level": log_level,
    }


def main() -> None:
    """The entry point of the ``goqueue`` script."""
    app()
