"""``goqueue pipeline``, as a user runs it, as far as that goes without a JVM."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from goqueue.cli.app import app
from goqueue.cli.commands.pipeline import pipeline_view
from goqueue.cli.commands.pipeline.pipeline import _stopped_by_signals
from goqueue.cli.terminal import output
from goqueue.spark.pipelines import builtin
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.problems import NoBroker, SparkNotStarted
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.running import runner
from goqueue.spark.pipelines.running.context import Context
from goqueue.spark.pipelines.running.jvm_logging import capture_stderr
from goqueue.spark.pipelines.running.progress import Progress
from goqueue.spark.pipelines.running.spark_errors import jvm_sentence
from goqueue.spark.pipelines.running.summary import Summary, Table, per_second

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_built_in_pipelines_are_listed_a_line_each() -> None:
    result = RUNNER.invoke(app, ["pipeline", "list"])
    assert result.exit_code == 0
    assert "replay       Copy a range of a topic to another topic, exactly once.\n" in result.stdout
    listed = json.loads(RUNNER.invoke(app, ["pipeline", "list", "--json"]).stdout)
    assert {"archive", "audit", "dlq-triage", "replay", "rollup", "trace-stats"} <= {each["name"] for each in listed}


def test_what_can_be_set_is_shown() -> None:
    shown = RUNNER.invoke(app, ["pipeline", "list", "replay"]).stdout
    assert "topic           must be set  text           The topic to copy from.\n" in shown
    told = json.loads(RUNNER.invoke(app, ["pipeline", "list", "replay", "--json"]).stdout)
    assert told["settings"][0]["required"] is True


def test_listing_and_planning_start_no_spark() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from goqueue.cli.app import app; "
        "call = ['pipeline', 'plan', 'replay', '--set', 'topic=a', '--set', 'to=b']; "
        "assert [CliRunner().invoke(app, each).exit_code for each in (call, ['pipeline', 'list'])] == [0, 0]; "
        "print(sorted({'pyspark', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_new_pipeline_is_written_planned_and_not_overwritten() -> None:
    assert RUNNER.invoke(app, ["pipeline", "new", "paid"]).exit_code == 0
    plan = RUNNER.invoke(app, ["pipeline", "plan", "paid.yaml", "--set", "from=orders"])
    assert "  source      topics orders from earliest\n  steps       1. decode" in plan.stdout
    told = json.loads(RUNNER.invoke(app, ["pipeline", "plan", "paid.yaml", "--set", "from=orders", "--json"]).stdout)
    assert told["plan"]["checkpoint"] == "./checkpoints/paid"
    assert told["settings"] == {"from": "orders", "least": 0}
    again = RUNNER.invoke(app, ["pipeline", "new", "paid"])
    assert (again.exit_code, again.stderr) == (
        2, "error: paid.yaml: it is there already and is not overwritten; choose another name [invalid_request]\n",
    )  # fmt: skip


def test_what_is_wrong_is_told_before_anything_starts() -> None:
    for command in ("plan", "run"):
        result = RUNNER.invoke(app, ["pipeline", command, "replay", "--set", "topic=a", "--set", "too=b"])
        assert result.exit_code == 2
        assert "  too: no such setting; did you mean 'to'?\n" in result.stderr
        same = RUNNER.invoke(app, ["pipeline", command, "replay", "--set", "topic=a", "--set", "to=a"])
        assert (same.exit_code, "would never end" in same.stderr) == (2, True)
    conf = RUNNER.invoke(app, ["pipeline", "run", "replay", "--set", "topic=a", "--set", "to=b", "--conf", "x"])
    assert (conf.exit_code, "--conf has a problem" in conf.stderr) == (2, True)


def test_an_error_of_ours_is_told_as_it_is() -> None:
    Path("p.py").write_text(
        "from goqueue.spark.pipelines import Pipeline\n"
        "def run(context):\n"
        "    from goqueue.model.errors import BrokerUnavailable\n"
        "    raise BrokerUnavailable('nobody at ' + context.brokers)\n"
        "PIPELINE = Pipeline(name='p', run=run)\n"
    )
    result = RUNNER.invoke(app, ["pipeline", "run", "p.py", "--brokers", "127.0.0.1:1"])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (3, "error: nobody at 127.0.0.1:1 [broker_unavailable]")


def test_a_broker_that_is_away_is_told_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_BROKER_TIMEOUT_S", 0.3)
    RUNNER.invoke(app, ["pipeline", "new", "p"])
    for call in (["p.yaml", "--set", "from=a"], ["replay", "--set", "topic=a", "--set", "to=b"]):
        result = RUNNER.invoke(app, ["pipeline", "run", *call, "--brokers", "127.0.0.1:1"])
        assert (result.exit_code, result.stderr) == (
            3,
            "error: no broker answers at 127.0.0.1:1 within 0.3 seconds [broker_unavailable]\n"
            "hint: Start the broker, or say where it is: --brokers HOST:PORT, or GOQUEUE_BROKERS.\n",
        )
    assert not Path("checkpoints").exists()


def test_who_needs_no_broker_is_not_asked_for_one() -> None:
    given = {"trace-stats": {"path": "."}, "audit": {"topic": "a", "group": "g", "path": ".", "offline": "true"}}
    for name, values in given.items():
        pipeline = builtin.builtin(name)
        assert pipeline.needs_broker is not None
        assert not pipeline.needs_broker(Settings(pipeline.settings, values))


def test_a_master_that_cannot_be_is_told_before_spark_starts() -> None:
    result = RUNNER.invoke(app, ["pipeline", "run", "replay", "--set", "topic=a", "--set", "to=b", "--master", "bogus"])
    assert (result.exit_code, result.stderr) == (
        2,
        "error: --master: 'bogus' is not where Spark can run; write it like local[*], local[4], spark://HOST:7077, "
        "k8s://HOST:PORT or yarn [invalid_request]\n",
    )


def test_spark_connect_is_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://there")
    result = RUNNER.invoke(app, ["pipeline", "run", "replay", "--set", "topic=a", "--set", "to=b"])
    assert result.exit_code == 2
    assert "pipelines do not run over Spark Connect; unset SPARK_REMOTE and use --master" in result.stderr


def test_a_run_is_told_to_trust_what_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    def run(_pipeline: Pipeline, context: Context) -> Summary:
        told.append(context.trust_committed)
        return Summary()

    monkeypatch.setattr(runner, "run", run)
    for options in ([], ["--trust-committed"]):
        RUNNER.invoke(app, ["pipeline", "run", "replay", "--set", "topic=a", "--set", "to=b", *options])
    assert told == [False, True]


@pytest.mark.parametrize(
    ("count", "seconds", "shown"),
    [(0, 3.0, "-"), (3, 0.0, "-"), (3, 20.0, "0.15"), (24, 10.0, "2.4"), (5_000, 2, "2,500")],
)
def test_a_slow_rate_is_not_told_as_none(count: int, seconds: float, shown: str) -> None:
    summary = Summary({"messages per second": per_second(count, seconds)})
    assert output.plain_text(pipeline_view.summary_lines("p", summary)).splitlines()[1].split()[-1] == shown


def test_why_spark_does_not_start_is_told_without_java() -> None:
    with pytest.raises(SparkNotStarted) as raised, capture_stderr():
        os.write(
            2, b'WARN x\nException in thread "main" org.apache.spark.SparkException: Could not parse it: a[\n at b\n'
        )
        raise RuntimeError("the gateway is gone")
    assert str(raised.value) == "Spark does not start: Could not parse it: a["
    assert jvm_sentence("Caused by: java.io.IOException: [ODD] It is odd. SQLSTATE: 1") == "It is odd."


def test_a_topic_that_is_not_there_has_a_hint_that_is_true() -> None:
    Path("p.py").write_text(
        "from goqueue.spark.pipelines import Pipeline\n"
        "from goqueue.model.errors import TopicNotFound\n"
        "def run(context):\n    raise TopicNotFound(\"there is no topic 'shp'; did you mean 'shop'?\")\n"
        "PIPELINE = Pipeline(name='p', run=run)\n"
    )
    result = RUNNER.invoke(app, ["pipeline", "run", "p.py"])
    assert (result.exit_code, result.stderr.splitlines()[1:]) == (4, ["hint: Correct its name, or create it first."])


def test_that_spark_starts_and_then_that_it_works_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    context = types.SimpleNamespace(_accumulatorServer=types.SimpleNamespace())
    made = types.SimpleNamespace(stop=lambda: None, sparkContext=context)
    monkeypatch.setattr("goqueue.spark.startup.spark_session.session", lambda *_: made)
    monkeypatch.setattr("goqueue.spark.startup.spark_session.check_java", lambda: None)
    write_one_that_asks_for_spark()
    result = RUNNER.invoke(app, ["pipeline", "run", "p.py"])
    assert (result.exit_code, result.stderr) == (0, "p: starting Spark\np: running\n")


def test_without_a_java_nothing_is_said_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    write_one_that_asks_for_spark()
    result = RUNNER.invoke(app, ["pipeline", "run", "p.py"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: Spark needs a JDK, 17 or newer, and JAVA_HOME is /nowhere")


def write_one_that_asks_for_spark() -> None:
    Path("p.py").write_text(
        "from goqueue.spark.pipelines import Pipeline, Summary\n"
        "def run(context):\n"
        "    assert context.spark is context.spark\n"
        "    return Summary({'messages read': 12})\n"
        "PIPELINE = Pipeline(name='p', run=run)\n"
    )


def test_the_summary_is_a_table_or_json_and_decides_the_exit_status() -> None:
    Path("p.py").write_text(
        "from goqueue.spark.pipelines import Pipeline, Summary, Table\n"
        "def run(context):\n"
        "    rows = [['a', 1234567, 0.5, None]]\n"
        "    table = Table('by name', ['name', 'count', 'share', 'left'], rows)\n"
        "    return Summary({'messages read': 12}, [table], ['./out'], ['all done'], failed=True)\n"
        "PIPELINE = Pipeline(name='p', run=run)\n"
    )
    result = RUNNER.invoke(app, ["pipeline", "run", "p.py"])
    assert result.exit_code == 5
    assert result.stdout == (
        "p\nmessages read  12\n\nby name\nname  count      share  left\na     1,234,567  0.5    -\n\n"
        f"written: {Path('out').absolute()}\nall done\n"
    )
    told = json.loads(RUNNER.invoke(app, ["pipeline", "run", "p.py", "--json"]).stdout)
    assert told["numbers"] == {"messages_read": 12}
    assert told["tables"][0]["rows"] == [{"name": "a", "count": 1234567, "share": 0.5, "left": None}]


def test_an_error_has_its_traceback_only_when_asked_for() -> None:
    Path("p.py").write_text(
        "from goqueue.spark.pipelines import Pipeline\n"
        "def run(context):\n    raise ValueError('[ODD] it is odd. SQLSTATE: 1\\n at java')\n"
        "PIPELINE = Pipeline(name='p', run=run)\n"
    )
    result = RUNNER.invoke(app, ["pipeline", "run", "p.py"])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, "error: Spark failed: it is odd. [client_error]")
    assert "Traceback" not in result.stderr
    assert "Traceback" in RUNNER.invoke(app, ["pipeline", "run", "p.py", "--debug"]).stderr


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    times = iter([0.0, 1.0, 6.0])
    tell = pipeline_view._PlainProgress("p", out, lambda: next(times))
    for done in (1_000, 2_000, 3_000):
        tell(Progress(done, 250.4, done // 1_000, 7))
    assert out.getvalue() == (
        "p: batch 1, 1,000 messages, 250/s, 7 behind\np: batch 3, 3,000 messages, 250/s, 7 behind\n"
    )
    assert pipeline_view.progress_text("p", Progress(0, doing="looking")) == "p: looking"
    assert pipeline_view.progress_text("p", Progress(1, batch=0)) == "p: batch 0, 1 message"


def test_what_begins_is_told_at_once_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    tell = pipeline_view._PlainProgress("p", out, lambda: 1.0)
    for report in (Progress(0, doing="starting Spark"), Progress(0, doing="running"), Progress(1, batch=0)):
        tell(report)
    for number in (1, 2):
        tell(Progress(number, batch=number))
        tell(Progress(number, doing=f"step {number} of 2"))
    assert out.getvalue() == "p: starting Spark\np: running\np: batch 0, 1 message\n"


def test_a_summary_without_rows_says_none() -> None:
    shown = output.plain_text(pipeline_view.summary_lines("p", Summary({"n": 0}, [Table("odd ones", ["a"], [])])))
    assert shown == "p\nn  0\n\nodd ones\nnone"


def test_the_first_signal_asks_and_the_second_interrupts() -> None:
    context = Context("p", Settings([], {}), "", "")
    before = signal.getsignal(signal.SIGTERM)
    with _stopped_by_signals(context):
        os.kill(os.getpid(), signal.SIGTERM)
        assert context.stopping.wait(60)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 5)
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_address_of_something_else_is_told() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(NoBroker, match=f"what answers at 127.0.0.1:{port} is no broker, or has failed: "):
            runner.find_broker(f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()
