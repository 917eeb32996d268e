"""``goqueue trace``: what it asks the broker for, and what it says when that fails."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from doubles.unheard_port import unheard_port
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.connection.broker_http import InvalidAddress, NoBroker, default_server
from goqueue.cli.terminal.hints import REMEDIES
from goqueue.model.errors import TraceNotFound
from goqueue.model.units import parse_instant_ns

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
STORY = {
    "trace_id": TRACE,
    "topic": "orders",
    "partition": 0,
    "offset": 17,
    "status": "completed",
    "in_log": True,
    "events": [{"timestamp": "2030-01-01T09:00:00Z", "event_type": "publish", "attributes": {}}],
    "groups": [],
    "key": "grün",
}


class FakeBroker(HTTPServer):
    """Answers everything alike, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.status = 200
        self.answer: Any = {"traces": [STORY], "count": 1, "complete": True}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeBroker

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.asked.append((url.path, dict(parse_qsl(url.query, keep_blank_values=True))))
        answer = self.server.answer
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GOQUEUE_") and name != "GOQUEUE_CONTEXTS"]:
        monkeypatch.delenv(name)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def three_hours_behind() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "XYZ3")
        time.tzset()
        yield
    time.tzset()


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that takes one connection, and is no broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def trace(*arguments: str, server: str = "", **environ: str) -> Result:
    given = ["--server", server] if server else []
    return CliRunner().invoke(app, ["trace", *given, *arguments], env=environ)


@pytest.mark.parametrize(
    ("arguments", "path", "parameters"),
    [
        (["orders", "0", "1234"], "/traces/search", {"topic": "orders", "partition": "0", "offset": "1234"}),
        (["orders/0/1234"], "/traces/search", {"topic": "orders", "partition": "0", "offset": "1234"}),
        (["no such&topic", "0", "1"], "/traces/search", {"topic": "no such&topic", "partition": "0", "offset": "1"}),
        ([TRACE], f"/traces/{TRACE}", {}),
        ([TRACE.upper()], f"/traces/{TRACE}", {}),
        ([f"00-{TRACE}-00f067aa0ba902b7-01"], f"/traces/{TRACE}", {}),
        ([], "/traces", {"limit": "20"}),
        (["--limit", "7"], "/traces", {"limit": "7"}),
        (
            ["--topic", "orders", "--partition", "2", "--key", "", "--group", "billing", "--status", "error"],
            "/traces/search",
            {"topic": "orders", "partition": "2", "key": "", "consumer_group": "billing", "status": "error"}
            | {"limit": "20"},
        ),
        (["--slower-than", "1.5s"], "/traces/search", {"slower_than": "1500ms", "limit": "20"}),
        (
            ["--from", "2030-01-01T09:00:00.123456789Z", "--to", "2030-01-02"],
            "/traces/search",
            {"start": "2030-01-01T09:00:00.123456789Z", "end": "2030-01-02T03:00:00Z", "limit": "20"},
        ),
    ],
)
def test_what_is_written_becomes_a_question(
    broker: FakeBroker, three_hours_behind: None, arguments: list[str], path: str, parameters: dict[str, str]
) -> None:
    if path == f"/traces/{TRACE}":
        broker.answer = STORY
    result = trace(*arguments, server=broker.url)
    assert (result.exit_code, result.exception) == (0, None), result.output
    assert broker.asked == [(path, parameters)]


def test_since_counts_back_from_now(broker: FakeBroker) -> None:
    before = time.time_ns()
    assert trace("--since", "10m", server=broker.url).exit_code == 0
    [(_, parameters)] = broker.asked
    assert 0 <= parse_instant_ns(parameters["start"]) + 600 * 10**9 - before <= time.time_ns() - before


def test_the_address_may_be_in_the_environment_and_need_no_scheme(broker: FakeBroker) -> None:
    short = broker.url.removeprefix("http://")
    assert trace(GOQUEUE_SERVER=broker.url).exit_code == 0
    assert trace(GOQUEUE_SERVER="http://127.0.0.1:1", server=short).exit_code == 0
    assert trace(server=f"{broker.url}/behind/a/proxy/").exit_code == 0
    assert [path for path, _ in broker.asked] == ["/traces", "/traces", "/behind/a/proxy/traces"]


def test_the_help_has_examples_one_a_line() -> None:
    lines = trace("-h").stdout.splitlines()
    examples = lines[lines.index("  Examples:") + 1 :]
    assert len(examples) >= 3
    assert all("goqueue trace" in line for line in examples)


def test_a_broker_that_nobody_named_is_where_brokers_are() -> None:
    assert default_server() == "http://127.0.0.1:8080"


def test_the_variable_is_no_setting_of_a_broker() -> None:
    assert CliRunner().invoke(app, ["config"], env={"GOQUEUE_SERVER": "http://127.0.0.1:8080"}).exit_code == 0


