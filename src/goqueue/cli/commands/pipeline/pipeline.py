"""``goqueue pipeline``: runs bulk work on messages on Spark."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.connection.target import JsonOption, grpc_address
from goqueue.cli.terminal.failures import EXIT_PROBLEMS, reported
from goqueue.cli.terminal.output import print_answer
from goqueue.cli.terminal.plain_help import command_group
from goqueue.cli.terminal.progress import STOP_SIGNALS, handling_stop_signals
from goqueue.model.errors import BrokerUnavailable, GoQueueError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from goqueue.spark.pipelines.definitions.definition import Pipeline
    from goqueue.spark.pipelines.definitions.settings import Settings
    from goqueue.spark.pipelines.running.context import Context

BROKERS_VARIABLE = "GOQUEUE_BROKERS"
_SPARK_LOGGER = "SQLQueryContextLogger"
"""Logs every failed query with its whole stack trace."""
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
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the pipeline; may be given many times."),
]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", metavar="DIR", help="The checkpoint folder; else ./checkpoints/NAME.")
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[4], spark://HOST:7077, yarn. Else as Spark is configured, else local[*].",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-committed",
        help="Accept the commit of a micro-batch whose rows have changed. For one run, when an error says so.",
    ),
]
BrokersOption = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        metavar="HOST:PORT,…",
        help=f"The brokers; else ${BROKERS_VARIABLE}, else the broker of other commands.",
    ),
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be given many times.")
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show Spark's log, stack traces included.")]

app = command_group("Run bulk work on messages on Spark: built in, or your own.", _EXAMPLES)


@app.command("list", short_help="List the pipelines that come with GoQueue.")
@reported
def list_pipelines(
    name: Annotated[str | None, typer.Argument(metavar="NAME|FILE", help="Show the settings of this one.")] = None,
    as_json: JsonOption = False,
) -> int:
    """List the pipelines that come with GoQueue, or the settings of one."""
    from goqueue.cli.commands.pipeline import pipeline_view
    from goqueue.spark.pipelines import builtin
    from goqueue.spark.pipelines.definitions import files

    if name is not None:
        pipeline = files.find_pipeline(name)
        lines = pipeline_view.settings_lines(pipeline)
        return print_answer(pipeline_view.pipeline_json(pipeline), lines, as_json=as_json)
    found = [builtin.builtin(each) for each in builtin.NAMES]
    answer = [pipeline_view.pipeline_json(each) for each in found]
    return print_answer(answer, pipeline_view.list_lines(found), as_json=as_json)


@app.command()
@reported
def plan(
    which: WhichArgument,
    assign: SetOption = None,
    brokers: BrokersOption = None,
    checkpoint: CheckpointOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check a pipeline and show what it would do. Nothing is started, and no broker is called."""
    from goqueue.cli.commands.pipeline import pipeline_view
    from goqueue.spark.pipelines.running.runner import describe_plan

    pipeline, settings, checkpoint_dir = _prepare(which, assign, checkpoint)
    steps = describe_plan(pipeline, settings, checkpoint_dir, _resolve_brokers(brokers))
    answer = {"name": pipeline.name, "summary": pipeline.summary, "plan": steps, "settings": dict(settings)}
    return print_answer(answer, pipeline_view.plan_lines(pipeline, settings, steps), as_json=as_json)


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

    On Ctrl-C and SIGTERM it finishes its micro-batch first. However it ends, the next run continues where it stopped.
    """
    import logging

    from goqueue.cli.commands.pipeline import pipeline_view
    from goqueue.spark.pipelines.definitions.settings import assignments
    from goqueue.spark.pipelines.running import runner
    from goqueue.spark.startup.spark_master import chosen_master

    pipeline, settings, checkpoint_dir = _prepare(which, assign, checkpoint)
    spark_conf = assignments(conf or (), "--conf")
    master = chosen_master(master, spark_conf)
    _check_master(master)
    runner.describe_plan(pipeline, settings, checkpoint_dir)
    if not debug:
        logging.getLogger(_SPARK_LOGGER).setLevel(logging.CRITICAL)
    progress: AbstractContextManager[Any] = pipeline_view.progress(pipeline.name, sys.stderr)
    with progress as tell:
        context = pipeline_view.ProgressContext(
            name=pipeline.name,
            settings=settings,
            brokers=_resolve_brokers(brokers),
            checkpoint=_absolute_path(checkpoint_dir) if master.startswith("local") else checkpoint_dir,
            master=master,
            conf=spark_conf,
            trust_committed=trust_committed,
            tell=tell,
            quiet=not debug,
        )
        try:
            with _stopped_by_signals(context):
                summary = runner.run(pipeline, context)
        except GoQueueError as error:
            if debug:
                typer.echo("".join(traceback.format_exception(error)), err=True)
            raise
        finally:
            context.close()
    lines = pipeline_view.summary_lines(pipeline.name, summary)
    print_answer({"name": pipeline.name, **summary.as_json()}, lines, as_json=as_json)
    return EXIT_PROBLEMS if summary.failed else 0


@app.command()
@reported
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")],
    python: Annotated[bool, typer.Option("--python", help="A Python file instead of YAML.")] = False,
) -> int:
    """Write a starter pipeline into this folder. An existing file is not overwritten."""
    from goqueue.spark.pipelines.definitions.scaffold import scaffold

    file = scaffold(name, python, Path())
    typer.echo(f"{file} is written; 'goqueue pipeline plan {file} --set from=TOPIC' shows what it would do")
    return 0


def _prepare(which: str, assign: list[str] | None, checkpoint: str | None) -> tuple[Pipeline, Settings, str]:
    from goqueue.spark.pipelines.definitions import files
    from goqueue.spark.pipelines.definitions.flow import checkpoint_of
    from goqueue.spark.pipelines.definitions.settings import Settings, assignments
    from goqueue.spark.pipelines.definitions.yaml_lines import with_line_numbers

    pipeline = files.find_pipeline(which)
    settings = Settings(pipeline.settings, assignments(assign or ()))
    with with_line_numbers(pipeline.line_of):
        return pipeline, settings, checkpoint or checkpoint_of(pipeline, settings)


def _check_master(master: str) -> None:
    """Check the master by Spark's own rule, which Spark applies only after a slow start."""
    from goqueue.spark.pipelines.definitions.problems import InvalidPipeline

    if master != "yarn" and not master.startswith(("local", "spark://", "k8s://")):
        raise InvalidPipeline(
            f"--master: {master!r} is not where Spark can run; write it like local[*], local[4], spark://HOST:7077, "
            "k8s://HOST:PORT or yarn"
        )
    if "SPARK_REMOTE" in os.environ:
        raise InvalidPipeline("pipelines do not run over Spark Connect; unset SPARK_REMOTE and use --master")


def _resolve_brokers(given: str | None) -> str:
    """The brokers given, else the one that all other commands talk to.

    If that one is unreachable, the default address: many pipelines need no broker, and one that does reports it itself.
    """
    from goqueue.client.connection.config import DEFAULT_ADDRESS

    try:
        return given or os.environ.get(BROKERS_VARIABLE) or grpc_address(None)
    except BrokerUnavailable:
        return DEFAULT_ADDRESS


def _absolute_path(folder: str) -> str:
    """The absolute path of a local folder: Spark would resolve a relative one against its own working directory."""
    return folder if "://" in folder else str(Path(folder).absolute())


@contextmanager
def _stopped_by_signals(context: Context) -> Iterator[None]:
    """Stop a run on the first SIGTERM or Ctrl-C after its micro-batch, and on the second at once."""

    def on_signal(*_: object) -> None:
        if context.stopping.is_set():
            raise KeyboardInterrupt
        context.stopping.set()

    def install() -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, on_signal)

    # Spark replaces the handler of SIGINT when it starts.
    context.when_started = install
    with handling_stop_signals(on_signal):
        yield
