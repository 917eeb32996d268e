"""``goqueue pipeline``: bulk work on messages, on Spark.

What runs pipelines is imported when it is needed: asking for the version must not load it.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.connection.target import JsonOption, grpc_address
from goqueue.cli.terminal.failures import EXIT_PROBLEMS, reported
from goqueue.cli.terminal.styled_lines import put_json
from goqueue.model.errors import BrokerUnavailable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from goqueue.spark.pipelines.definitions.definition import Pipeline
    from goqueue.spark.pipelines.definitions.settings import Settings
    from goqueue.spark.pipelines.running.context import Context

BROKERS_VARIABLE = "GOQUEUE_BROKERS"
_SPARK_LOGGER = "SQLQueryContextLogger"
"""Which tells of every query that fails, with all of its stack trace."""
_EXAMPLES = """\b
Examples:
  goqueue pipeline list                                    what comes with GoQueue
  goqueue pipeline list replay                             what can be set on one of them
  goqueue pipeline plan replay --set topic=orders --set to=orders-2
  goqueue pipeline run replay --set topic=orders --set to=orders-2
  goqueue pipeline new paid-orders                         a file of your own to begin with
  goqueue pipeline run paid-orders.yaml --set from=orders
"""

WhichArgument = Annotated[
    str, typer.Argument(metavar="NAME|FILE", help="One that 'list' shows, or a YAML or Python file.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of it; may be given many times.")
]
CheckpointOption = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="DIR", help="Where it keeps how far it is; else ./checkpoints/NAME."),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[4], spark://HOST:7077, yarn. Else where Spark is configured to, else local[*].",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-committed",
        help="Accept what was committed for a micro-batch that has other rows now. For one run, when an error says so.",
    ),
]
BrokersOption = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        metavar="HOST:PORT,…",
        help=f"The brokers; else ${BROKERS_VARIABLE}, else the one that other commands talk to.",
    ),
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be given many times.")
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show what Spark says, stack traces included.")]

app = typer.Typer(
    help="Run bulk work on messages on Spark: built in, or your own.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list", short_help="List the pipelines that come with GoQueue.")
@reported
def list_pipelines(
    name: Annotated[str | None, typer.Argument(metavar="NAME|FILE", help="Show what can be set on this one.")] = None,
    as_json: JsonOption = False,
) -> int:
    """List the pipelines that come with GoQueue, or what can be set on one."""
    from goqueue.cli.commands.pipeline import pipeline_view
    from goqueue.cli.terminal import styled_lines
    from goqueue.spark.pipelines import builtin
    from goqueue.spark.pipelines.definitions import files

    if name is not None:
        pipeline = files.found(name)
        if as_json:
            put_json(pipeline_view.declared(pipeline))
        else:
            styled_lines.put(pipeline_view.settings_lines(pipeline))
        return 0
    found = [builtin.builtin(each) for each in builtin.NAMES]
    if as_json:
        put_json([pipeline_view.declared(each) for each in found])
    else:
        styled_lines.put(pipeline_view.list_lines(found))
    return 0


@app.command()
@reported
def plan(
    which: WhichArgument,
    assign: SetOption = None,
    brokers: BrokersOption = None,
    checkpoint: CheckpointOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check a pipeline and show what it would do. Nothing is started, and no broker is asked."""
    from goqueue.cli.commands.pipeline import pipeline_view
    from goqueue.cli.terminal import styled_lines
    from goqueue.spark.pipelines.running.runner import planned

    pipeline, settings, place = _prepared(which, assign, checkpoint)
    steps = planned(pipeline, settings, place, _brokers(brokers))
    if as_json:
        values = {name: settings[name] for name in settings}
        put_json({"name": pipeline.name, "summary": pipeline.summary, "plan": steps, "settings": values})
    else:
        styled_lines.put(pipeline_view.plan_lines(pipeline, settings, steps))
    return 0