def test_one_message_is_drawn_or_printed_as_it_was_answered(broker: FakeBroker) -> None:
    shown = trace("orders", "0", "17", server=broker.url)
    assert shown.stdout.splitlines()[:3] == [
        "message orders/0/17  key grün",
        f"trace   {TRACE}",
        "status  completed in 0 ms",
    ]
    printed = trace("orders", "0", "17", "--json", server=broker.url)
    assert json.loads(printed.stdout) == STORY
    assert "grün".encode() in printed.stdout_bytes


@pytest.mark.parametrize("options", [[], ["--follow"]])
def test_a_story_that_may_lack_events_says_so(broker: FakeBroker, options: list[str]) -> None:
    broker.answer = STORY
    assert trace(TRACE, *options, server=broker.url).stderr == ""
    broker.answer = {**STORY, "complete": False}
    result = trace(TRACE, *options, server=broker.url)
    assert result.exit_code == 0
    assert result.stderr.startswith("there may be more events of it: ") and "trace.search_bytes" in result.stderr


def test_following_goes_on_where_a_broker_leaves_out_the_middle(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nack(second: int, attempt: int) -> dict[str, Any]:
        details = {"group": "g", "member": "m", "attempt": attempt}
        return {"timestamp": f"2030-01-01T09:00:{second:02}Z", "event_type": "nack", "attributes": details}

    first = STORY["events"][0]
    pending = {**STORY, "status": "pending"}
    answers = [
        {**pending, "events": [first, nack(1, 1), nack(2, 2), nack(3, 3)]},
        # As many as before: the first, and the latest of the others, counted anew.
        {**pending, "events": [first, nack(2, 1), nack(3, 2), nack(4, 3)]},
        {**pending, "events": [first, nack(2, 1), nack(3, 2), nack(4, 3)]},
        {**STORY, "events": [first, nack(7, 1), nack(8, 2), nack(9, 3)]},
    ]
    broker.answer = answers.pop(0)
    monkeypatch.setattr(
        "goqueue.cli.commands.trace.trace.time.sleep", lambda _: setattr(broker, "answer", answers.pop(0))
    )
    result = trace(TRACE, "--follow", server=broker.url)
    seconds = [line.split(".")[0][-2:] for line in result.stdout.splitlines() if " | nacked" in line]
    assert seconds == ["01", "02", "03", "04", "07", "08", "09"]


def test_many_are_listed_or_printed_as_they_were_answered(broker: FakeBroker) -> None:
    titles, row = trace(server=broker.url).stdout.splitlines()
    assert titles.split() == ["time", "message", "key", "status", "duration", "last", "event"]
    assert row.split()[-6:] == ["orders/0/17", "grün", "completed", "0", "ms", "published"]
    assert json.loads(trace("--json", server=broker.url).stdout) == broker.answer


@pytest.mark.parametrize(
    ("answer", "arguments", "said"),
    [
        ({"traces": [], "complete": True}, [], "nothing was traced lately\n"),
        ({"traces": [], "complete": True}, ["--key", "x"], "no message that is traced fits\n"),
        ({"traces": [STORY], "complete": True}, ["--limit", "2"], ""),
        ({"traces": [STORY], "complete": True}, ["--limit", "1"], "these are the latest 1; there may be more: "),
        ({"traces": [STORY], "complete": False}, [], "not everything that is kept was looked at: narrow it down "),
    ],
)
def test_a_list_tells_what_it_does_not_show(
    broker: FakeBroker, answer: dict[str, Any], arguments: list[str], said: str
) -> None:
    broker.answer = answer
    result = trace(*arguments, server=broker.url)
    assert result.exit_code == 0
    assert result.stderr.startswith(said) and bool(result.stderr) == bool(said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["orders"], "'orders' is neither a trace id (32 hexadecimal digits) nor a place"),
        ([TRACE[1:]], "is neither a trace id"),
        (["orders", "0"], "write a topic, a partition and an offset"),
        (["orders", "0", "1", "2"], "write a topic, a partition and an offset"),
        (["orders", "zero", "1"], "the partition is 'zero'; it is a number from 0 on"),
        (["orders", "0", "1.5"], "the offset is '1.5'"),
        (["orders/0/x"], "the offset is 'x'"),
        (["orders", "0", "1", "--limit", "5"], "options that choose among many do not go with it"),
        (["orders", "0", "1", "--key", "k"], "options that choose among many do not go with it"),
        (["orders", "0", "1", "--follow", "--json"], "use one of them"),
        (["--follow"], "say which message"),
        (["--since", "1h", "--from", "2030-01-01"], "--since and --from both say where to begin"),
        (["--since", "yesterday"], "'yesterday' is not a duration"),
        (["--since", "99999d"], "'99999d' is out of range"),
        (["--slower-than", "2"], "'2' is not a duration"),
        (["--timeout", "0s"], "'0s' is out of range"),
        (["--from", "tomorrow"], "'tomorrow' is not an instant"),
        (["--to", "2030-13-01"], "'2030-13-01' is not an instant"),
        (["--status", "lost"], "Invalid value for '--status'"),
        (["--limit", "0"], "Invalid value for '--limit'"),
        (["--server", "ftp://127.0.0.1"], "'ftp://127.0.0.1' is not the address of a broker"),
        (["--server", "http://:80"], "is not the address of a broker"),
        (["--server", "http://h:99999"], "is not the address of a broker"),
        (["--server", "http://user:secret@h"], "no user, query or fragment"),
    ],
)
def test_what_cannot_be_meant_ends_with_2(arguments: list[str], said: str) -> None:
    result = trace(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in " ".join(result.stderr.split())
    assert "secret" not in result.stderr


def test_an_address_that_is_none_comes_with_one_that_would_be() -> None:
    assert trace(server="http://a b").stderr.splitlines()[1] == f"hint: {InvalidAddress.remedy}"


@pytest.mark.parametrize(
    ("status", "code", "message", "exit_code", "hint"),
    [
        (404, "trace_not_found", "nothing is known of it", 4, REMEDIES[TraceNotFound]),
        (404, "topic_not_found", "topic 'order' does not exist", 4, "'goqueue topic list' shows"),
        (400, "invalid_request", "start lies after end", 2, "Correct the field"),
        (503, "overloaded", "too much\x1b[2J", 1, "Wait for Retry-After"),
        (500, "not-known-yet", "odd", 1, "Use a client that is as new"),
    ],
)
def test_what_the_broker_refuses_is_told_with_its_remedy(
    broker: FakeBroker, status: int, code: str, message: str, exit_code: int, hint: str
) -> None:
    broker.status, broker.answer = status, {"error": message, "code": code, "retriable": False}
    result = trace("orders", "0", "1", server=broker.url)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    error, told_hint = result.stderr.splitlines()
    assert message.replace("\x1b", r"\x1b") in error
    assert told_hint.startswith(f"hint: {hint}")


def test_a_broker_that_is_not_there_is_told_with_what_was_tried() -> None:
    with unheard_port() as port:
        url = f"http://127.0.0.1:{port}"
        result = trace("orders", "0", "1", server=url)
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        f"error: no broker can be reached at {url}: Connection refused "
        "(GET /traces/search?topic=orders&partition=0&offset=1) [broker_unavailable]",
        f"hint: {NoBroker.remedy}",
    ]
    assert "goqueue serve" in NoBroker.remedy and "--server" in NoBroker.remedy


