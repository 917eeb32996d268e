"""Delayed messages over HTTP, in JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from behaviour.delays import DelayCounts, Delays, LaneOfGroup, LanesOfPartition, Waiting, WaitingPage
from behaviour.driver import Got
from goqueue.model.units import format_instant_ns, parse_instant_ns


class DelaysOverHttp(Delays):
    """``call`` sends a request and answers with its body; ``got`` reads a message out of one."""

    def __init__(self, call: Callable[..., Any], got: Callable[[dict[str, Any]], Got]) -> None:
        self._call = call
        self._got = got

    def page(self, topic: str, limit: int = 100, after: str | None = None) -> WaitingPage:
        query = {"limit": limit} | ({} if after is None else {"after": after})
        body = self._call("GET", f"/topics/{topic}/delayed", params=query)
        assert body["count"] == len(body["messages"])
        assert not any("value" in each for each in body["messages"])
        return WaitingPage([self._waiting(each) for each in body["messages"]], body.get("next"), body["total"])

    def get(self, topic: str, partition: int, offset: int) -> Waiting:
        return self._waiting(self._call("GET", f"/topics/{topic}/delayed/{offset}", params={"partition": partition}))

    def cancel(self, topic: str, partition: int, offset: int) -> None:
        assert self._call("DELETE", f"/topics/{topic}/delayed/{partition}/{offset}") == {"cancelled": True}

    def reschedule(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        delay_ms: int | None = None,
        deliver_at_ns: int | None = None,
    ) -> int:
        body: dict[str, str] = {}
        if delay_ms is not None:
            body["delay"] = f"{delay_ms}ms"
        if deliver_at_ns is not None:
            body["deliverAt"] = format_instant_ns(deliver_at_ns)
        answer = self._call("PATCH", f"/topics/{topic}/delayed/{partition}/{offset}", json=body)
        return parse_instant_ns(answer["deliver_at"])

    def counts(self) -> DelayCounts:
        body = self._call("GET", "/delay/stats")
        counted = (body[f"{name}_count"] for name in ("pending", "delivered", "cancelled", "rescheduled", "lost"))
        return DelayCounts(*counted, _instant(body.get("next_due")))

    def lanes(self, topic: str) -> list[LanesOfPartition]:
        body = self._call("GET", "/priority/stats", params={"topic": topic})
        return [
            LanesOfPartition(
                each["topic"],
                each["partition"],
                {lane: counts["messages"] for lane, counts in each["lanes"].items()},
                {lane: counts["published"] for lane, counts in each["lanes"].items()},
                {
                    group["group"]: {
                        lane: LaneOfGroup(
                            counts["ready"],
                            counts["in_flight"],
                            counts["delivered"],
                            _instant(counts.get("last_served")),
                        )
                        for lane, counts in group["lanes"].items()
                    }
                    for group in each["groups"]
                },
            )
            for each in body["partitions"]
        ]

    def _waiting(self, each: dict[str, Any]) -> Waiting:
        got = self._got({"value": None} | each)
        return Waiting(
            got.partition,
            got.offset,
            parse_instant_ns(each["deliver_at"]),
            got.timestamp_ns,
            got.key,
            got.value,
            got.headers,
            got.priority,
        )


def _instant(text: str | None) -> int | None:
    return None if text is None else parse_instant_ns(text)
