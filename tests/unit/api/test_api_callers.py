"""Who calls an operation, as HTTP and gRPC tell it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from goqueue.api.grpc import calls as grpc_calls
from goqueue.api.http.app import create_app
from goqueue.api.http.server.admission import Admission
from goqueue.api.http.server.request import Request
from goqueue.broker.broker import Broker
from goqueue.broker.operations import ANONYMOUS, Caller, CallerProtocol
from goqueue.model.config import Config, HttpConfig, StorageConfig


class Call:
    """A gRPC call, as far as its other end is asked for."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def peer(self) -> str:
        return self._peer


@pytest.mark.parametrize(
    ("client", "address"), [(("127.0.0.1", 5000), "127.0.0.1:5000"), (["::1", 5000], "[::1]:5000"), (None, "")]
)
def test_an_http_request_tells_where_it_came_from(client: Any, address: str) -> None:
    seen: list[Caller] = []

    async def serve(request: Request) -> None:
        seen.append(request.caller)

    asyncio.run(ask_for(Admission(HttpConfig(), serve), client))
    assert seen == [Caller(ANONYMOUS, address, CallerProtocol.HTTP)]


async def ask_for(app: Admission, client: Any) -> None:
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": []}

    async def nothing(*_: object) -> None:
        pass

    await app({**scope, "client": client}, nothing, nothing)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1:5000"),
        ("ipv6:[::1]:5000", "[::1]:5000"),
        ("ipv6:%5B::1%5D:5000", "[::1]:5000"),
        ("unix:/run/goqueue", ""),
        ("", ""),
    ],
)
def test_a_grpc_call_tells_where_it_came_from(peer: str, address: str) -> None:
    context = cast("Any", Call(peer))
    assert grpc_calls.caller_of(context) == Caller(ANONYMOUS, address, CallerProtocol.GRPC)
    assert grpc_calls.caller_of(context) is grpc_calls.caller_of(context)


@pytest.mark.parametrize(
    ("method", "path", "body", "passed"),
    [
        ("POST", "/topics/t/messages", {"messages": [{"value": "v"}]}, ("messages.publish", "t")),
        ("POST", "/v1/topics/t/messages/", {"messages": [{"value": "v"}]}, ("messages.publish", "t")),
        ("GET", "/topics/t/partitions/0/messages", None, ("messages.read", "t")),
        ("GET", "/groups/g/poll?member_id=m", None, ("queues.poll", "g")),
        ("POST", "/messages/ack", {"receipt_handle": "r"}, ("queues.settle_receipts", ["r"])),
        ("GET", "/schemas/ids/1", None, ("schemas.get", 1)),
        ("GET", "/readyz", None, ("broker.readiness", None)),
    ],
    ids=["publish", "publish as others write it", "read", "poll", "ack", "schema by id", "readiness"],
)
def test_http_requests_pass_the_gate_once_with_their_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: object, passed: tuple[str, object]
) -> None:
    seen: list[tuple[Caller, str, object]] = []

    async def ask() -> None:
        async with Broker(Config(storage=StorageConfig(path=str(tmp_path), min_free_bytes=0))) as broker:
            await broker.create_topic("t")
            # Of this broker alone: brokers of other tests in this process look at their health now and then.
            monkeypatch.setattr(
                broker.operations._gate,
                "admit",
                lambda caller, asked, resource: seen.append((caller, asked.name, resource)),
            )
            transport: Any = httpx.ASGITransport(create_app(broker.operations, HttpConfig()), client=("10.0.0.1", 77))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                assert (await client.request(method, path, json=body)).status_code < 500

    asyncio.run(ask())
    assert seen == [(Caller(ANONYMOUS, "10.0.0.1:77", CallerProtocol.HTTP), *passed)]
