"""The ``goqueue`` command, as a user runs it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import goqueue
from goqueue.cli.app import app, is_loopback, warn_if_exposed
from goqueue.cli.settings.config_loader import setting_specs
from goqueue.cli.terminal.failures import reported
from goqueue.model.errors import DataFolderLocked, InvalidTopicName

RUNNER = CliRunner()
SCRIPT = str(Path(sys.executable).with_name("goqueue"))


@pytest.fixture(autouse=True)
def in_an_empty_folder_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GOQUEUE_") and name != "GOQUEUE_CONTEXTS"]:
        monkeypatch.delenv(name)


def run_in_a_terminal(*command: str, **environ: str) -> str:
    """What ``command`` prints when its standard output is a terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm"} | environ
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment):
        os.close(theirs)
        output = b""
        try:
            while chunk := os.read(ours, 65_536):
                output += chunk
        except OSError:
            pass  # Linux ends the reading of a closed terminal with an error.
        os.close(ours)
    return output.decode()


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_the_version_is_printed(arguments: list[str]) -> None:
    result = RUNNER.invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (0, f"goqueue {goqueue.__version__}\n")


def test_the_installed_script_runs() -> None:
    result = subprocess.run([SCRIPT, "version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"goqueue {goqueue.__version__}\n"


def test_asking_for_the_version_or_the_configuration_loads_nothing_heavy() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from goqueue.cli.app import app; "
        "assert [CliRunner().invoke(app, [name]).exit_code for name in ('version', 'config')] == [0, 0]; "
        "print(sorted({'numpy', 'uvicorn', 'uvloop', 'goqueue.api', 'goqueue.broker'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize("command", [[], ["serve"], ["config"], ["version"]])
def test_h_is_help_everywhere(command: list[str]) -> None:
    short, long = (RUNNER.invoke(app, [*command, flag]) for flag in ("-h", "--help"))
    assert short.exit_code == long.exit_code == 0
    assert short.stdout == long.stdout
    assert short.stdout.startswith("Usage: ")


@pytest.mark.parametrize("command", [[], ["serve"], ["config"]])
def test_help_has_examples_one_a_line(command: list[str]) -> None:
    lines = RUNNER.invoke(app, [*command, "-h"]).stdout.splitlines()
    examples = lines[lines.index("  Examples:") + 1 :]
    assert len(examples) >= 3
    assert all("goqueue" in line for line in examples)


def test_the_configuration_in_a_pipe_is_plain_and_has_every_setting() -> None:
    result = RUNNER.invoke(app, ["config"])
    assert result.exit_code == 0
    assert result.stdout.isascii()
    assert "\x1b" not in result.stdout
    title, *rows = result.stdout.splitlines()
    assert title.split() == ["setting", "value", "source"]
    assert [row.split()[0] for row in rows] == list(setting_specs())
    assert RUNNER.invoke(app, ["config", "--print"]).stdout == result.stdout


def test_the_configuration_in_a_terminal_is_a_table() -> None:
    output = run_in_a_terminal(SCRIPT, "config")
    assert "http.port" in output
    assert "│" in output


def test_the_configuration_as_json_has_values_texts_and_sources() -> None:
    arguments = ["config", "--json", "--port", "9000", "--set", "topic.retention_ms=1h", "--fsync", "never"]
    settings = json.loads(RUNNER.invoke(app, arguments, env={"GOQUEUE_LOG_LEVEL": "debug"}).stdout)
    assert list(settings) == list(setting_specs())
    assert settings["http.port"] == {"value": 9000, "text": "9000", "source": "flag"}
    assert settings["topic.retention_ms"] == {"value": 3_600_000, "text": "1h", "source": "flag"}
    assert settings["topic.fsync"]["value"] == "never"
    assert settings["topic.retention_bytes"] == {"value": None, "text": "unlimited", "source": "default"}
    assert settings["log.level"] == {"value": "debug", "text": "debug", "source": "env GOQUEUE_LOG_LEVEL"}


@pytest.mark.parametrize(
    ("flag", "raw", "setting"),
    [
        ("--data", "/d", "storage.path"),
        ("--host", "::1", "http.host"),
        ("--port", "1", "http.port"),
        ("--fsync", "never", "topic.fsync"),
        ("--log-format", "json", "log.format"),
        ("--log-level", "error", "log.level"),
    ],
)
def test_a_flag_with_a_name_of_its_own_sets_its_setting(flag: str, raw: str, setting: str) -> None:
    settings = json.loads(RUNNER.invoke(app, ["config", "--json", flag, raw]).stdout)
    assert settings[setting]["text"] == raw
    assert settings[setting]["source"] == "flag"


def test_a_value_given_to_set_may_hold_an_equals_sign() -> None:
    settings = json.loads(RUNNER.invoke(app, ["config", "--json", "--set", "storage.path=/a=b"]).stdout)
    assert settings["storage.path"]["value"] == "/a=b"


def test_the_file_given_to_config_is_read(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[http]\nport = 7\n")
    settings = json.loads(RUNNER.invoke(app, ["config", "--json", "--config", str(file)]).stdout)
    assert settings["http.port"] == {"value": 7, "text": "7", "source": f"file {file}"}


@pytest.mark.parametrize("command", ["config", "serve"])
def test_a_bad_configuration_ends_with_2_and_lists_every_problem(command: str) -> None:
    result = RUNNER.invoke(app, [command, "--port", "x", "--set", "log.level=loud", "--config", "no.toml"])
    assert result.exit_code == 2
    assert result.stdout == ""
    first, *lines, hint = result.stderr.splitlines()
    assert first == "error: the configuration has 3 problems: [invalid_configuration]"
    assert [line.split(":")[0] for line in lines] == ["  no.toml", "  flag http.port", "  flag log.level"]
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("assignment", ["http.port", "=5", ""])
def test_an_assignment_without_a_setting_or_a_value_is_a_usage_error(assignment: str) -> None:
    result = RUNNER.invoke(app, ["config", "--set", assignment])
    assert result.exit_code == 2
    assert "SECTION.FIELD=VALUE" in result.stderr


def test_a_setting_that_is_given_twice_differently_is_a_usage_error() -> None:
    result = RUNNER.invoke(app, ["config", "--port", "1", "--set", "http.port=2"])
    assert result.exit_code == 2
    assert "http.port is given twice" in result.stderr


def test_a_setting_that_is_given_twice_the_same_is_fine() -> None:
    assert RUNNER.invoke(app, ["config", "--port", "1", "--set", "http.port=1"]).exit_code == 0


def app_that_ends_with(outcome: BaseException | int) -> typer.Typer:
    ending = typer.Typer()

    @ending.command()
    @reported
    def command() -> int:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return ending


@pytest.mark.parametrize(
    ("outcome", "status", "said"),
    [
        (0, 0, ""),
        (3, 3, ""),
        (InvalidTopicName("bad name"), 2, f"error: bad name [invalid_topic_name]\nhint: {InvalidTopicName.remedy}\n"),
        (DataFolderLocked("in use"), 1, f"error: in use [data_folder_locked]\nhint: {DataFolderLocked.remedy}\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["done", "status", "request", "failure", "interrupt"],
)
def test_a_command_ends_with_a_status_and_a_sentence(outcome: BaseException | int, status: int, said: str) -> None:
    result = RUNNER.invoke(app_that_ends_with(outcome))
    assert (result.exit_code, result.stderr) == (status, said)


def test_a_defect_is_not_hidden() -> None:
    assert isinstance(RUNNER.invoke(app_that_ends_with(ZeroDivisionError())).exception, ZeroDivisionError)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example.org", ""])
def test_what_others_can_reach_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_listening_where_others_can_reach_it_without_authentication_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_if_exposed("127.0.0.1")
    assert caplog.records == []
    warn_if_exposed("0.0.0.0")
    [warning] = caplog.records
    assert warning.levelname == "WARNING"
    assert warning.getMessage().startswith("listening without authentication")


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_lanes_are_completed(command: str) -> None:
    line = f"goqueue {command} t --priority "
    asked = {"_GOQUEUE_COMPLETE": "complete_bash", "COMP_WORDS": f"{line}c", "COMP_CWORD": "4"}
    ran = subprocess.run([SCRIPT], capture_output=True, text=True, env=os.environ | asked, check=False)
    assert ran.stdout.split() == ["critical"]


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_config_prints_no_secret(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "GOQUEUE_TRACE_OTLP_HEADERS": "authorization=Bearer%20t0ken,x=s3cret",
        "GOQUEUE_TRACE_OTLP_ENDPOINT": "http://me:passw0rd@collector:4317",
    }
    printed = CliRunner().invoke(app, ["config", *arguments], env=given)
    assert printed.exit_code == 0
    assert "http://***@collector:4317" in printed.output
    for secret in ("t0ken", "s3cret", "passw0rd"):
        assert secret not in printed.output
    wrong = CliRunner().invoke(app, ["config", *arguments], env=given | {"GOQUEUE_TRACE_OTLP_HEADERS": "x=s3cret\n"})
    assert wrong.exit_code == 2
    assert "s3cret" not in wrong.output
