"""The stubs to call a server with, and what a call failed with, as a client in any language sees it."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest

from goqueue.api.grpc.server import GrpcServer
from goqueue.broker.broker import Broker
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc


class Served:
    """What a raw client needs."""

    def __init__(self, broker: Broker, server: GrpcServer) -> None:
        self.broker = broker
        self.server = server
        self.address = f"127.0.0.1:{server.port}"
        self.channel = self.connect()
        self.messages = pb_grpc.MessagesStub(self.channel)
        self.topics = pb_grpc.TopicsStub(self.channel)
        self.metadata = pb_grpc.MetadataStub(self.channel)
        self.groups = pb_grpc.GroupsStub(self.channel)
        self.delays = pb_grpc.DelaysStub(self.channel)
        self.schemas = pb_grpc.SchemasStub(self.channel)

    def connect(self) -> grpc.aio.Channel:
        # Not shared with other channels of the process, so that each has its own connection.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        return grpc.aio.insecure_channel(self.address, options=options)

    def waiting_readers(self, topic: str = "t") -> int:
        return len(self.broker.topic(topic).partition(0)._waiters)


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@dataclass(frozen=True)
class CallError:
    status: grpc.StatusCode
    details: str
    code: str | None
    retriable: str | None
    retry_after_ms: str | None


async def error_of(call: Awaitable[Any] | AsyncIterable[Any]) -> CallError:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        if isinstance(call, AsyncIterable):
            async for _ in call:
                pass
        else:
            await call
    metadata = dict(failure.value.trailing_metadata() or ())
    return CallError(
        failure.value.code(),
        failure.value.details() or "",
        metadata.get("goqueue-code"),
        metadata.get("goqueue-retriable"),
        metadata.get("goqueue-retry-after-ms"),
    )
