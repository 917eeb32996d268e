"""``python -m bench.peers.child``: one piece of work in a process of its own. Prints one line of JSON.

A fresh process for each piece leaves nothing of the one before: no garbage, no warm connection, no grown heap.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import time
from typing import cast

from bench.peers.system import cpu_s
from bench.peers.work import Amounts, Durability, Pacer, PeerClient, Supply, Work, values

_WARM_UP_MESSAGES = 2_000
_WARM_UP_SINGLE_S = 0.2
_WARM_UP_PACED = 200


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.child")
    parser.add_argument("client", help="a module of bench.peers.clients")
    parser.add_argument("address")
    parser.add_argument("durability", type=Durability)
    parser.add_argument("work", type=Work)
    parser.add_argument("topic")
    parser.add_argument("size", type=int)
    parser.add_argument("--backlog", type=int, default=0, help="how many messages lie in the topic")
    parser.add_argument("--amounts", default="{}", help="JSON of what differs from the default amounts")
    parser.add_argument("--server", type=int, required=True, help="the server's process, whose time is taken")
    options = parser.parse_args()
    module = importlib.import_module(f"bench.peers.clients.{options.client}")
    client = cast(PeerClient, module.connect(options.address, options.durability))
    try:
        amounts = Amounts(**json.loads(options.amounts))
        errand = _Errand(client, options.server, options.topic, options.size, amounts)
        found = errand.do(options.work, options.backlog)
    finally:
        client.close()
    # Unbuffered, a line that is longer than the pipe could be cut.
    with open(sys.stdout.fileno(), "w", closefd=False) as out:
        out.write(json.dumps(found) + "\n")
    return 0


class _Errand:
    def __init__(self, client: PeerClient, server: int, topic: str, size: int, amounts: Amounts) -> None:
        self._client = client
        self._server = server
        self._topic = topic
        self._size = size
        self._amounts = amounts

    def do(self, work: Work, backlog: int) -> dict[str, object]:
        match work:
            case Work.PUBLISH:
                return self._publish()
            case Work.SINGLE:
                return self._single()
            case Work.BACKLOG:
                return self._backlog(backlog)
            case Work.QUEUE:
                return self._queue()
            case Work.LATENCY:
                return self._paced(round(self._amounts.paced_rate * self._amounts.paced_s))
            case Work.DELAY:
                return self._paced(self._amounts.delayed_messages, self._amounts.delay_ms)

    def _publish(self) -> dict[str, object]:
        batches = values(self._size)
        self._client.create(f"{self._topic}-warm")
        self._client.publish(f"{self._topic}-warm", iter(Supply(batches, messages=_WARM_UP_MESSAGES)))
        self._client.create(self._topic)
        supply = Supply(batches, seconds=self._amounts.publish_s)
        with _Timed(self._server) as timed:
            self._client.publish(self._topic, iter(supply))
        return timed.report(supply.given)

    def _single(self) -> dict[str, object]:
        value = values(self._size)[0][0]
        self._client.create(self._topic)
        self._client.singles(self._topic, value, _WARM_UP_SINGLE_S)
        with _Timed(self._server) as timed:
            waits = self._client.singles(self._topic, value, self._amounts.single_s)
        return {**timed.report(len(waits)), "waits_ms": waits}

    def _backlog(self, backlog: int) -> dict[str, object]:
        # A little of the same, so that connections stand and code is warm.
        self._checked(self._client.consume(f"{self._topic}-warm", _WARM_UP_MESSAGES), _WARM_UP_MESSAGES)
        with _Timed(self._server) as timed:
            read = self._client.consume(self._topic, backlog)
        self._checked(read, backlog)
        return timed.report(backlog)

    def _queue(self) -> dict[str, object]:
        batches = values(self._size)
        self._round_trip(f"{self._topic}-warm", batches, _WARM_UP_MESSAGES)
        self._client.create(self._topic)
        with _Timed(self._server) as timed:
            given = self._round_trip(self._topic, batches, self._amounts.queue_messages, create=False)
        return timed.report(given)

    def _round_trip(self, topic: str, batches: list[list[bytes]], messages: int, *, create: bool = True) -> int:
        if create:
            self._client.create(topic)
        supply = Supply(batches, messages=messages)
        self._client.publish(topic, iter(supply))
        self._checked(self._client.take(topic, supply.given), supply.given)
        return supply.given

    def _paced(self, count: int, delay_ms: int = 0) -> dict[str, object]:
        rate = self._amounts.paced_rate
        self._client.create(f"{self._topic}-warm")
        self._client.paced(f"{self._topic}-warm", Pacer(_WARM_UP_PACED, rate, self._size))
        self._client.create(self._topic)
        pacer = Pacer(count, rate, self._size, delay_ms=delay_ms)
        with _Timed(self._server) as timed:
            self._client.paced(self._topic, pacer)
        return {**timed.report(count), "waits_ms": pacer.waits_ms}

    def _checked(self, read_bytes: int, messages: int) -> None:
        if read_bytes != messages * self._size:
            raise RuntimeError(f"read {read_bytes:,} bytes, {messages:,} messages of {self._size} were there")


class _Timed:
    """Wall clock and processor time of both sides, with what was loaded before out of the collector's sight."""

    def __init__(self, server: int) -> None:
        self._server = server

    def __enter__(self) -> _Timed:
        gc.collect()
        gc.freeze()
        self._server_s = cpu_s(self._server)
        self._began, self._own_s = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._took, self._own_s = time.perf_counter() - self._began, time.process_time() - self._own_s
        self._server_s = cpu_s(self._server) - self._server_s

    def report(self, messages: int) -> dict[str, object]:
        return {
            "messages": messages,
            "seconds": self._took,
            "client_cpu_s": self._own_s,
            "server_cpu_s": self._server_s,
        }


if __name__ == "__main__":
    sys.exit(main())