def test_a_name_that_leads_nowhere_is_told() -> None:
    result = trace(server="http://nowhere.invalid:80")
    assert result.exit_code == 3
    assert "no broker can be reached at http://nowhere.invalid:80: " in result.stderr


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>\x1b"), (404, b"<html>\x1b"), (502, b'{"error": 3}'), (301, b"")]
)
def test_a_server_that_is_no_broker_is_told(broker: FakeBroker, status: int, body: bytes) -> None:
    broker.status, broker.answer = status, body
    for arguments in ([], [TRACE], ["orders", "0", "1"], ["--json"]):
        result = trace(*arguments, server=broker.url)
        assert result.exit_code == 3
        assert f"what listens at {broker.url} is no broker: it answered GET " in result.stderr
        assert "\x1b" not in result.stderr


@pytest.mark.parametrize("arguments", [[], [TRACE], ["orders", "0", "1"]])
def test_json_that_is_no_trace_is_told(broker: FakeBroker, arguments: list[str]) -> None:
    broker.answer = {"hello": "world"}
    result = trace(*arguments, server=broker.url)
    assert result.exit_code == 3
    assert "the answer is not one of a broker that this command knows" in result.stderr


def test_something_that_does_not_speak_http_is_told() -> None:
    with listening(lambda connection: connection.sendall(b"SSH-2.0-x\r\n")) as url:
        result = trace(server=url)
    assert result.exit_code == 3
    assert f"what listens at {url} is no broker: it does not speak HTTP" in result.stderr


def test_a_connection_that_breaks_is_told() -> None:
    with listening(lambda connection: None) as url:
        result = trace(server=url)
    assert result.exit_code == 3
    assert f"the connection to {url} broke before GET /traces?limit=20 was answered: " in result.stderr


def test_an_answer_that_trickles_ends_at_the_deadline() -> None:
    ended = threading.Event()

    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        with suppress(OSError):
            while not ended.wait(0.02):
                connection.sendall(b" ")

    with listening(trickle) as url:
        result = trace("--timeout", "200ms", server=url)
        ended.set()
    assert result.exit_code == 3
    assert f"{url} did not answer GET /traces?limit=20 within 0.2 s" in result.stderr
