"""How a request finds its route, and what the route is given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import unquote

import pytest
from msgspec import Meta, Struct

from goqueue.api.http.app import create_app
from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.routing.declaration import Controller, delete, get, post, routes_of
from goqueue.api.http.routing.openapi import operation_id
from goqueue.api.http.routing.router import Router
from goqueue.api.http.server.admission import Admission
from goqueue.api.http.server.connection_limits import ABORT
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import Caller, Requests
from goqueue.model.config import HttpConfig
from goqueue.model.errors import InternalError, UnsupportedMediaType
from goqueue.observe.exposition import Figures


class Body(Struct, forbid_unknown_fields=True):
    number: Annotated[int, Meta(ge=1)]
    more: Any = None


class Things(Controller):
    """Routes of every kind."""

    tag = "Things"
    ended = 0
    """How many answers in pieces have ended."""

    @get("/things/{name}/parts/{number}", summary="A part")
    async def part(
        self,
        caller: Caller,
        name: str,
        number: int,
        limit: Annotated[int, Meta(ge=1, description="At most so many.")] = 10,
        key: list[str] | None = None,
        text: str = "",
    ) -> dict[str, Any]:
        """One of them."""
        return {"name": name, "number": number, "limit": limit, "key": key, "text": text, "from": caller.address}

    @get("/things/fixed/parts/{number}", summary="A part that goes first")
    async def fixed(self, number: str, needed: str) -> list[str]:
        """What is spelt out is found before what is a parameter."""
        return [number, needed]

    @get("/things/{name}/other/{more}", summary="Two names")
    async def other(self, name: str, more: str) -> list[str]:
        """Of which the first one may be spelt out in another path."""
        return [name, more]

    @post("/things/{name}/parts/{number}", summary="Change it", status=201)
    async def change(self, name: str, number: int, data: Body) -> Body:
        """With a body."""
        return data

    @delete("/things/{name}/parts/{number}", summary="Maybe with a body")
    async def remove(self, name: str, number: int, data: Body | None = None) -> bool:
        """Without one."""
        return data is None

    @get("/take", summary="With effects", has_effects=True)
    async def take(self, request: Request) -> Answer:
        """There is no HEAD."""
        return Answer(b"taken", 200, "text/plain", {"X-Query": request.query.decode()})

    @get("/endless", summary="In pieces", has_effects=True)
    async def endless(self) -> Answer:
        """Until the client leaves."""
        return Answer(self._pieces(), 200, "text/plain")

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            yield b"piece"
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    @get("/broken", summary="In pieces, with a defect", has_effects=True)
    async def broken(self) -> Answer:
        """After the first one."""
        return Answer(self._broken(), 200, "text/plain")

    async def _broken(self) -> AsyncIterator[bytes]:
        yield b"piece"
        raise ValueError("a defect")

    @get("/kept/{name}", "/kept/again/{name}", summary="With slashes", keeps_slashes=True)
    async def kept(self, name: str) -> str:
        """In its name."""
        return name


@pytest.fixture
def app() -> Admission:
    requests = Requests("http")
    return Admission(HttpConfig(), Router(routes_of([Things()]), requests), requests)


def ask(app: Admission, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, dict[str, str]]:
    path, _, query = path.partition("?")
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(), "client": ("here", 1),
        "query_string": query.encode(), "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    start, end = sent
    content = end["body"]
    try:
        content = json.loads(content)
    except ValueError:
        content = content.decode()
    return start["status"], content, {name.decode(): value.decode() for name, value in start["headers"]}


@pytest.mark.parametrize("path", ["/things/a/parts/1", "/v1/things/a/parts/1", "//v1//things//a/parts/1//"])
def test_a_route_is_found_however_its_path_is_spelt(app: Admission, path: str) -> None:
    status, content, _ = ask(app, "GET", path)
    assert (status, content["name"], content["number"], content["from"]) == (200, "a", 1, "here:1")


@pytest.mark.parametrize(
    "path", ["/things", "/things/a/parts", "/things/a/parts/x", "/things/a/parts/1/2", "/v1/v1/take", "/things/a%2Fb"]
)
def test_other_paths_are_not_found(app: Admission, path: str) -> None:
    assert ask(app, "GET", path)[0] == 404


def test_query_parameters_are_converted_and_what_is_left_out_has_its_default(app: Admission) -> None:
    _, content, _ = ask(app, "GET", "/things/a/parts/1?limit=3&key=x&key=y%20z&text=a+b")
    assert (content["limit"], content["key"], content["text"]) == (3, ["x", "y z"], "a b")
    _, content, _ = ask(app, "GET", "/things/a/parts/1?text=1&text=")
    assert (content["limit"], content["key"], content["text"]) == (10, None, "")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "limit: Expected `int` >= 1"),
        ("limit=x", "limit: Expected `int`, got `str`"),
        ("limt=1", "no such parameter: 'limt'; there are key, limit, text; did you mean 'limit'?"),
    ],
)
def test_a_query_that_is_wrong_is_refused_and_the_parameter_named(app: Admission, query: str, said: str) -> None:
    status, content, _ = ask(app, "GET", f"/things/a/parts/1?{query}")
    assert (status, content["code"]) == (400, "invalid_request")
    assert content["error"].startswith(said)


def test_a_name_that_is_also_spelt_out_elsewhere_is_a_name_where_the_path_goes_on_otherwise(app: Admission) -> None:
    assert ask(app, "GET", "/things/fixed/other/x")[1] == ["fixed", "x"]
    assert ask(app, "GET", "/things/fixed/parts")[0] == 404
    assert ask(app, "POST", "/things/fixed/parts/1", b'{"number": 2}')[0] == 405


def test_what_is_spelt_out_goes_before_a_parameter_and_a_required_one_is_asked_for(app: Admission) -> None:
    assert ask(app, "GET", "/things/fixed/parts/x?needed=y")[1] == ["x", "y"]
    status, content, _ = ask(app, "GET", "/things/fixed/parts/x")
    assert (status, content["error"]) == (
        400,
        "Missing required query parameter 'needed' for path /things/fixed/parts/x",
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "body: it is missing"),
        (b"{", "Input data was truncated"),
        (b"[]", "body: Expected `object`, got `array`"),
        (b'{"number": 0}', "number: Expected `int` >= 1"),
        (b'{"number": 1, "x": 1}', "body: Object contains unknown field `x`"),
        (b'{"number": 1, "more": "\xff"}', "body: it is not UTF-8"),
        (b'{"number": 1, "more": ' + b"[" * 100_000, "body: it is nested too deeply"),
    ],
)
def test_a_body_that_is_wrong_is_refused_and_the_place_named(app: Admission, body: bytes, said: str) -> None:
    status, content, _ = ask(app, "POST", "/things/a/parts/1", body)
    assert status == 400
    assert content["error"].startswith(said)


def test_a_body_is_decoded_and_may_be_left_out_where_it_has_a_default(app: Admission) -> None:
    assert ask(app, "POST", "/things/a/parts/1", b'{"number": "2"}')[:2] == (201, {"number": 2, "more": None})
    assert ask(app, "DELETE", "/things/a/parts/1")[1] is True
    assert ask(app, "DELETE", "/things/a/parts/1", b'{"number": 2}')[1] is False


def test_head_and_options_follow_from_the_routes_of_a_path(app: Admission) -> None:
    assert ask(app, "HEAD", "/things/a/parts/1")[0] == 200
    status, _, headers = ask(app, "HEAD", "/take")
    assert (status, headers["allow"]) == (405, "GET, OPTIONS")
    status, content, headers = ask(app, "OPTIONS", "/things/a/parts/1")
    assert (status, content, headers) == (204, "", {"allow": "DELETE, GET, HEAD, OPTIONS, POST"})


def test_an_encoded_slash_belongs_to_a_name_where_a_route_says_so(app: Admission) -> None:
    assert ask(app, "GET", "/v1/kept/a%2Fb%25")[1] == "a/b%"
    assert ask(app, "GET", "/kept/again/c%2Fd")[1] == "c/d"
    assert ask(app, "GET", "/kept/a/b")[0] == 404


def test_of_a_header_that_is_sent_twice_the_first_one_counts() -> None:
    sent = [(b"accept", b"text/plain"), (b"accept", b"text/html")]
    request = Request(*[None] * 7, sent, dict(sent), *[None] * 2)  # type: ignore[arg-type]
    assert (request.header(b"accept"), request.header(b"content-type")) == ("text/plain", "")


def test_a_body_in_an_unknown_coding_is_refused_before_it_is_read() -> None:
    sent = {b"content-encoding": b"br"}
    request = Request(*[None] * 8, sent, *[None] * 2)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedMediaType, match="'br' is not taken"):
        asyncio.run(request.body())


def test_an_answer_has_the_status_the_headers_and_the_type_that_the_route_gives_it(app: Admission) -> None:
    status, content, headers = ask(app, "GET", "/take?")
    assert (status, content) == (200, "taken")
    assert headers == {"x-query": "", "content-type": "text/plain", "content-length": "5"}


def test_a_client_that_leaves_an_answer_in_pieces_ends_it_and_is_no_failure() -> None:
    things, requests = Things(), Requests("http")
    app = Admission(HttpConfig(), Router(routes_of([things]), requests), requests)
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http", "method": "GET", "path": "/endless", "raw_path": b"/endless", "client": None,
        "query_string": b"", "headers": [],
    }  # fmt: skip

    async def leave() -> None:
        is_sent = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await is_sent.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                is_sent.set()

        await app(scope, receive, send)

    asyncio.run(leave())
    assert [each.get("body") for each in sent] == [None, b"piece"]
    assert (things.ended, app.load.active) == (1, 0)


@pytest.mark.parametrize("can_abort", [True, False])
def test_a_defect_in_the_middle_of_an_answer_is_logged_and_counted_and_ends_the_connection(
    can_abort: bool, caplog: pytest.LogCaptureFixture
) -> None:
    requests = Requests("http")
    app = Admission(HttpConfig(), Router(routes_of([Things()]), requests), requests)
    sent: list[dict[str, Any]] = []

    async def fail() -> None:
        aborted = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await aborted.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "path": "/broken", "raw_path": b"/broken", "client": None,
            "query_string": b"", "headers": [], "state": {ABORT: aborted.set} if can_abort else {},
        }  # fmt: skip
        await app(scope, receive, send)

    if can_abort:
        asyncio.run(fail())
    else:
        # A server that gives no way to abort takes an error for one.
        with pytest.raises(InternalError):
            asyncio.run(fail())
    assert [each.get("body") for each in sent] == [None, b"piece"]
    assert [str(each.exc_info[1]) for each in caplog.records if each.exc_info] == ["a defect"]
    figures = Figures()
    requests.add_to(figures)
    assert [line for line in figures.lines("goqueue_requests_total") if "/broken" in line and '"500"' in line]


def test_operation_ids_are_made_of_the_path_and_the_method() -> None:
    assert operation_id("/topics/{topic_name}/dead-letters", "browse") == "TopicsTopicNameDeadLettersBrowse"
    assert operation_id("/", "root") == "Root"


def test_every_signature_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read when a route is first used: a mistake in one must not wait until then."""
    made: list[Any] = []
    monkeypatch.setattr("goqueue.api.http.app.routes_of", lambda found: made.extend(routes_of(found)) or made[:])
    create_app(_Anything(), HttpConfig())  # type: ignore[arg-type]
    assert len(made) > 100
    for route in made:
        assert route.arguments.path.keys() == {part[1:-1] for part in route.path.split("/") if part.startswith("{")}
        assert route.declared.is_hidden or route.declared.summary


class _Anything:
    """Stands for operations that are never called."""

    def __getattr__(self, name: str) -> Any:
        return _Anything()

    def requests(self, _protocol: object) -> Requests:
        return Requests("http")
