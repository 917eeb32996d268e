"""A small protocol of requests and answers, between a client and a broker on another simulated host.

A request is a line of JSON, so is its answer. If the connection breaks, or no answer comes in time, the client does not
know whether its message was stored: it sends it again, with the same dedup id, until it is told.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any

from goqueue.broker.broker import Broker
from goqueue.broker.operations import Bounds
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import GoQueueError
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.simulation.node import Node
from goqueue.simulation.processes import Process
from goqueue.simulation.virtual_loop import SimulatedLoop

TOPIC = "orders"
BROKER, CLIENT, PORT = "broker", "client", 7000
_ANSWER_S = 2.0
_PAUSE_S = 0.05


# The broker's side


async def serve(broker: Broker) -> None:
    await asyncio.start_server(partial(_talk, broker), port=PORT)


async def _talk(broker: Broker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, TimeoutError):
        while line := await reader.readline():
            request = json.loads(line)
            message = NewMessage(request["value"].encode(), dedup_id=request["dedup_id"])
            outcomes = await broker.publish(TOPIC, [message])
            writer.write(json.dumps(_answer(outcomes[0])).encode() + b"\n")
            await writer.drain()
    writer.close()


def _answer(outcome: Published | GoQueueError) -> dict[str, Any]:
    return {"offset": outcome.offset} if isinstance(outcome, Published) else {"error": outcome.code}


# The client's side


class Client:
    """``is_careless``: takes a request without an answer for one that was not carried out."""

    def __init__(self, *, is_careless: bool = False) -> None:
        self.is_careless = is_careless
        self.told: dict[str, int] = {}
        self.unanswered = 0
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def publish(self, value: str) -> None:
        for attempt in count():
            dedup_id = f"{value}-{attempt}" if self.is_careless else value
            answer = await self._ask({"value": value, "dedup_id": dedup_id})
            if answer is not None and "offset" in answer:
                self.told[value] = answer["offset"]
                return
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self, request: dict[str, str]) -> dict[str, Any] | None:
        """The answer; ``None`` if it is not known what became of the request."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                if self._connection is None:
                    self._connection = await asyncio.open_connection(BROKER, PORT)
                reader, writer = self._connection
                writer.write(json.dumps(request).encode() + b"\n")
                line = await reader.readline()
        except (OSError, TimeoutError):
            line = b""
        if line.endswith(b"\n"):
            return dict(json.loads(line))
        # An answer that comes late would be taken for that of the next request.
        self.disconnect()
        self.unanswered += 1
        return None

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection[1].transport.abort()
            self._connection = None


# What goes wrong


class RemoteWorld:
    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self._random = Random(seed)
        config = Config(storage=StorageConfig(path="/srv/goqueue", min_free_bytes=0))
        self.node = Node(BROKER, config, loop, Random(seed))
        self.client_process = Process(CLIENT)

    async def start(self) -> None:
        await self.node.start()
        await self.node.run(serve)

    async def disturb(self) -> None:
        network, random = self.loop.network, self._random
        while True:
            await asyncio.sleep(random.random() * 5)
            there_and_back = [(CLIENT, BROKER), (BROKER, CLIENT)]
            match random.choice(("one way", "one way", "both ways", "lose", "kill", "power")):
                case "one way":
                    await self._cut([random.choice(there_and_back)])
                case "both ways":
                    await self._cut(there_and_back)
                case "lose":
                    network.lose_connections(CLIENT, BROKER)
                case "kill":
                    self.node.kill()
                    await self.start()
                case "power":
                    self.node.cut_power()
                    await asyncio.sleep(random.random() * 5)
                    await self.start()

    async def _cut(self, ways: list[tuple[str, str]]) -> None:
        for way in ways:
            self.loop.network.cut(*way)
        await asyncio.sleep(self._random.random() * 5)
        for way in ways:
            self.loop.network.heal(*way)

    async def stored(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        async with asyncio.timeout(60):
            while page := await self._page(found[-1][1] + 1 if found else 0):
                found += page
        return found

    async def _page(self, offset: int) -> list[tuple[str, int]]:
        read = await self.node.run(lambda broker: broker.read(TOPIC, 0, Bounds(1 << 20), offset=offset))
        return [((message.value or b"").decode(), message.offset) for message in read.messages]
