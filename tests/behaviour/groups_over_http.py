"""Groups over HTTP, in JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from behaviour.driver import Got, Refused
from behaviour.groups import (
    ALL,
    Assigned,
    GroupInfo,
    Groups,
    Handle,
    InGroup,
    Lag,
    Letter,
    Offsets,
    Place,
    Polled,
    Redriven,
    Verb,
    Wanted,
)
from behaviour.groups_in_process import altered_receipts
from goqueue.model.units import format_instant_ns

_PATHS = {"ack": "ack", "nack": "nack", "reject": "reject", "extend": "visibility"}
_COUNTED = {
    "acks_total": "acks",
    "nacks_total": "nacks",
    "rejects_total": "rejects",
    "dlq_messages": "dead_letters",
    "visibility_extensions": "extensions",
}


class GroupsOverHttp(Groups):
    """``call`` sends a request and answers with its body; ``got`` reads a message out of one."""

    def __init__(self, call: Callable[..., Any], got: Callable[[dict[str, Any]], Got]) -> None:
        self._call = call
        self._got = got

    def _group(self, method: str, group: str, path: str = "", **options: Any) -> Any:
        return self._call(method, f"/groups/{quote(group, safe='')}{path}", **options)

    def join(
        self,
        group: str,
        topics: Sequence[str],
        *,
        client_id: str = "worker",
        session_timeout_ms: int | None = None,
        instance_id: str = "",
        auto_commit: bool = False,
        **settings: Any,
    ) -> Assigned:
        body = {
            "client_id": client_id,
            "topics": list(topics),
            "instance_id": instance_id,
            "auto_commit": auto_commit,
            "settings": settings,
        }
        if session_timeout_ms is not None:
            body["session_timeout"] = f"{session_timeout_ms}ms"
        answer = self._group("POST", group, "/join", json=body)
        return _assigned(answer["member_id"], answer)

    def heartbeat(self, group: str, member_id: str, generation: int) -> Assigned:
        body = {"member_id": member_id, "generation": generation}
        return _assigned(member_id, self._group("POST", group, "/heartbeat", json=body))

    def leave(self, group: str, member_id: str) -> None:
        assert self._group("POST", group, "/leave", json={"member_id": member_id}) == {"left": True}

    def poll(self, group: str, member_id: str, max_messages: int = 100, wait_ms: int = 0) -> list[Polled]:
        query = {"member_id": member_id, "max_messages": max_messages, "timeout": f"{wait_ms}ms"}
        answer = self._group("GET", group, "/poll", params=query)
        return [
            Polled(
                **vars(self._got(each)),
                topic=each["topic"],
                deliveries=each.get("deliveries", 0),
                handle=each.get("receipt_handle"),
            )
            for each in answer["messages"]
        ]

    def settle(
        self, group: str, verb: Verb, handles: Sequence[Handle], delay_ms: int | None = None, reason: str = ""
    ) -> list[Refused | None]:
        body: dict[str, Any] = {"receipt_handles": list(handles)}
        if len(handles) == 1:
            body = {"receipt_handle": handles[0]}
        if delay_ms is not None:
            body["timeout" if verb == "extend" else "delay"] = f"{delay_ms}ms"
        if reason:
            body["reason"] = reason
        try:
            answer = self._call("POST", f"/messages/{_PATHS[verb]}", json=body)
        except Refused as error:
            if len(handles) == 1 and error.code in {"invalid_receipt", "stale_receipt"}:
                return [error]
            raise
        return [None if "ok" in each else _refused(each) for each in answer.get("results", [{"ok": True}])]

    def altered(self, handle: Handle) -> Mapping[str, Handle]:
        return altered_receipts(handle)

    def commit(self, group: str, member_id: str, offsets: Offsets, generation: int | None = None) -> None:
        by_topic = {topic: {str(number): offset for number, offset in each.items()} for topic, each in offsets.items()}
        body = {"member_id": member_id, "offsets": by_topic, "generation": generation}
        assert self._group("POST", group, "/offsets", json=body) == {"committed": True}

    def offsets(self, group: str, topic: str | None = None) -> dict[str, dict[int, int]]:
        query = {} if topic is None else {"topic": topic}
        found = self._group("GET", group, "/offsets", params=query)["offsets"]
        return {name: _numbered(each) for name, each in found.items()}

    def reset(
        self,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        offset: int | None = None,
        instant_ns: int | None = None,
        partitions: Sequence[int] | None = None,
    ) -> dict[int, int]:
        body = {"topic": topic, "to": to, "offset": offset, "partitions": partitions}
        if instant_ns is not None:
            body["instant"] = format_instant_ns(instant_ns)
        return _numbered(self._group("POST", group, "/reset", json=body)["offsets"][topic])

    def names(self) -> list[str]:
        return list(self._call("GET", "/groups")["groups"])

    def describe(self, group: str) -> GroupInfo:
        return _info(self._group("GET", group))

    def configure(self, group: str, **settings: Any) -> GroupInfo:
        return _info(self._group("PUT", group, json={"settings": settings}))

    def delete(self, group: str) -> None:
        assert self._group("DELETE", group) == {"deleted": True}

    def stats(self) -> dict[str, int]:
        return {_COUNTED.get(name, name): count for name, count in self._call("GET", "/reliability/stats").items()}

    def dead_letters(
        self, topic: str, wanted: Wanted = ALL, *, limit: int = 100, after: tuple[int, int] = (0, 0)
    ) -> list[Letter]:
        query = _fields(wanted) | {"limit": limit, "from_partition": after[0], "from_offset": after[1]}
        return [
            self._letter(each) for each in self._call("GET", f"/topics/{topic}/dead-letters", params=query)["messages"]
        ]

    def _letter(self, each: dict[str, Any]) -> Letter:
        got = self._got(each)
        return Letter(
            got.partition,
            got.offset,
            got.timestamp_ns,
            got.key,
            got.value,
            got.headers,
            *(each[name] for name in ("topic", "origin_partition", "origin_offset")),
            *(each[name] for name in ("group", "error", "deliveries", "redriven")),
        )

    def redrive(
        self,
        topic: str,
        wanted: Wanted = ALL,
        *,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        after: tuple[int, int] = (0, 0),
    ) -> Redriven:
        body = _fields(wanted) | {"dry_run": dry_run, "from_partition": after[0], "from_offset": after[1]}
        if wanted.messages is not None:
            body["messages"] = [{"partition": number, "offset": offset} for number, offset in wanted.messages]
        if limit is not None:
            body["limit"] = limit
        if rate is not None:
            body["rate"] = rate
        answer = self._call("POST", f"/topics/{topic}/redrive", json=body)
        place = answer.get("next")
        assert answer["more"] is (place is not None)
        following = None if place is None else (place["partition"], place["offset"])
        counts = {name: answer[name] for name in ("matched", "redriven", "already", "unreachable", "by_topic")}
        return Redriven(**counts, next=following)


def _refused(body: dict[str, Any]) -> Refused:
    return Refused(body["code"], body["error"], retriable=body["retriable"])


def _numbered(by_text: dict[str, int]) -> dict[int, int]:
    return {int(number): offset for number, offset in by_text.items()}


def _places(names: list[str]) -> list[Place]:
    split = (name.rpartition("-") for name in names)
    return [(topic, int(number)) for topic, _, number in split]


def _assigned(member_id: str, body: dict[str, Any]) -> Assigned:
    return Assigned(
        member_id, body["generation"], _places(body["assigned_partitions"]), _places(body["revoking_partitions"])
    )


def _info(body: dict[str, Any]) -> GroupInfo:
    lag = [Lag(**{name: value for name, value in each.items() if name != "held_back"}) for each in body["lag"]]
    assert body["total_lag"] == sum(each.lag for each in lag)
    members = [
        InGroup(
            each["member_id"],
            each["client_id"],
            each.get("instance_id", ""),
            each["topics"],
            _places(each["assigned_partitions"]),
            each["in_flight"],
        )
        for each in body["members"]
    ]
    is_rebalancing = body["state"] == "rebalancing"
    settings, overrides = body["settings"], body["overrides"]
    return GroupInfo(body["group_id"], is_rebalancing, body["generation"], members, settings, overrides, lag)


def _fields(wanted: Wanted) -> dict[str, Any]:
    given: dict[str, Any] = {
        "group": wanted.group,
        "error": wanted.error,
        "since": None if wanted.since_ns is None else format_instant_ns(wanted.since_ns),
        "until": None if wanted.until_ns is None else format_instant_ns(wanted.until_ns),
    }
    return {name: value for name, value in given.items() if value is not None}
