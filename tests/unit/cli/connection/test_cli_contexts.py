"""``goqueue context``: names for brokers, and which of them a command talks to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.connection import contexts, target
from goqueue.cli.connection.broker_http import BrokerHttp, EmptyName, InvalidAddress
from goqueue.cli.connection.contexts import Context, Contexts, DamagedFile, InvalidContexts, NoSuchContext, UnusableFile

DEFAULT = "http://127.0.0.1:8080"
MET = os.environ.get(contexts.FILE_VARIABLE)
"""As every test finds it."""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "made when needed" / "contexts.json"
    monkeypatch.setenv(contexts.FILE_VARIABLE, str(path))
    monkeypatch.delenv(target.SERVER_VARIABLE, raising=False)
    yield path
    if path.parent.is_dir():
        assert [each.name for each in path.parent.iterdir() if each != path] == [], "drafts are left behind"


def context(*arguments: str, status: int = 0) -> Result:
    ran = CliRunner().invoke(app, ["context", *arguments])
    assert ran.exit_code == status, ran.output
    return ran


def test_the_first_one_becomes_current_and_others_do_not() -> None:
    assert context("add", "home", "http://one:1").stdout == "home is http://one:1, and the current context\n"
    assert context("add", "work", "https://two:2", "--grpc", "two:3").stdout == "work is https://two:2\n"
    lines = context("list").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["name", "server", "grpc"],
        ["*", "home", "http://one:1"],
        ["work", "https://two:2", "two:3"],
    ]
    listed = json.loads(context("list", "--json").stdout)
    assert listed == {
        "current": "home",
        "contexts": {
            "home": {"server": "http://one:1", "grpc": ""},
            "work": {"server": "https://two:2", "grpc": "two:3"},
        },
    }


def test_the_file_is_for_its_owner_alone_whatever_the_umask_is(file: Path) -> None:
    before = os.umask(0)
    try:
        context("add", "home", "http://one:1")
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        file.chmod(0o644)
        context("add", "work", "http://two:2")
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600


def test_one_is_used_changed_and_forgotten() -> None:
    context("add", "home", "http://one:1")
    context("add", "work", "http://two:2")
    assert context("use", "work").stdout == "commands talk to work, http://two:2\n"
    context("add", "work", "http://three:3")
    assert target.resolve_broker(None) == Context("http://three:3")
    assert context("remove", "work").stdout.startswith("work is forgotten")
    assert (contexts.load().current, list(contexts.load().contexts)) == ("", ["home"])
    assert target.resolve_broker(None) == Context(DEFAULT)


def test_without_any_it_is_said_how_to_make_one(file: Path) -> None:
    ran = context("list")
    assert (ran.stdout, "goqueue context add" in ran.stderr, file.exists()) == ("", True, False)
    assert json.loads(context("list", "--json").stdout) == {"current": "", "contexts": {}}


def test_programs_are_answered_in_json() -> None:
    assert json.loads(context("add", "home", "http://one:1", "--json").stdout) == {
        "name": "home",
        "server": "http://one:1",
        "grpc": "",
        "current": True,
    }
    added = json.loads(context("add", "work", "http://two:2", "--grpc", "two:3", "--json").stdout)
    assert added == {"name": "work", "server": "http://two:2", "grpc": "two:3", "current": False}
    assert json.loads(context("use", "work", "--json").stdout) == {**added, "current": True}
    assert json.loads(context("remove", "work", "--json").stdout) == added


def test_a_variable_that_goes_before_the_current_context_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    context("add", "prod", "http://one:1")
    assert context("use", "prod").stderr == ""
    monkeypatch.setenv(target.SERVER_VARIABLE, "http://elsewhere:2")
    warning = (
        "warning: GOQUEUE_SERVER is set: commands talk to http://elsewhere:2, not to prod; "
        "unset it, or say --server prod\n"
    )
    used = context("use", "prod")
    assert (used.stdout, used.stderr) == ("prod is the current context, http://one:1\n", warning)
    assert context("add", "prod", "http://three:3").stderr == warning
    assert context("list").stderr == warning
    assert context("list", "--json").stderr == warning
    # It names the same one: all is as it seems.
    monkeypatch.setenv(target.SERVER_VARIABLE, "prod")
    assert context("use", "prod").stderr == ""
    # It was not asked to become the current one.
    monkeypatch.setenv(target.SERVER_VARIABLE, "http://elsewhere:2")
    assert context("add", "other", "http://four:4").stderr == ""


def test_a_question_can_name_the_broker_and_who_chose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert target.in_words(None) == DEFAULT
    context("add", "prod", "http://one:1")
    assert target.in_words(None) == "http://one:1 (context prod)"
    assert target.in_words("prod") == "http://one:1 (--server prod)"
    assert target.in_words("http://two:2") == "http://two:2"
    monkeypatch.setenv(target.SERVER_VARIABLE, "prod")
    assert target.in_words(None) == "http://one:1 (GOQUEUE_SERVER=prod)"
    monkeypatch.setenv(target.SERVER_VARIABLE, "http://two:2")
    assert target.in_words(None) == "http://two:2 (GOQUEUE_SERVER)"


def test_a_slip_in_the_name_of_a_context_is_told() -> None:
    context("add", "goqueue-prod", "http://one:1")
    ran = CliRunner().invoke(app, ["topic", "list", "--server", "goqueue-prdo"])
    assert ran.exit_code == 3
    assert "; nor is there a context 'goqueue-prdo'; did you mean 'goqueue-prod'? [broker_unavailable]\n" in ran.stderr
    assert "hint: 'goqueue context list' shows the names" in ran.stderr
    address = CliRunner().invoke(app, ["topic", "list", "--server", "127.0.0.1:1"])
    assert (address.exit_code, "context 'goqueue" in address.stderr) == (3, False)


@pytest.mark.parametrize("path", [["topics", ""], ["groups", "", "lag"], [""]])
def test_a_name_that_is_empty_is_never_a_part_of_a_path(path: list[str]) -> None:
    """It would ask for all topics where one was meant."""
    with pytest.raises(EmptyName, match="a name is empty"):
        BrokerHttp("http://127.0.0.1:1", 1).send("GET", path)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["use", "hom"], 4, "there is no context 'hom'; did you mean 'home'?"),
        (["remove", "x"], 4, "there is no context 'x'"),
        (["add", "a.b", "http://one:1"], 2, "'a.b' is no name for a context"),
        (["add", "", "http://one:1"], 2, "'' is no name for a context"),
        (["add", "a" * 61, "http://one:1"], 2, "is no name for a context"),
        (["add", "a", "ftp://one"], 2, "'ftp://one' is not the address of a broker"),
        (["add", "a", "http://one", "--grpc", "a b"], 2, "'a b' is not like HOST:PORT"),
        (["add", "a", "http://one", "--grpc", "hostonly"], 2, "'hostonly' is not like HOST:PORT"),
        (["add", "a", "http://one", "--grpc", "http://one:2"], 2, "'http://one:2' is not like HOST:PORT"),
        (["add", "a", "http://one", "--grpc", "one:2/x"], 2, "'one:2/x' is not like HOST:PORT"),
        (["add", "a", "http://one", "--grpc", "one:x"], 2, "'one:x' is not like HOST:PORT"),
    ],
)
def test_what_is_wrong_is_told_and_changes_nothing(arguments: list[str], status: int, said: str, file: Path) -> None:
    context("add", "home", "http://one:1")
    before = file.read_bytes()
    ran = context(*arguments, status=status)
    # Of an option, the usage is told instead.
    assert (ran.stdout, said in ran.stderr, "hint: " in ran.stderr or "Usage: " in ran.stderr) == ("", True, True)
    assert file.read_bytes() == before


def test_there_is_an_end_to_them() -> None:
    many = Contexts("", {f"c{number}": Context("http://one") for number in range(1_000)})
    with pytest.raises(InvalidContexts, match="1000 contexts already"):
        many.add("another", Context("http://one"))
    many.add("c0", Context("http://two"))
    assert many.get("c0").server == "http://two"


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"contexts": {"a": {}}}', b'{"contexts": {"a": {"server": 1}}}'])
def test_a_file_that_is_not_as_it_should_be_is_named(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    ran = context("list", status=2)
    assert str(file) in ran.stderr
    assert file.read_bytes() == content


def test_a_current_one_that_is_gone_is_told(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('{"current": "gone"}')
    with pytest.raises(NoSuchContext):
        target.resolve_broker(None)


def test_a_file_that_cannot_be_read_or_written_is_told(file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(UnusableFile, match="cannot be read"):
        contexts.load()
    with pytest.raises(UnusableFile, match="cannot be written"):
        contexts.save(Contexts())
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("command", [["list"], ["add", "home", "http://one:1"], ["remove", "home"]])
def test_what_is_wrong_with_a_file_that_is_no_list_of_contexts_can_be_mended(file: Path, command: list[str]) -> None:
    file.parent.mkdir()
    file.write_text("{garbage")
    ran = context(*command, status=2)
    error, hint = ran.stderr.splitlines()
    assert str(file) in error
    assert hint == "hint: Mend that file or delete it; 'goqueue context add NAME URL' makes a new one."
    assert file.read_text() == "{garbage"


def test_whoever_forgets_the_current_one_is_told_where_commands_go_now(monkeypatch: pytest.MonkeyPatch) -> None:
    context("add", "dead", "http://one:1")
    context("add", "other", "http://two:2")
    assert context("remove", "other").stdout == "other is forgotten\n"
    told = "dead is forgotten, and no context is the current one: commands talk to {}\n"
    assert context("remove", "dead").stdout == told.format(DEFAULT)
    context("add", "dead", "http://one:1")
    monkeypatch.setenv(target.SERVER_VARIABLE, "http://three:3")
    assert context("remove", "dead").stdout == told.format("http://three:3 (GOQUEUE_SERVER)")


def test_the_file_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(contexts.FILE_VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert contexts.file_path() == tmp_path / "goqueue" / "contexts.json"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert contexts.file_path() == Path("/home/ada/.config/goqueue/contexts.json")


def test_what_is_named_comes_before_the_variable_and_that_before_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert target.resolve_broker(None) == Context(DEFAULT)
    context("add", "home", "http://one:1")
    context("add", "work", "http://two:2", "--grpc", "two:3")
    assert target.resolve_broker(None) == Context("http://one:1")
    monkeypatch.setenv(target.SERVER_VARIABLE, "work")
    assert target.resolve_broker(None) == Context("http://two:2", "two:3")
    assert target.resolve_broker("home") == Context("http://one:1")
    # A URL is one, and what is no context may be a host.
    assert target.resolve_broker("http://three:3") == Context("http://three:3")
    assert target.resolve_broker("three") == Context("three")
    assert target.grpc_address("work") == "two:3"


def test_an_address_is_not_looked_for_among_the_contexts(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("broken")
    assert target.resolve_broker("127.0.0.1:8080") == Context("127.0.0.1:8080")
    with pytest.raises(DamagedFile):
        target.resolve_broker("home")


@pytest.mark.parametrize(("text", "seconds"), [("1ms", 0.001), ("90s", 90.0), ("1d", 86_400.0)])
def test_a_timeout_is_a_duration(text: str, seconds: float) -> None:
    assert target.timeout_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "0s", "2d", "soon"])
def test_another_timeout_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        target.timeout_s(text)


def test_names_are_offered_only_if_a_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(target.SERVER_VARIABLE, "http://127.0.0.1:1")
    assert target.complete_topics("o") == target.complete_groups("") == []


def test_an_address_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(InvalidAddress):
        target.grpc_address("http://a b")


def test_tests_do_not_meet_the_contexts_of_whoever_runs_them() -> None:
    assert MET and not Path(MET).exists()
    assert "GOQUEUE_SERVER" not in os.environ
