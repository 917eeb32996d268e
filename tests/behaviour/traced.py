"""A broker over HTTP whose clock stands still until it is told to move, and the stories that it tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from behaviour.clock import ManualClock
from behaviour.host import Host, config_for
from behaviour.http_member import answered, settle
from behaviour.waiting import until
from goqueue.model.units import format_instant_ns, parse_instant_ns
from goqueue.wire.trace_context import derived_trace_id

SECOND_MS = 1_000

Event = tuple[float, str, dict[str, Any]]
"""Seconds since the beginning, what happened, and details."""


class Traced:
    def __init__(self, host: Host, clock: ManualClock) -> None:
        self.host = host
        self.clock = clock
        self.begun_ns = clock.now_ns()
        self._connect()

    def _connect(self) -> None:
        self.client = httpx.Client(base_url=self.host.url, timeout=30, trust_env=False)

    def restart(self) -> None:
        self.client.close()
        self.host.stop()
        self.host.start()
        self._connect()

    def close(self) -> None:
        self.client.close()
        self.host.stop()

    def topic(self, name: str, partitions: int = 1, **settings: Any) -> None:
        body = {"name": name, "num_partitions": partitions, "settings": settings}
        answer = self.client.post("/topics", json=body)
        assert answer.status_code == 201, answer.text

    def publish(self, topic: str, *values: str, **fields: Any) -> list[dict[str, Any]]:
        messages = [{"value": value, **fields} for value in values]
        return list(answered(self.client.post(f"/topics/{topic}/messages", json={"messages": messages}))["results"])

    def settle(self, verb: str, receipts: str | list[str], **fields: Any) -> None:
        answered(settle(self.client, verb, receipts, **fields))

    def let_pass(self, milliseconds: int) -> None:
        """So much later, with everything done that was due meanwhile."""
        self.clock.advance_ms(milliseconds)
        self.host.thread.run(self._ring())

    async def _ring(self) -> None:
        broker = self.host.broker
        broker.clockwork.ring()
        firing = broker.delays._firing
        while firing._task is not None:
            await firing._task
        for partition in [partition for topic in broker.running_topics() for partition in topic.partitions]:
            await partition.acknowledge(partition.log.end_offset)

    def now(self) -> str:
        return format_instant_ns(self.clock.now_ns())

    def after(self, seconds: float) -> str:
        """The instant so long after the beginning."""
        return format_instant_ns(self.begun_ns + int(seconds * 1_000) * 1_000_000)

    def trace(self, trace_id: str) -> dict[str, Any]:
        return dict(answered(self.client.get(f"/traces/{trace_id}")))

    def at(self, topic: str, offset: int, partition: int = 0) -> dict[str, Any]:
        """The story of the message at a place, as its computed trace id leads to it."""
        return self.trace(derived_trace_id(topic, partition, offset))

    def search(self, **query: Any) -> dict[str, Any]:
        return dict(answered(self.client.get("/traces/search", params=query)))

    def found(self, **query: Any) -> list[tuple[str, int]]:
        """Topic and offset of what a search finds."""
        return [(each["topic"], each["offset"]) for each in self.search(**query)["traces"]]

    def stats(self) -> dict[str, Any]:
        return dict(answered(self.client.get("/traces/stats")))

    def timeline(self, trace: dict[str, Any]) -> list[Event]:
        """With instants in seconds since the beginning."""
        return [
            (self._seconds(each["timestamp"]), each["event_type"], self._in_seconds(each["attributes"]))
            for each in trace["events"]
        ]

    def _in_seconds(self, details: dict[str, Any]) -> dict[str, Any]:
        return {name: self._seconds(value) if name == "until" else value for name, value in details.items()}

    def _seconds(self, instant: str) -> float:
        return (parse_instant_ns(instant) - self.begun_ns) / 1_000_000_000

    def until_dead(self, count: int) -> None:
        until(lambda: self.host.broker.groups.settling.tally.dead_letters == count)

    def until_written(self) -> None:
        """Everything that was noted is in files."""
        tracer, files = self.host.broker.tracing.tracer, self.host.broker.tracing.files
        assert files is not None
        until(lambda: not tracer.pending and not tracer._taken.events)


@contextmanager
def traced(path: Path, **config: Any) -> Iterator[Traced]:
    clock = ManualClock()
    it = Traced(Host(config_for(path, **config), http=True, clock=clock), clock)
    try:
        yield it
    finally:
        it.close()


def kinds(trace: dict[str, Any]) -> list[str]:
    return [each["event_type"] for each in trace["events"]]


def states(trace: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["group"], each["state"]) for each in trace["groups"]]
