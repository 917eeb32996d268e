"""How many calls go from one file to another in the broker while it serves one request.

The broker and its servers run on this process's main thread, the client in another thread, so that a profile function
of the main thread sees the broker and nothing of the client. A hop is a call whose caller and callee lie in different
files of ``goqueue``. A coroutine that is resumed counts once. Calls that the event loop makes (a callback, the first
step of a task) have no caller in ``goqueue`` and count as no hop. What the tasks of ``_BY_THE_CLOCK`` do is left out:
they repeat at an interval whether there is a request or not, and measure the event loop's delay, look after connections
and the broker's health, sync by interval, clean up, and write traces. What a request gives them to do, such as an event
to be written, counts where it is noted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

import goqueue
from bench.figure import Measured
from bench.harness import scratch_folder
from goqueue.api.grpc.server import GrpcServer
from goqueue.api.server import HttpServer, bind
from goqueue.broker.broker import Broker
from goqueue.broker.tracing.trace_export import TraceExport
from goqueue.broker.upkeep.upkeep import Upkeep
from goqueue.client.sync import Client
from goqueue.client.sync_producer import Producer, Transaction
from goqueue.model.config import Config
from goqueue.observe.process import LoopDelay

_SOURCE = str(Path(goqueue.__file__).parent) + "/"
_RUNS = 7
_QUIET_S = 0.3
"""What the request before has left to be done must not count for this one."""
_BATCH = 100
_DELAY_S = 0.03
_FIRES_WITHIN_S = 0.2
_LOG, _QUEUE, _DELAYED, _COMMITTED = "walk-log", "walk-queue", "walk-delayed", "walk-committed"
_BY_THE_CLOCK = {
    each.__code__
    for each in (GrpcServer._examine, HttpServer._sweep, LoopDelay._measure, TraceExport._run, Upkeep._repeat)
}


class Walk:
    """A profile function that counts hops, and remembers which files and functions were entered."""

    def __init__(self) -> None:
        self.hops = 0
        self.functions: dict[tuple[str, str], None] = {}
        self._entered: dict[int, FrameType] = {}
        """Frames are kept, so that none is taken for another that lies at the same address."""

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(_SOURCE) or id(frame) in self._entered:
            return
        self._entered[id(frame)] = frame
        if _is_by_the_clock(frame):
            return
        self.functions[file.removeprefix(_SOURCE), frame.f_code.co_qualname] = None
        caller = frame.f_back
        if caller is not None and caller.f_code.co_filename != file and _is_ours(caller):
            self.hops += 1

    @property
    def files(self) -> list[str]:
        """In the order in which they were entered."""
        return list(dict.fromkeys(file for file, _ in self.functions))


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_SOURCE)


def _is_by_the_clock(frame: FrameType) -> bool:
    above: FrameType | None = frame
    while above is not None and above.f_code not in _BY_THE_CLOCK:
        above = above.f_back
    return above is not None


@dataclass(slots=True)
class _Requests:
    """What a client asks for. Each method is called in a thread of its own, one at a time."""

    http_port: int
    grpc_port: int
    client: Client = field(init=False)
    _producer: Producer = field(init=False)
    _committing: Producer = field(init=False)
    _transaction: Transaction = field(init=False)
    _member: str = ""
    _receipt: str = ""
    _fired: int = 0
    """Where the latest delayed message became visible."""

    def prepare(self) -> None:
        self.client = Client(f"127.0.0.1:{self.grpc_port}")
        for topic in (_LOG, _QUEUE, _DELAYED, _COMMITTED):
            self.client.create_topic(topic, partitions=1)
        self._producer = self.client.producer()
        self._committing = self.client.producer(transactional_id="walks")
        self._producer.send_many(_QUEUE, [b"work"] * _BATCH)
        joined = self._ask("POST", "/groups/walks/join", {"client_id": "walks", "topics": [_QUEUE]})
        self._member = joined["member_id"]

    def close(self) -> None:
        self._producer.close()
        self._committing.close()
        self.client.close()

    def publish(self) -> None:
        """A batch over gRPC."""
        self._producer.send_many(_LOG, [b"message"] * _BATCH)

    def poll(self) -> None:
        """One message of a queue, over HTTP."""
        (message,) = self._ask("GET", f"/groups/walks/poll?member_id={self._member}&max_messages=1")["messages"]
        self._receipt = message["receipt_handle"]

    def ack(self) -> None:
        """That message, over HTTP."""
        self._ask("POST", "/messages/ack", {"receipt_handle": self._receipt})

    def delay(self) -> None:
        """A delayed message over gRPC, and long enough for it to become visible."""
        self._fired = self._producer.send(_DELAYED, b"later", delay=_DELAY_S).result().offset + 1
        time.sleep(_DELAY_S + _FIRES_WITHIN_S)

    def check_fired(self) -> None:
        if not any(record.offset == self._fired for record in self.client.read(_DELAYED, 0, start=self._fired)):
            raise RuntimeError(f"a delayed message was not visible {_FIRES_WITHIN_S} s after it was due")

    def begin(self) -> None:
        self._transaction = self._committing.begin()
        self._transaction.send(_COMMITTED, b"all or nothing").result()

    def commit(self) -> None:
        """That transaction, over gRPC."""
        self._transaction.commit()

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {text.decode()}")
            return json.loads(text)
        finally:
            connection.close()


def measure() -> Mapping[str, Measured]:
    with scratch_folder() as folder:
        return uvloop.run(_measure(folder))


async def _measure(folder: Path) -> Mapping[str, Measured]:
    config = Config()
    config = dataclasses.replace(
        config,
        storage=dataclasses.replace(config.storage, path=str(folder)),
        http=dataclasses.replace(config.http, port=0),
        grpc=dataclasses.replace(config.grpc, port=0),
    )
    broker = Broker(config)
    grpc = GrpcServer(broker.operations, config.grpc)
    with closing(bind(config.http)) as listener:
        grpc.bind()
        async with broker:
            http = HttpServer(broker, config.http, on_stop=grpc.leave, grpc_port=grpc.port)
            await grpc.start()
            serving = asyncio.create_task(http.serve(sockets=[listener]))
            requests = _Requests(listener.getsockname()[1], grpc.port)
            try:
                await asyncio.to_thread(requests.prepare)
                return await _walks(requests)
            finally:
                await asyncio.to_thread(requests.close)
                http.should_exit = True
                await serving
                await grpc.stop(1.0)


async def _walks(requests: _Requests) -> Mapping[str, Measured]:
    walks: dict[str, list[Walk]] = {}
    for _ in range(_RUNS):
        for name in ("publish", "poll", "ack", "delay", "commit"):
            if name == "commit":
                await asyncio.to_thread(requests.begin)
            walks.setdefault(f"walk_{name}_hops", []).append(await _walked(getattr(requests, name)))
            if name == "delay":
                await asyncio.to_thread(requests.check_fired)
    return {name: _measured(of_name) for name, of_name in walks.items()}


async def _walked(request: Callable[[], None]) -> Walk:
    await asyncio.sleep(_QUIET_S)
    walk = Walk()
    sys.setprofile(walk)
    try:
        await asyncio.to_thread(request)
    finally:
        sys.setprofile(None)
    return walk


def _measured(walks: list[Walk]) -> Measured:
    """A walk may meet what happens now and then, as a file's first use; the details are those of the shortest."""
    shortest = min(walks, key=lambda walk: walk.hops)
    files = shortest.files
    return Measured(
        [walk.hops for walk in walks],
        {"files": len(files), "functions": len(shortest.functions), "in_order": files},
    )
