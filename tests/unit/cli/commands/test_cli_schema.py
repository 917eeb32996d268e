"""``goqueue schema``: how it draws, what it asks the broker for, and what it says when that fails."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from doubles.unheard_port import unheard_port
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.commands.schema import schema_calls, schema_view
from goqueue.cli.commands.schema.schema_calls import Reference, Schema, Verdict
from goqueue.cli.commands.schema.schema_draft import UnreadableFile
from goqueue.cli.terminal.output import Line, plain_text
from goqueue.schemas.base import MAX_SCHEMA_BYTES, Incompatibility

TEXT = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
COMMANDS = ["list", "show", "register", "check", "diff", "delete", "config"]
BACKWARD = {"compatibilityLevel": "BACKWARD"}


class FakeBroker(HTTPServer):
    """Answers each method and path as it was told to, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.answers: dict[str, tuple[int, Any]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeBroker

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        place = f"{self.command} {url.path}"
        self.server.asked.append((place, dict(parse_qsl(url.query)), json.loads(body) if body else None))
        status, answer = self.server.answers.get(place, (404, {"error": "not there", "code": "subject_not_found"}))
        if callable(answer):
            answer = answer(dict(parse_qsl(url.query)))
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _in_an_empty_folder_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GOQUEUE_") and name != "GOQUEUE_CONTEXTS"]:
        monkeypatch.delenv(name)
    Path("order.avsc").write_text(TEXT)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def schema(*arguments: str, server: str = "", **given: Any) -> Result:
    where = ["--server", server] if server else []
    return CliRunner().invoke(app, ["schema", *arguments, *where], **given)


def an_order(version: int, text: str = TEXT, **more: Any) -> Schema:
    return Schema(text=text, subject="orders-value", version=version, schema_id=version + 10, **more)


def drawn(lines: Iterator[Line]) -> list[str]:
    return plain_text(lines).splitlines()


# Drawing


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [([], ""), ([4], "4"), ([2, 1, 3], "1-3"), ([1, 2, 4, 6, 7], "1-2, 4, 6-7")],
)
def test_versions_are_shown_as_ranges(numbers: list[int], shown: str) -> None:
    assert schema_view.format_ranges(numbers) == shown


def test_subjects_are_a_table_whatever_their_names_have_in_them() -> None:
    rows = [
        schema_view.SubjectRow("orders-value", "AVRO", [1, 3], [2], 3, 13, "BACKWARD"),
        schema_view.SubjectRow("a\x1b[2J", "PROTOBUF", [1], [], 1, 7, "FULL_TRANSITIVE"),
    ]
    assert drawn(schema_view.subjects_table(rows, deleted=False)) == [
        "subject       kind      versions  latest id  compatibility",
        "orders-value  AVRO      1, 3      13         BACKWARD",
        r"a\x1b[2J      PROTOBUF  1         7          FULL_TRANSITIVE",
    ]
    assert drawn(schema_view.subjects_table(rows[:1], deleted=True)) == [
        "subject       kind  versions  deleted  latest id  compatibility",
        "orders-value  AVRO  1, 3      2        13         BACKWARD",
    ]


def test_versions_are_a_table() -> None:
    found = [an_order(1, deleted=True), an_order(2, references=[Reference("M", "money", 1), Reference("N", "n", -1)])]
    assert drawn(schema_view.versions_table(found, deleted=True)) == [
        "version  id  kind  deleted  references",
        "1        11  AVRO  yes",
        "2        12  AVRO           M=money:1, N=n:latest",
    ]


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        ("AVRO", '{"a":1.10,"b":[1e400,"\\u00fcü"]}', '{\n  "a": 1.10,\n  "b": [\n    1e400,\n    "\\u00fcü"\n  ]\n}'),
        ("AVRO", "string", "string"),
        ("JSON", "true", "true"),
        ("JSON", "[" * 100_000, "[" * 100_000),
        ("PROTOBUF", 'syntax="proto3";\n', 'syntax="proto3";\n'),
    ],
    ids=["parts", "bare", "true", "deep", "proto"],
)
def test_a_text_is_set_in_but_never_changed(kind: str, text: str, shown: str) -> None:
    assert schema_view.text_of(Schema(text=text, kind=kind)) == shown


def test_a_schema_in_a_terminal_is_named_and_cannot_move_the_cursor() -> None:
    found = an_order(1, "a\t\x1b[2J\r\nb\u2028c\n", kind="PROTOBUF", references=[Reference("M", "money", 1)])
    assert drawn(schema_view.schema_lines(found)) == [
        "orders-value version 1  id 11, PROTOBUF",
        "reference M=money:1",
        "",
        "a\t\\x1b[2J",
        "b\\u2028c",
    ]


