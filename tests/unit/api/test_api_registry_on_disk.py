"""Over HTTP too, nothing is told of a schema before it is on the disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from doubles.async_tests import until
from doubles.loop import on_a_loop

from goqueue.api.http.app import create_app
from goqueue.broker.broker import Broker
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.model.config import Config, HttpConfig, StorageConfig

PATHS = (
    "/schemas/ids/2",
    "/schemas/ids/2?format=serialized",
    "/schemas/ids/1?fetchMaxId=true",
    "/schemas/ids/2/schema",
    "/schemas/ids/2/subjects",
    "/schemas/ids/2/versions",
    "/schemas/ids/1/subjects",
    "/schemas/ids/1/versions",
    "/subjects",
    "/subjects/s/versions",
    "/subjects/s/versions/latest",
    "/subjects/s/versions/latest/schema",
    "/subjects/s/metadata",
    "/schemas",
)


@on_a_loop
async def test_what_is_being_registered_is_told_when_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(Config(storage=StorageConfig(path=str(tmp_path), min_free_bytes=0))) as broker:
        await broker.schemas.register("first", SchemaDraft('"int"'))
        commits = broker._commits
        may_sync, carry_out = threading.Event(), commits._carry_out

        def held(planned: Any) -> Any:
            assert may_sync.wait(60)
            return carry_out(planned)

        monkeypatch.setattr(commits, "_carry_out", held)
        registering = asyncio.create_task(broker.schemas.register("s", SchemaDraft('"string"')))
        await until(lambda: 2 in broker.schemas.state.records)
        # What is known already is being used once more.
        using = asyncio.create_task(broker.schemas.register("second", SchemaDraft('"int"')))
        await until(lambda: "second" in broker.schemas.state.names(deleted=False))
        transport: Any = httpx.ASGITransport(create_app(broker.operations, HttpConfig()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            looks = {path: asyncio.create_task(client.get(path)) for path in PATHS}
            try:
                for _ in range(3):
                    # This one is on the disk already, and takes as many steps.
                    assert (await client.get("/schemas/ids/1")).status_code == 200
                    assert (await client.get("/schemas/ids/1?format=serialized")).status_code == 200
                assert [path for path, each in looks.items() if each.done()] == []
            finally:
                may_sync.set()
            await asyncio.gather(registering, using)
            assert {(await each).status_code for each in looks.values()} == {200}
