"""The ``goqueue`` command: assembles all subcommands and defines ``serve``, ``config`` and ``version``.

Heavy modules are imported only by the commands that need them, so printing the version does not load a server.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from goqueue.cli.commands.backup import backup
from goqueue.cli.commands.bench import bench
from goqueue.cli.commands.consume import consume
from goqueue.cli.commands.context import app as context_app
from goqueue.cli.commands.damage import app as damage_app
from goqueue.cli.commands.delay.delay import app as delay_app
from goqueue.cli.commands.dlq.dlq import app as dlq_app
from goqueue.cli.commands.folder import doctor, dump
from goqueue.cli.commands.group.group import app as group_app
from goqueue.cli.commands.pipeline.pipeline import app as pipeline_app
from goqueue.cli.commands.produce import produce
from goqueue.cli.commands.queue.queue import app as queue_app
from goqueue.cli.commands.schema.schema import app as schema_app
from goqueue.cli.commands.stats import stats, top
from goqueue.cli.commands.topic.topic import app as topic_app
from goqueue.cli.commands.trace import trace
from goqueue.cli.commands.transactions import app as transactions_app
from goqueue.cli.connection.target import JsonOption
from goqueue.cli.settings.config_loader import LoadedConfig
from goqueue.cli.settings.config_options import configured
from goqueue.cli.terminal import plain_help
from goqueue.cli.terminal.failures import reported
from goqueue.cli.terminal.output import print_answer
from goqueue.model.logging import get_logger
from goqueue.observe.logs import configure
from goqueue.version import __version__

_log = get_logger(__name__)

_ROOT_EXAMPLES = """\b
Exit status:
  0  done                         3  no broker can be reached
  1  failed                       4  it does not exist
  2  the request is wrong         5  done, and problems were found
  130  interrupted

\b
Examples:
  goqueue serve                               start a broker on 127.0.0.1:8080
  goqueue topic create orders                 make a topic
  goqueue produce orders "2 tickets"          publish a message
  goqueue consume orders                      read from the beginning
  goqueue group lag billing                   see how far behind a group is
  goqueue trace orders 0 1234                 see where a message went
  goqueue top                                 watch a broker at work
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
        typer.echo(f"goqueue {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One message system instead of two: a log and a queue over the same topics."""


@app.command(epilog=_SERVE_EXAMPLES)
@configured
def serve(loaded: LoadedConfig) -> int:
    """Run a broker until it is stopped (Ctrl-C or SIGTERM)."""
    from goqueue.api.server import serve as run_server

    settings = loaded.config
    configure(settings.log.format, settings.log.level)
    for host in sorted({settings.http.host, settings.grpc.host if settings.grpc.enabled else settings.http.host}):
        warn_if_exposed(host)
    status: int = run_server(settings)
    return status


@app.command("config", epilog=_CONFIG_EXAMPLES, short_help="Check the configuration and print it.")
@configured
def config_command(
    loaded: LoadedConfig,
    as_json: JsonOption = False,
    _as_table: Annotated[bool, typer.Option("--print", help="Print it as text, the default.")] = False,
) -> int:
    """Check the configuration and print it: each setting, its value and where it came from."""
    from goqueue.cli.settings import config_view

    if as_json:
        typer.echo(config_view.as_json(loaded))
    elif sys.stdout.isatty():
        config_view.print_table(loaded)
    else:
        typer.echo(config_view.as_plain_text(loaded))
    return 0


app.add_typer(context_app, name="context")
app.add_typer(topic_app, name="topic")
app.command(epilog=produce.EXAMPLES, short_help="Publish messages: from arguments, lines, files or JSONL.")(
    produce.produce
)
app.command(epilog=consume.EXAMPLES, short_help="Read messages: all, as they come, or as a group member.")(
    consume.consume
)
app.add_typer(group_app, name="group")
app.add_typer(queue_app, name="queue")
app.add_typer(dlq_app, name="dlq")
app.add_typer(delay_app, name="delay", short_help="List, reschedule or cancel delayed messages.")
app.add_typer(schema_app, name="schema")
app.add_typer(transactions_app, name="txn")
app.command(epilog=trace.EXAMPLES, short_help="Show what happened to a message, or recent messages.")(trace.trace)
app.command(epilog=stats.EXAMPLES, short_help="Show a broker's health and contents.")(stats.stats)
app.command(epilog=top.EXAMPLES, short_help="Watch a broker live.")(top.top)
app.command(epilog=bench.EXAMPLES, short_help="Measure throughput and latency of a running broker.")(bench.bench)
app.add_typer(pipeline_app, name="pipeline")
app.command(epilog=backup.BACKUP_EXAMPLES)(backup.backup)
app.command(epilog=backup.RESTORE_EXAMPLES)(backup.restore)
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)
app.add_typer(damage_app, name="damage")
app.command(epilog=dump.EXAMPLES)(dump.dump)


@app.command(short_help="Print the version of this command.")
@reported
def version(as_json: JsonOption = False) -> int:
    """Print the version of this command; 'goqueue stats' has the broker's."""
    import platform

    answer = {"version": __version__, "python_version": platform.python_version()}
    return print_answer(answer, f"goqueue {__version__}", as_json=as_json)


def warn_if_exposed(host: str) -> None:
    """Log a warning if a broker without authentication is reachable from other machines."""
    if not is_loopback(host):
        _log.warning(
            "listening without authentication",
            host=host,
            remedy="keep http.host and grpc.host on 127.0.0.1, or let only trusted networks reach it",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on ``host``. Names other than localhost count as reachable."""
    import ipaddress

    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


plain_help.use_plain_help(app)