def test_a_difference_is_a_unified_diff_with_a_style_for_each_side() -> None:
    lines = list(schema_view.difference_lines(an_order(1), an_order(2, TEXT.replace("long", "int"))))
    assert [span for line in lines for span in line if span[1]] == [
        ("--- orders-value version 1 (id 11)", "bold"),
        ("+++ orders-value version 2 (id 12)", "bold"),
        ("@@ -4,7 +4,7 @@", "cyan"),
        ('-      "type": "long"', "red"),
        ('+      "type": "int"', "green"),
    ]


def test_only_another_reference_is_a_difference_and_another_spacing_is_none() -> None:
    old, new = (an_order(number, references=[Reference("M", "money", number)]) for number in (1, 2))
    assert drawn(schema_view.difference_lines(old, new))[-2:] == ["-reference M=money:1", "+reference M=money:2"]
    assert list(schema_view.difference_lines(an_order(1), an_order(2, TEXT.replace(":", " : ")))) == []


def test_a_reason_is_a_line_with_its_rule_its_place_and_what_would_be_right() -> None:
    [line] = schema_view.reason_lines(["TYPE_MISMATCH at /a b (version 2): was int: use\nint"])
    assert [text for text, _ in line] == ["  TYPE_MISMATCH", " at ", "/a b", " (version 2)", r": was int: use\nint"]
    assert drawn(schema_view.reason_lines(["of another\x07 form"])) == [r"  of another\x07 form"]


@pytest.mark.parametrize(
    ("level", "compared", "shown"),
    [
        ("BACKWARD", [3], "compatible with version 3 of orders (BACKWARD)"),
        ("FULL_TRANSITIVE", [1, 2, 3], "compatible with versions 1-3 of orders (FULL_TRANSITIVE)"),
        ("BACKWARD", [], "compatible: orders has no schema yet"),
        ("NONE", [3], "compatible: the compatibility of orders is NONE, and nothing is compared"),
    ],
)
def test_a_good_verdict_tells_what_was_compared(level: str, compared: list[int], shown: str) -> None:
    assert drawn(schema_view.verdict_lines("orders", level, Verdict(True), compared)) == [shown]


def test_who_can_read_what_is_told_each_way() -> None:
    why = Incompatibility("TYPE_MISMATCH", "/fields/0", "use int")
    assert drawn(
        schema_view.readability_lines([schema_view.Readability(2, 1, []), schema_view.Readability(1, 2, [why])])
    ) == [
        "version 2 can read what version 1 wrote: yes",
        "version 1 can read what version 2 wrote: no",
        "  TYPE_MISMATCH at /fields/0: use int",
    ]


# Asking


def test_what_is_written_becomes_a_draft(broker: FakeBroker) -> None:
    broker.answers["POST /subjects/a%2Fb%20c/versions"] = 200, {"id": 4, "version": 2}
    ran = schema(
        *["register", "a/b c", "-", "--type", "Protobuf", "--normalize"],
        *["--reference", "m.proto=:.shop:money:3", "--reference", "n=n:latest"],
        server=broker.url,
        input=b'\xef\xbb\xbfsyntax = "proto3";',
    )
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "a/b c version 2, id 4: registered\n", "")
    draft = {
        "schema": 'syntax = "proto3";',
        "schemaType": "PROTOBUF",
        "references": [
            {"name": "m.proto", "subject": ":.shop:money", "version": 3},
            {"name": "n", "subject": "n", "version": -1},
        ],
    }
    assert broker.asked == [
        ("POST /subjects/a%2Fb%20c", {"normalize": "true"}, draft),
        ("POST /subjects/a%2Fb%20c/versions", {"normalize": "true"}, draft),
    ]


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("o.avsc", "AVRO", "Avro, by .avsc"),
        ("o.JSON", "JSON", "JSON Schema, by .json"),
        ("a.b.proto", "PROTOBUF", "Protobuf, by .proto"),
    ],
)
def test_the_kind_is_guessed_from_the_extension_and_told(broker: FakeBroker, name: str, kind: str, told: str) -> None:
    broker.answers["POST /subjects/s/versions"] = 200, {"id": 1, "version": 1}
    Path(name).write_text("x")
    assert schema("register", "s", name, server=broker.url).stderr.startswith(f"taken as {told};")
    assert schema("register", "s", name, "--type", "avro", server=broker.url).stderr == ""
    assert [body["schemaType"] for _, _, body in broker.asked[::2]] == [kind, "AVRO"]


