"""``goqueue schema`` against a broker in a process of its own, in a pipe and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.testing import BrokerProcess

SCRIPT = str(Path(sys.executable).with_name("goqueue"))
MONEY = 'syntax = "proto3";\npackage shop;\nmessage Money {\n\tint64 cents = 1;\n}\n'
# Of each kind: the first, one that can follow it, one that cannot, and why.
AVRO = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}',
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":"string","default":"grün"}]}',
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"x","type":"int"}]}',
)
JSON = (
    '{"type":"object","properties":{"id":{"type":"integer"}},"additionalProperties":false}',
    '{"type":"object","properties":{"id":{"type":"number"}},"additionalProperties":false}',
    '{"type":"object","properties":{"id":{"type":"number"}},"required":["id"],"additionalProperties":false}',
)
PROTOBUF = (
    'syntax = "proto3";\nmessage Order {\n  string id = 1;\n}\n',
    'syntax = "proto3";\nmessage Order {\n  string id = 1;\n  int32 pens = 2;\n}\n',
    'syntax = "proto3";\nmessage Order {\n  int64 id = 1;\n}\n',
)
KINDS = [
    pytest.param("avsc", "AVRO", AVRO, {"TYPE_MISMATCH", "READER_FIELD_MISSING_DEFAULT_VALUE"}, id="avro"),
    pytest.param("json", "JSON", JSON, {"REQUIRED_ATTRIBUTE_ADDED"}, id="json"),
    pytest.param("proto", "PROTOBUF", PROTOBUF, {"FIELD_SCALAR_KIND_CHANGED"}, id="protobuf"),
]


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def subject() -> str:
    return f"orders-{uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def schema(broker: BrokerProcess, *arguments: str, **given: Any) -> Result:
    return CliRunner().invoke(app, ["schema", *arguments], env={"GOQUEUE_SERVER": broker.url}, **given)


def done(broker: BrokerProcess, *arguments: str) -> str:
    ran = schema(broker, *arguments)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def files(extension: str, texts: tuple[str, str, str]) -> tuple[str, str, str]:
    first, fitting, unfit = (f"{name}.{extension}" for name in ("first", "fitting", "unfit"))
    for name, text in zip((first, fitting, unfit), texts, strict=True):
        Path(name).write_text(text)
    return first, fitting, unfit


def in_a_terminal(broker: BrokerProcess, *arguments: str, types: str = "", **environ: str) -> tuple[int, str]:
    """The exit status, and everything that is to be seen."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    environment = kept | {"GOQUEUE_SERVER": broker.url, "TERM": "xterm-256color"} | environ
    ours, theirs = pty.openpty()
    command = [SCRIPT, "schema", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        os.write(ours, types.encode())
        output = b""
        try:
            while chunk := os.read(ours, 65_536):
                output += chunk
        except OSError:
            pass  # Linux ends the reading of a closed terminal with an error.
        os.close(ours)
    return running.returncode, output.decode()


def rules(lines: str) -> set[str]:
    """What the lines of reasons begin with; each has a place and says more."""
    return {line.split()[0] for line in lines.splitlines() if re.match(r"  [A-Z_]+ at \S+ \(version 2\): \w+", line)}


@pytest.mark.parametrize(("extension", "kind", "texts", "wrong"), KINDS)
def test_schemas_are_registered_listed_checked_compared_and_shown(
    broker: BrokerProcess, subject: str, extension: str, kind: str, texts: tuple[str, str, str], wrong: set[str]
) -> None:
    first, fitting, unfit = files(extension, texts)
    assert done(broker, "check", subject, first) == f"compatible: {subject} has no schema yet\n"
    made = re.fullmatch(rf"{subject} version 1, id (\d+): registered\n", done(broker, "register", subject, first))
    assert made is not None
    assert done(broker, "register", subject, first) == f"{subject} version 1, id {made[1]}: was there already\n"
    assert done(broker, "check", subject, fitting) == f"compatible with version 1 of {subject} (BACKWARD)\n"
    answer = json.loads(done(broker, "register", subject, fitting, "--json"))
    assert (answer["version"], answer["existed"]) == (2, False)

    refused = schema(broker, "register", subject, unfit)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert rules(refused.stderr) == wrong
    assert f"error: the schema is not BACKWARD compatible with {subject}: [incompatible_schema]\n" in refused.stderr
    checked = schema(broker, "check", subject, unfit)
    assert checked.exit_code == 1
    assert checked.stdout.splitlines()[0] == f"incompatible with {subject} (BACKWARD):"
    assert rules(checked.stdout) == wrong

    assert f"{subject}  {kind} " in done(broker, "list")
    _, *versions = done(broker, "list", subject).splitlines()
    assert [line.split() for line in versions] == [["1", made[1], kind], ["2", str(answer["id"]), kind]]
    shown = done(broker, "show", subject, "2")
    assert shown == done(broker, "show", subject) == done(broker, "show", "--id", str(answer["id"]))
    assert shown == texts[1] if kind == "PROTOBUF" else json.loads(shown) == json.loads(texts[1])
    compared = done(broker, "diff", subject, "1", "latest")
    assert compared.splitlines()[:2] == [
        f"--- {subject} version 1 (id {made[1]})",
        f"+++ {subject} version 2 (id {answer['id']})",
    ]
    assert "version 2 can read what version 1 wrote: yes" in compared.splitlines()


def test_a_diff_tells_who_can_read_what(broker: BrokerProcess, subject: str) -> None:
    _, fitting, unfit = files("avsc", AVRO)
    done(broker, "config", subject, "--compatibility", "none")
    done(broker, "register", subject, unfit)
    done(broker, "register", subject, fitting)
    told = json.loads(done(broker, "diff", subject, "1", "2", "--json"))
    assert (told["subject"], told["from"], told["to"]) == (subject, 1, 2)
    assert '-      "type": "string"' in told["diff"].splitlines()
    forth, back = told["readings"]
    assert (forth["reader"], forth["writer"], forth["is_compatible"]) == (2, 1, False)
    assert [reason["rule"] for reason in forth["reasons"]] == ["TYPE_MISMATCH"]
    assert (back["reader"], back["writer"], back["is_compatible"]) == (1, 2, False)
    assert {reason["rule"] for reason in back["reasons"]} == {"TYPE_MISMATCH", "READER_FIELD_MISSING_DEFAULT_VALUE"}


def test_what_a_schema_refers_to_is_found_for_a_diff(broker: BrokerProcess, subject: str) -> None:
    Path("money.proto").write_text(MONEY)
    done(broker, "register", f"{subject}-money", "money.proto")
    Path("money.proto").write_text(MONEY.replace("1;", "1;\n\tstring currency = 2;"))
    done(broker, "register", f"{subject}-money", "money.proto")
    Path("order.proto").write_text(
        'syntax = "proto3";\npackage shop;\nimport "money.proto";\nmessage Order {\n  Money total = 1;\n}\n'
    )
    alone = schema(broker, "register", subject, "order.proto")
    assert alone.exit_code == 2
    assert "the import 'money.proto' is not known" in alone.stderr
    for version in (1, 2):
        reference = f"money.proto={subject}-money:{version}"
        assert f"version {version}," in done(broker, "register", subject, "order.proto", "--reference", reference)
    lines = done(broker, "diff", subject, "1", "2").splitlines()
    assert lines[-5:] == [
        f"-reference money.proto={subject}-money:1",
        f"+reference money.proto={subject}-money:2",
        "",
        "version 2 can read what version 1 wrote: yes",
        "version 1 can read what version 2 wrote: yes",
    ]
    kept = schema(broker, "delete", f"{subject}-money", "--yes")
    assert kept.exit_code == 1
    assert "One or more references exist to the schema" in kept.stderr


def test_a_check_may_be_against_one_version_or_all(broker: BrokerProcess, subject: str) -> None:
    first, fitting, unfit = files("avsc", AVRO)
    done(broker, "register", subject, unfit)
    done(broker, "config", subject, "--compatibility", "NONE")
    done(broker, "register", subject, first)
    done(broker, "config", subject, "--compatibility", "BACKWARD")
    assert done(broker, "check", subject, fitting) == f"compatible with version 2 of {subject} (BACKWARD)\n"
    assert done(broker, "check", subject, fitting, "--version", "latest") == done(broker, "check", subject, fitting)
    for version in ("1", "all"):
        ran = schema(broker, "check", subject, fitting, "--version", version, "--json")
        assert ran.exit_code == 1
        told = json.loads(ran.stdout)
        assert not told["is_compatible"]
        assert all(message.startswith("TYPE_MISMATCH at /fields/0/type (version 1): ") for message in told["messages"])
    done(broker, "config", subject, "--compatibility", "BACKWARD_TRANSITIVE")
    assert "TYPE_MISMATCH" in schema(broker, "check", subject, fitting).stdout
    assert schema(broker, "check", subject, fitting, "--version", "7").exit_code == 4


def test_nothing_is_changed_by_a_check(broker: BrokerProcess, client: httpx.Client, subject: str) -> None:
    first, _, _ = files("avsc", AVRO)
    before = client.get("/schemas/stats").json()
    done(broker, "check", subject, first)
    assert client.get("/schemas/stats").json() == before


def test_a_schema_may_come_from_standard_input_and_be_normalized(broker: BrokerProcess, subject: str) -> None:
    subject = f"{subject}/grün 1%2F?"
    spaced = AVRO[0].replace('"long"', ' { "type" : "long" } ')
    ran = schema(broker, "register", subject, "-", "--type", "avro", "--normalize", input=spaced)
    assert (ran.exit_code, ran.stderr) == (0, "")
    ran = schema(broker, "register", subject, "-", "--type", "avro", "--normalize", input=AVRO[0])
    [listed] = json.loads(done(broker, "list", subject, "--json"))
    assert ran.stdout == f"{subject} version 1, id {listed['id']}: was there already\n"
    assert f"\n{subject}  AVRO" in done(broker, "list")


def test_what_is_deleted_is_listed_if_asked_for_until_it_is_gone(broker: BrokerProcess, subject: str) -> None:
    first, fitting, _ = files("avsc", AVRO)
    done(broker, "register", subject, first)
    done(broker, "register", subject, fitting)

    def listed(*options: str) -> list[dict[str, Any]]:
        return [each for each in json.loads(done(broker, "list", "--json", *options)) if each["subject"] == subject]

    in_use = schema(broker, "delete", subject, "1", "--permanent", "--yes")
    assert in_use.exit_code == 4
    assert "hint: Delete it without --permanent first.\n" in in_use.stderr
    assert done(broker, "delete", subject, "1", "--yes") == f"{subject} version 1: deleted\n"
    [row] = listed("--deleted")
    assert (row["versions"], row["deletedVersions"]) == ([2], [1])
    assert schema(broker, "show", subject, "1").exit_code == 4
    assert json.loads(done(broker, "show", subject, "1", "--deleted")) == json.loads(AVRO[0])
    assert done(broker, "delete", subject, "--yes") == f"{subject} version 2: deleted\n"
    assert listed() == []
    assert done(broker, "delete", subject, "--permanent", "-y") == f"{subject} versions 1-2: deleted for good\n"
    assert listed("--deleted") == []


def test_the_compatibility_of_a_subject_is_set_and_reset(broker: BrokerProcess, subject: str) -> None:
    assert done(broker, "config") == "all subjects that do not say otherwise: BACKWARD\n"
    assert done(broker, "config", subject) == f"{subject}: BACKWARD\n"
    assert done(broker, "config", subject, "--compatibility", "full") == f"{subject}: FULL\n"
    assert json.loads(done(broker, "config", subject, "--json"))["compatibilityLevel"] == "FULL"
    for _ in range(2):
        assert done(broker, "config", subject, "--reset") == f"{subject}: BACKWARD\n"
    wrong = schema(broker, "config", subject, "--compatibility", "some")
    assert wrong.exit_code == 2
    assert "not 'SOME'" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["list", "nobody"], 4, "is deleted [subject_not_found]\nhint: 'goqueue schema list' lists them"),
        (["show", "nobody"], 4, "Subject 'nobody' not found"),
        (["show", "--id", "999999"], 4, "there is none with id 999999"),
        (["diff", "nobody", "1", "2"], 4, "Subject 'nobody' not found"),
        (["check", "nobody", "first.avsc", "--version", "latest"], 4, "Subject 'nobody' not found"),
        (["delete", "nobody", "--yes"], 4, "Subject 'nobody' not found"),
        (["register", "nobody", "first.avsc", "--type", "protobuf"], 2, "line 1, column 1"),
        (["register", "nobody", "first.avsc", "--reference", "a=none:1"], 2, "Subject 'none' not found"),
        (["register", "x" * 1_001, "first.avsc"], 2, "1 to 1000 printable characters"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_a_status(
    broker: BrokerProcess, arguments: list[str], status: int, said: str
) -> None:
    files("avsc", AVRO)
    ran = schema(broker, *arguments)
    assert (ran.exit_code, ran.stdout) == (status, ""), ran.stderr
    assert said in ran.stderr
    assert isinstance(ran.exception, SystemExit)


def test_a_pipe_gets_the_text_and_nothing_else(broker: BrokerProcess, subject: str) -> None:
    _, fitting, _ = files("avsc", AVRO)
    done(broker, "register", subject, fitting)
    environment = os.environ | {"GOQUEUE_SERVER": broker.url, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run([SCRIPT, "schema", "show", subject], capture_output=True, env=environment, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert json.loads(ran.stdout.decode()) == json.loads(AVRO[1])
    assert "grün".encode() in ran.stdout


def test_in_a_terminal_there_are_colours(broker: BrokerProcess, subject: str) -> None:
    first, fitting, unfit = files("avsc", AVRO)
    done(broker, "register", subject, first)
    done(broker, "register", subject, fitting)
    status, compared = in_a_terminal(broker, "diff", subject, "1", "2")
    assert status == 0
    assert '\x1b[32m+      "name": "note",' in compared
    assert re.search(r"version 2 can read what version 1 wrote: \x1b\[32myes", compared)
    status, checked = in_a_terminal(broker, "check", subject, unfit)
    assert status == 1
    assert "\x1b[1;31mincompatible" in checked and "\x1b[31m  TYPE_MISMATCH" in checked
    _, shown = in_a_terminal(broker, "show", subject, "1", NO_COLOR="1")
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown).startswith(f"{subject} version 1  id ")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown)


def test_whoever_deletes_in_a_terminal_is_asked(broker: BrokerProcess, subject: str) -> None:
    first, _, _ = files("avsc", AVRO)
    done(broker, "register", subject, first)
    status, output = in_a_terminal(broker, "delete", subject, types="n\n")
    assert (status, "nothing was changed" in output) == (1, True)
    assert f"Delete all versions of {subject}? [y/N]: " in output
    assert json.loads(done(broker, "list", subject, "--json"))[0]["version"] == 1
    status, output = in_a_terminal(broker, "delete", subject, "latest", types="y\n")
    assert status == 0
    assert f"Delete the latest version of {subject}? [y/N]: " in output
    assert schema(broker, "list", subject).exit_code == 4
