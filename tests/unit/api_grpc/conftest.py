"""A broker and its gRPC server on the test's own loop, and the stubs to call it with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_grpc_calls import Serve, Served
from doubles.async_tests import pytest_pyfunc_call  # noqa: F401

from goqueue.api.grpc.server import GrpcServer
from goqueue.broker.broker import Broker
from goqueue.model.config import Config, GrpcConfig, StorageConfig


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serving(
        *, topic: dict[str, Any] | None = None, files: Any = None, clock: Any = None, **grpc_: Any
    ) -> AsyncIterator[Served]:
        """With a topic ``t`` of one partition, or as ``topic`` says."""
        config = Config(
            storage=StorageConfig(path=str(tmp_path / "data"), min_free_bytes=0),
            grpc=replace(GrpcConfig(port=0), **grpc_),
        )
        async with Broker(config, files=files, clock=clock) as broker:
            await broker.create_topic("t", {"partitions": 1} | (topic or {}))
            server = GrpcServer(broker.operations, config.grpc)
            await server.start()
            served = Served(broker, server)
            try:
                yield served
            finally:
                await served.channel.close()
                broker.stop_accepting()
                await server.stop(10)

    return serving