def test_subjects_are_asked_for_page_by_page(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_calls, "_PAGE", 3)

    def page(parameters: dict[str, str]) -> list[dict[str, Any]]:
        start, limit = int(parameters["offset"]), int(parameters["limit"])
        places = range(start, min(start + limit, 7))
        return [{"schema": TEXT, "subject": f"s{place}", "version": 1, "id": 1} for place in places]

    broker.answers["GET /schemas"] = 200, page
    broker.answers["GET /subjects/s6/versions"] = 200, [1]
    broker.answers["GET /config/s6"] = 200, BACKWARD
    # All the others were deleted meanwhile.
    _, line = schema("list", server=broker.url).stdout.splitlines()
    assert line.split() == ["s6", "AVRO", "1", "1", "BACKWARD"]
    pages = [parameters["offset"] for place, parameters, _ in broker.asked if place == "GET /schemas"]
    assert pages == ["0", "3", "6"]


def test_what_cannot_be_understood_here_can_be_compared_nevertheless(broker: FakeBroker) -> None:
    for number, text in ((1, '{"type":"record"}'), (2, '{"type":"future"}')):
        version = {"schema": text, "subject": "s", "version": number, "id": number}
        broker.answers[f"GET /subjects/s/versions/{number}"] = 200, version
    ran = schema("diff", "s", "1", "2", server=broker.url)
    assert ran.exit_code == 0
    assert ran.stderr.startswith("whether one can read what the other wrote is not known: ")
    assert '+  "type": "future"' in ran.stdout.splitlines()


def test_schemas_of_two_kinds_cannot_read_one_another(broker: FakeBroker) -> None:
    for number, kind in ((1, "AVRO"), (2, "JSON")):
        version = {"schema": '"int"', "schemaType": kind, "subject": "s", "version": number, "id": number}
        broker.answers[f"GET /subjects/s/versions/{number}"] = 200, version
    told = json.loads(schema("diff", "s", "1", "2", "--json", server=broker.url).stdout)
    assert told["diff"] == ""
    assert [(each["reader"], each["writer"], each["is_compatible"]) for each in told["readings"]] == [
        (2, 1, False),
        (1, 2, False),
    ]


def test_references_in_a_circle_end(broker: FakeBroker) -> None:
    circle = {"schema": TEXT, "subject": "s", "version": 1, "id": 1}
    for number in range(200):
        there = {"name": "n", "subject": f"s{number + 1}", "version": 1}
        broker.answers[f"GET /subjects/s{number}/versions/1"] = 200, circle | {"references": [there]}
    ran = schema("diff", "s0", "1", "1", server=broker.url)
    assert ran.exit_code == 0
    assert "references lead through more than 100 schemas" in ran.stderr


def test_a_refusal_that_cannot_be_explained_any_more_is_told_as_it_came(broker: FakeBroker) -> None:
    broker.answers |= {
        "POST /subjects/s/versions": (409, {"error": "not BACKWARD compatible: a; b", "code": "incompatible_schema"}),
        "POST /compatibility/subjects/s/versions": (200, {"is_compatible": True, "messages": []}),
    }
    ran = schema("register", "s", "order.avsc", "--type", "avro", server=broker.url)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: not BACKWARD compatible: a; b [incompatible_schema]\nhint: ")


