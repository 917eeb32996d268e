"""The broker reached over a real socket, in JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import httpx

from behaviour.delays_over_http import DelaysOverHttp
from behaviour.driver import Described, Driver, Got, Page, Purged, Refused, Result, Stored
from behaviour.groups_over_http import GroupsOverHttp
from goqueue.model.message import PRIORITY_LABELS
from goqueue.model.publishing import NewMessage
from goqueue.model.units import format_instant_ns, parse_instant_ns

_TIMEOUT_S = 60.0


class HttpDriver(Driver):
    over_http = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.client = self._connect()
        self.groups = GroupsOverHttp(self._call, _got)
        self.delays = DelaysOverHttp(self._call, _got)

    def _connect(self) -> httpx.Client:
        limits = httpx.Limits(max_keepalive_connections=4)
        return httpx.Client(base_url=self.host.url, timeout=_TIMEOUT_S, trust_env=False, limits=limits)

    def restart(self, away_ms: int = 0) -> None:
        self.client.close()
        super().restart(away_ms)
        self.client = self._connect()

    def close(self) -> None:
        self.client.close()
        super().close()

    def _call(self, method: str, path: str, **options: Any) -> Any:
        response = self.client.request(method, path, **options)
        body = response.json()
        if response.status_code >= 400:
            raise Refused(body["code"], body["error"], retriable=body["retriable"])
        return body

    def create_topic(self, name: str, **settings: Any) -> int:
        body = self._call("POST", "/topics", json={"name": name, "settings": settings})
        assert body["created"] is True
        assert body["name"] == name
        return int(body["partitions"])

    def list_topics(self) -> list[str]:
        return list(self._call("GET", "/topics")["topics"])

    def describe(self, name: str) -> Described:
        body = self._call("GET", f"/topics/{name}")
        bounds = {int(number): (each["earliest"], each["latest"]) for number, each in body["partition_offsets"].items()}
        return Described(body["id"], body["partitions"], body["total_messages"], bounds, body["settings"])

    def change_topic(self, name: str, **settings: Any) -> None:
        self._call("PATCH", f"/topics/{name}", json={"settings": settings})

    def unset(self, name: str, *settings: str) -> None:
        self._call("PATCH", f"/topics/{name}", json={"unset": list(settings)})

    def purge(self, name: str, partition: int | None = None, before_ns: int | None = None) -> list[Purged]:
        body = {"partition": partition, "before": None if before_ns is None else format_instant_ns(before_ns)}
        answer = self._call("POST", f"/admin/topics/{name}/purge", json=body)
        found = [
            Purged(
                each["partition"],
                each["earliest_before"],
                each["earliest"],
                each["removed_messages"],
                each["delayed_messages"],
            )
            for each in answer["partitions"]
        ]
        assert answer["removed_messages"] == sum(each.removed for each in found)
        assert answer["delayed_messages"] == sum(each.delayed for each in found)
        return found

    def delete_topic(self, name: str) -> None:
        assert self._call("DELETE", f"/topics/{name}") == {"deleted": True, "name": name}

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[Result]:
        body = {"messages": [_to_json(message) for message in messages]}
        response = self.client.post(f"/topics/{topic}/messages", json=body)
        answer = response.json()
        if "results" not in answer:
            raise Refused(answer["code"], answer["error"], retriable=answer["retriable"])
        return [_result(each) for each in answer["results"]]

    def read(
        self,
        topic: str,
        partition: int = 0,
        *,
        offset: int | None = None,
        from_time_ns: int | None = None,
        limit: int = 100,
        max_bytes: int | None = None,
        wait_ms: int = 0,
    ) -> Page:
        query = {
            "offset": offset,
            "from_time": None if from_time_ns is None else format_instant_ns(from_time_ns),
            "limit": limit,
            "max_bytes": max_bytes,
            "wait": f"{wait_ms}ms" if wait_ms else None,
        }
        body = self._call(
            "GET",
            f"/topics/{topic}/partitions/{partition}/messages",
            params={name: value for name, value in query.items() if value is not None},
        )
        return Page([_got(each) for each in body["messages"]], body["next_offset"], body["high_watermark"])


def _to_json(message: NewMessage) -> dict[str, Any]:
    """In base64, so that any bytes go through; a field that is not set is left out."""
    given: dict[str, Any] = {"value": _packed(message.value), "encoding": "base64"}
    if message.key is not None:
        given["key"] = _packed(message.key)
    if message.headers:
        headers: dict[str, list[str]] = {}
        for name, value in message.headers:
            headers.setdefault(name, []).append(b64encode(value).decode())
        given["headers"] = headers
    if message.partition is not None:
        given["partition"] = message.partition
    if message.priority != 2:
        known = 0 <= message.priority < len(PRIORITY_LABELS)
        given["priority"] = PRIORITY_LABELS[message.priority] if known else message.priority
    if message.timestamp_ns is not None:
        given["timestamp"] = format_instant_ns(message.timestamp_ns)
    if message.ttl_ms is not None:
        given["ttl"] = f"{message.ttl_ms}ms"
    if message.delay_ms is not None:
        given["delay"] = f"{message.delay_ms}ms"
    if message.deliver_at_ns is not None:
        given["deliverAt"] = format_instant_ns(message.deliver_at_ns)
    return given


def _packed(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _result(each: dict[str, Any]) -> Result:
    if "error" in each:
        return Refused(each["code"], each["error"], retriable=each["retriable"])
    assert each["delayed"] is ("deliverAt" in each)
    due_ns = parse_instant_ns(each["deliverAt"]) if each["delayed"] else None
    return Stored(each["partition"], each["offset"], each["priority"], due_ns)


def _got(each: dict[str, Any]) -> Got:
    def raw(text: str) -> bytes:
        return b64decode(text, validate=True) if each["encoding"] == "base64" else text.encode()

    headers = tuple(
        (name, raw(value))
        for name, values in each.get("headers", {}).items()
        for value in ([values] if isinstance(values, str) else values)
    )
    return Got(
        each["partition"],
        each["offset"],
        parse_instant_ns(each["timestamp"]),
        raw(each["key"]) if "key" in each else None,
        None if each["value"] is None else raw(each["value"]),
        headers,
        each["priority"],
    )
