"""A broker and its native server on the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doubles.async_tests import pytest_pyfunc_call  # noqa: F401
from native_client import Serve, Served

from goqueue.api.native.server import NativeServer
from goqueue.broker.broker import Broker
from goqueue.model.config import Config, NativeConfig, StorageConfig


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serving(
        *, topic: dict[str, Any] | None = None, files: Any = None, **native: Any
    ) -> AsyncIterator[Served]:
        """With a topic ``t`` of two partitions, or as ``topic`` says."""
        config = Config(
            storage=StorageConfig(path=str(tmp_path / "data"), min_free_bytes=0),
            native=replace(NativeConfig(port=0), **native),
        )
        async with Broker(config, files=files) as broker:
            await broker.create_topic("t", {"partitions": 2} | (topic or {}))
            server = NativeServer(broker.operations, config.native)
            await server.start()
            served = Served(broker, server)
            try:
                yield served
            finally:
                await served.close()
                broker.stop_accepting()
                await server.stop(10)

    return serving