# Failing


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_the_help_has_examples_one_a_line(command: list[str]) -> None:
    lines = schema(*command, "-h").stdout.splitlines()
    examples = lines[lines.index("  Examples:") + 1 :]
    assert len(examples) >= 3
    assert all(" ".join(["goqueue schema", *command]) in line for line in examples)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show"], "say which schema: a subject, or --id and no subject"),
        (["show", "s", "--id", "3"], "say which schema"),
        (["show", "s", "first"], "'first' is no version; a number from 1 on is, and 'latest'"),
        (["show", ""], "a subject has a name"),
        (["show", "--id", "-1"], "Invalid value for '--id'"),
        (["list", ""], "a subject has a name"),
        (["register", "", "order.avsc"], "a subject has a name"),
        (["register", "s"], "Missing argument 'FILE'"),
        (["register", "s", "-"], "say what kind of schema it is: avro, json or protobuf (standard input has no name;"),
        (["register", "s", "order.txt"], "the name 'order.txt' does not tell"),
        (["register", "s", "order.avsc", "--type", "xml"], "Invalid value for '--type'"),
        (["register", "s", "order.avsc", "--reference", "a"], "'a' is not NAME=SUBJECT:VERSION"),
        (["register", "s", "order.avsc", "--reference", "a=b"], "'a=b' is not NAME=SUBJECT:VERSION"),
        (["register", "s", "order.avsc", "--reference", "=b:1"], "'=b:1' is not NAME=SUBJECT:VERSION"),
        (["register", "s", "order.avsc", "--reference", "a=b:0"], "'a=b:0' is not NAME=SUBJECT:VERSION"),
        (["register", "s", "no.avsc"], "file 'no.avsc' cannot be read: No such file or directory"),
        (["register", "s", "."], "the name '' does not tell"),
        (["register", "s", ".", "--type", "avro"], "file '.' cannot be read: Is a directory"),
        (["check", "s", "order.avsc", "--version", "0"], "'0' is no version"),
        (["check", "", "order.avsc"], "a subject has a name"),
        (["diff", "s", "1"], "Missing argument 'V2'"),
        (["diff", "s", "1", "two"], "Invalid value for V2: 'two' is no version"),
        (["diff", "", "1", "2"], "a subject has a name"),
        (["delete", "s"], "nobody can be asked here; say --yes to do it"),
        (["delete", "s", "all", "--yes"], "'all' is no version"),
        (["delete", "", "--yes"], "a subject has a name"),
        (["config", "", "--reset"], "a subject has a name"),
        (["config", "--reset", "--compatibility", "FULL"], "use one of them"),
        (["list", "--timeout", "soon"], "'soon' is not a duration"),
        (["list", "--timeout", "2d"], "'2d' is out of range"),
        (["list", "--server", "ftp://h"], "'ftp://h' is not the address of a broker"),
    ],
)
def test_what_cannot_be_meant_ends_with_2(broker: FakeBroker, arguments: list[str], said: str) -> None:
    broker.answers["GET /config/s"] = 200, BACKWARD
    result = schema(*arguments, server="" if "--server" in arguments else broker.url)
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    assert said in " ".join(result.stderr.split())
    assert not [place for place, _, _ in broker.asked if not place.startswith("GET /config/s")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "file 's.avsc' is empty"),
        (b" \n", "file 's.avsc' is empty"),
        (b"ab\xff", "file 's.avsc' is not UTF-8: byte 2 is 0xff"),
        (b"x" * (MAX_SCHEMA_BYTES + 1), "file 's.avsc' has more than 1048576 bytes"),
    ],
    ids=["empty", "blank", "binary", "large"],
)
def test_a_file_that_is_no_schema_is_told(broker: FakeBroker, content: bytes, said: str) -> None:
    Path("s.avsc").write_bytes(content)
    ran = schema("register", "s", "s.avsc", server=broker.url)
    assert (ran.exit_code, broker.asked) == (2, [])
    error, hint = ran.stderr.splitlines()
    assert error.startswith(f"error: {said}")
    assert hint == f"hint: {UnreadableFile.remedy}"


def test_a_broker_that_is_not_there_is_told_with_what_was_tried() -> None:
    with unheard_port() as port:
        url = f"http://127.0.0.1:{port}"
        result = schema("delete", "s", "2", "--yes", server=url)
    assert result.exit_code == 3
    tried = "DELETE /subjects/s/versions/2?permanent=false"
    assert (
        f"error: no broker can be reached at {url}: Connection refused ({tried}) [broker_unavailable]\n"
        in result.stderr
    )


def test_an_answer_that_trickles_ends_at_the_deadline() -> None:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not ended.wait(0.02):
                    connection.sendall(b" ")

        thread = threading.Thread(target=trickle)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        result = schema("config", "--timeout", "100ms", server=url)
        ended.set()
        thread.join()
    assert result.exit_code == 3
    assert f"{url} did not answer GET /config within 0.1 s" in result.stderr


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (200, b"<html>\x1b", "is no broker: it answered GET /config with 200, "),
        (502, b"bad gateway", "is no broker: it answered GET /config with 502, "),
        (200, {"hello": "world"}, "the answer is not one of a broker that this command knows"),
        (200, [1], "the answer is not one of a broker that this command knows"),
        (503, {"error": "too much\x1b", "code": "overloaded"}, r"error: too much\x1b"),
    ],
)
def test_a_strange_answer_is_told(broker: FakeBroker, status: int, answer: Any, said: str) -> None:
    broker.answers["GET /config"] = status, answer
    result = schema("config", server=broker.url)
    # A broker that has too much to do is one.
    assert (result.exit_code, result.stdout) == (1 if status == 503 else 3, "")
    assert said in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("subject_not_found", "'goqueue schema list' lists them"),
        ("version_not_found", "'goqueue schema list SUBJECT' lists them"),
        ("version_not_soft_deleted", "Delete it without --permanent first."),
        ("subject_not_soft_deleted", "Delete it without --permanent first."),
        ("version_soft_deleted", "Delete it with --permanent"),
        ("subject_soft_deleted", "Delete it with --permanent"),
        ("schema_is_referenced", "Delete those first; 'goqueue schema show --id N'"),
    ],
)
def test_a_refusal_comes_with_what_can_be_done_at_a_terminal(broker: FakeBroker, code: str, hint: str) -> None:
    broker.answers["DELETE /subjects/s"] = 404, {"error": "no", "code": code}
    result = schema("delete", "s", "--yes", server=broker.url)
    assert (result.exit_code, result.stdout) == (1 if code == "schema_is_referenced" else 4, "")
    assert f"hint: {hint}" in result.stderr