@app.command()
@reported
def run(
    which: WhichArgument,
    assign: SetOption = None,
    master: MasterOption = None,
    brokers: BrokersOption = None,
    checkpoint: CheckpointOption = None,
    conf: ConfOption = None,
    trust_committed: TrustOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Run a pipeline to its end, or until it is stopped.

    Ctrl-C and SIGTERM let it finish its micro-batch. However it ends, the next run goes on where it stopped.
    """
    import logging

    from goqueue.cli.commands.pipeline import pipeline_view
    from goqueue.cli.terminal import styled_lines
    from goqueue.model.errors import GoQueueError
    from goqueue.spark.pipelines.definitions.settings import assignments
    from goqueue.spark.pipelines.running import runner
    from goqueue.spark.startup.spark_master import chosen_master

    pipeline, settings, place = _prepared(which, assign, checkpoint)
    spark_conf = assignments(conf or (), "--conf")
    master = chosen_master(master, spark_conf)
    _check_master(master)
    runner.planned(pipeline, settings, place)
    if not debug:
        logging.getLogger(_SPARK_LOGGER).setLevel(logging.CRITICAL)
    shown: AbstractContextManager[Any] = pipeline_view.progress(pipeline.name, sys.stderr)
    with shown as tell:
        context = pipeline_view.ShownContext(
            name=pipeline.name,
            settings=settings,
            brokers=_brokers(brokers),
            checkpoint=_whole_path(place) if master.startswith("local") else place,
            master=master,
            conf=spark_conf,
            trust_committed=trust_committed,
            tell=tell,
            quiet=not debug,
        )
        try:
            with _Signals(context):
                summary = runner.run(pipeline, context)
        except GoQueueError as error:
            if debug:
                typer.echo("".join(traceback.format_exception(error)), err=True)
            raise
        finally:
            context.close()
    if as_json:
        put_json({"name": pipeline.name, **summary.as_json()})
    else:
        styled_lines.put(pipeline_view.summary_lines(pipeline.name, summary))
    return EXIT_PROBLEMS if summary.failed else 0


@app.command()
@reported
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is to be called.")],
    python: Annotated[bool, typer.Option("--python", help="A Python file instead of YAML.")] = False,
) -> int:
    """Write a pipeline to begin with into this folder. What is there is not overwritten."""
    from goqueue.spark.pipelines.definitions.scaffold import scaffold

    file = scaffold(name, python, Path())
    typer.echo(f"{file} is written; 'goqueue pipeline plan {file} --set from=TOPIC' shows what it would do")
    return 0


def _prepared(which: str, assign: list[str] | None, checkpoint: str | None) -> tuple[Pipeline, Settings, str]:
    from goqueue.spark.pipelines.definitions import files
    from goqueue.spark.pipelines.definitions.flow import checkpoint_of
    from goqueue.spark.pipelines.definitions.settings import Settings, assignments
    from goqueue.spark.pipelines.definitions.yaml_lines import told_by_line

    pipeline = files.found(which)
    settings = Settings(pipeline.settings, assignments(assign or ()))
    with told_by_line(pipeline.line_of):
        return pipeline, settings, checkpoint or checkpoint_of(pipeline, settings)


def _check_master(master: str) -> None:
    """By Spark's own rule, which it would tell only after it has been started."""
    from goqueue.spark.pipelines.definitions.problems import InvalidPipeline

    if master != "yarn" and not master.startswith(("local", "spark://", "k8s://")):
        raise InvalidPipeline(
            f"--master: {master!r} is not where Spark can run; write it like local[*], local[4], spark://HOST:7077, "
            "k8s://HOST:PORT or yarn"
        )
    if "SPARK_REMOTE" in os.environ:
        raise InvalidPipeline("pipelines do not run over Spark Connect; unset SPARK_REMOTE and use --master")


def _brokers(given: str | None) -> str:
    """Those that were named, else the one that every other command talks to.

    If that one is away, its usual place: many a pipeline needs no broker, and one that does says so itself.
    """
    from goqueue.client.connection.config import DEFAULT_ADDRESS

    try:
        return given or os.environ.get(BROKERS_VARIABLE) or grpc_address(None)
    except BrokerUnavailable:
        return DEFAULT_ADDRESS


def _whole_path(place: str) -> str:
    """A folder of this machine in full: Spark takes a relative one from where its own process was started."""
    return place if "://" in place else str(Path(place).absolute())


class _Signals:
    """SIGTERM and Ctrl-C ask a run to stop; the second one ends it at once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        self._install()
        # Spark takes SIGINT for itself when it starts.
        self._context.when_started = self._install

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _install(self) -> None:
        for number in self._before:
            signal.signal(number, self._asked)

    def _asked(self, _number: int, _frame: object) -> None:
        if self._context.stopping.is_set():
            raise KeyboardInterrupt
        self._context.stopping.set()
