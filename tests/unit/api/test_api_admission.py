from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.server.admission import Admission
from goqueue.api.http.server.request import Request
from goqueue.model.config import HttpConfig
from goqueue.model.errors import GoQueueError, Overloaded
from goqueue.observe.exposition import Figures
from goqueue.observe.requests import Requests

Handler = Callable[[Request], Awaitable[None]]
SMALL = replace(
    HttpConfig(), max_body_bytes=100, max_request_memory_bytes=150, max_concurrent_requests=2, max_waiting_reads=1
)


class Client:
    """One request through the admission, by hand: chunks go in, the answer comes out."""

    def __init__(self, admission: Admission, *, length: int | None = None) -> None:
        self._chunks: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        scope = {"type": "http", "method": "POST", "path": "/", "raw_path": b"/", "query_string": b"", "client": None}
        self.task = asyncio.ensure_future(admission({**scope, "headers": headers}, self._chunks.get, self._send))

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    def chunk(self, size: int, *, more: bool = True) -> None:
        self._chunks.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": more})

    def leave(self) -> None:
        self._chunks.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def code(self) -> str:
        return str(json.loads(self.sent[1]["body"])["code"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def admission_for(handler: Handler, config: HttpConfig = SMALL) -> Admission:
    return Admission(config, handler)


async def read_all(request: Request) -> None:
    """A handler that reads its body and answers, like ours."""
    try:
        await request.body()
        status = 200
    except GoQueueError as error:
        status = error.http_status
    await request.send(Answer(b"", status))


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def inside() -> None:
        await work()

    asyncio.run(inside())


def idle(admission: Admission) -> bool:
    return (admission.load.active, admission.load.waiting, admission.load.body_bytes) == (0, 0, 0)


def test_a_request_is_counted_while_it_is_served() -> None:
    async def work() -> None:
        admission = admission_for(read_all)
        request = Client(admission, length=60)
        await settle()
        # Anyone can announce a body.
        assert (admission.load.active, admission.load.body_bytes) == (1, 0)
        request.chunk(40)
        await settle()
        assert admission.load.body_bytes == 40
        request.chunk(20, more=False)
        await request.task
        assert request.status == 200
        assert idle(admission)

    run(work)


def test_a_handler_that_fails_gives_its_place_back() -> None:
    async def fail(request: Request) -> None:
        raise RuntimeError("a defect")

    async def work() -> None:
        admission = admission_for(fail)
        with pytest.raises(RuntimeError):
            await Client(admission, length=60).task
        assert idle(admission)

    run(work)


def test_one_request_too_many_is_refused_before_any_work() -> None:
    async def work() -> None:
        admission = admission_for(read_all)
        served = [Client(admission) for _ in range(2)]
        await settle()
        extra = Client(admission)
        await extra.task
        assert (extra.status, extra.code) == (503, "overloaded")
        assert extra.headers[b"retry-after"] == b"1"
        for request in served:
            request.chunk(1, more=False)
            await request.task
        assert idle(admission)

    run(work)


def test_an_announced_body_that_is_too_large_is_refused_and_the_connection_closed() -> None:
    async def work() -> None:
        admission = admission_for(read_all)
        request = Client(admission, length=101)
        await request.task
        assert (request.status, request.code) == (413, "body_too_large")
        assert request.headers[b"connection"] == b"close"
        assert idle(admission)

    run(work)


def test_a_body_that_was_not_announced_is_counted_as_it_comes() -> None:
    async def work() -> None:
        admission = admission_for(read_all)
        request = Client(admission)
        request.chunk(60)
        await settle()
        assert admission.load.body_bytes == 60
        request.chunk(60)
        await request.task
        assert request.status == 413
        assert idle(admission)

    run(work)


def test_bodies_are_bounded_together() -> None:
    async def work() -> None:
        admission = admission_for(read_all)
        first = Client(admission, length=100)
        first.chunk(99)
        second = Client(admission, length=52)
        await settle()
        second.chunk(52, more=False)
        await second.task
        assert second.status == 503
        first.chunk(1, more=False)
        await first.task
        third = Client(admission, length=51)
        third.chunk(51, more=False)
        await third.task
        assert third.status == 200
        assert idle(admission)

    run(work)


def test_a_client_that_leaves_in_the_middle_is_an_error_of_the_client() -> None:
    async def work() -> None:
        admission = admission_for(read_all)
        request = Client(admission, length=60)
        request.chunk(10)
        request.leave()
        await request.task
        assert request.status == 400
        assert idle(admission)

    run(work)


def test_a_read_that_waits_gives_its_place_to_others_and_takes_one_of_those_who_wait() -> None:
    async def work() -> None:
        arrived = asyncio.Event()

        async def wait(request: Request) -> None:
            await request.body()
            try:
                status = 200 if await request.waiting_read(arrived.wait()) else 500
            except Overloaded as error:
                status = error.http_status
            await request.send(Answer(b"", status))

        admission = admission_for(wait)
        load = admission.load
        first = Client(admission)
        first.chunk(1, more=False)
        await settle()
        assert (load.active, load.waiting) == (0, 1)
        second = Client(admission)
        second.chunk(1, more=False)
        await second.task
        assert second.status == 503
        assert (load.active, load.waiting) == (0, 1)
        arrived.set()
        await first.task
        assert first.status == 200
        assert idle(admission)

    run(work)


def test_who_leaves_before_the_answer_has_none() -> None:
    async def work() -> None:
        requests = Requests("http")

        async def wait(request: Request) -> None:
            await request.body()
            try:
                await request.waiting_read(asyncio.sleep(3_600))
            except GoQueueError as error:
                await request.send(Answer(b"", error.http_status))

        admission = Admission(SMALL, wait, requests)
        client = Client(admission)
        client.chunk(1, more=False)
        await settle()
        assert admission.load.waiting == 1
        client.leave()
        await client.task
        assert idle(admission)
        figures = Figures()
        requests.add_to(figures)
        assert [line for line in figures.lines("goqueue_requests_total") if "499" in line]

    run(work)
