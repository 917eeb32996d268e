"""The group member behind ``goqueue queue poll``.

A member that leaves gives back at once what it has in flight, which would void the receipts just printed. So it stays
until its session times out, and the next poll from here with the same options reuses it, recognised by its
``instance_id``. Each join uses a new one, because a second join with the same would fence the first. Several processes
may poll as one member at the same time: it leaves only if the broker sees that it has nothing in flight.
"""

from __future__ import annotations

import getpass
import hashlib
import platform
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from goqueue.model.errors import GoQueueError, GroupNotFound, InvalidRequest, UnknownMember
from goqueue.model.units import format_duration_ms
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

MOST_VISIBLE_MS = 29 * 60_000
"""Bounded by the longest session, 30 minutes: what is in flight ends with its session."""
LEAST_VISIBLE_MS = 1_000
_SLACK_MS = 10_000
"""Added to the session timeout, so that the session outlasts what is in flight."""
_MOST_JOINS = 5
"""The most joins of one poll: other processes that leave as the same member force it to join again."""
_NAME_LENGTH = 100
_MARKS = r"-[0-9a-f]{8}-[0-9a-f]{8}"


class NoGroup(GroupNotFound):
    """The broker's error with a hint that the group can be created."""

    remedy = "Name its topics to make it: --topic NAME. 'goqueue group list' shows the groups that there are."


class IsStream(InvalidRequest):
    """The group is a stream, which has no receipts."""

    remedy = (
        "'goqueue consume' reads its topics, 'goqueue queue peek' shows what it has to do; "
        "poll from a group with mode 'queue'."
    )


class OtherTopic(InvalidRequest):
    """The group does not read this topic. Its subscriptions belong to its members, and polling once must not change
    them."""

    remedy = "Leave --topic out to get messages of all of its topics, or take a group of another name."


@dataclass(frozen=True, slots=True)
class Target:
    """What to poll, with the group's state at the start."""

    group: str
    topics: tuple[str, ...]
    is_new: bool
    own_visibility_ms: int
    """The visibility timeout of the group, else the longest of its topics'."""
    max_in_flight: int
    members: tuple[dict[str, Any], ...] = ()


def find_target(broker: BrokerHttp, group: str, topics: Sequence[str]) -> Target:
    """Raise if the group cannot be polled. Changes nothing."""
    try:
        found = broker.send("GET", ["groups", group])
    except GroupNotFound as error:
        if not topics:
            raise NoGroup(str(error)) from None
        visibility_ms = max(_fetch_visibility_ms(broker, topic) for topic in topics)
        return Target(group, tuple(dict.fromkeys(topics)), True, visibility_ms, 0)
    settings = found["settings"]
    if settings["mode"] == "stream":
        raise IsStream(
            f"group {escape(group)} is a stream: it commits offsets, and its messages have no receipts to settle"
        )
    has = list(dict.fromkeys(each["topic"] for each in found["lag"]))
    for topic in topics:
        if has and topic not in has:
            raise OtherTopic(f"group {escape(group)} does not read topic {escape(topic)}; it reads {', '.join(has)}")
    wanted = tuple(dict.fromkeys(topics or has))
    if not wanted:
        raise NoGroup(f"group {escape(group)} reads no topic yet")
    own_ms = settings["visibility_timeout_ms"]
    if own_ms is None:
        own_ms = max(_fetch_visibility_ms(broker, topic) for topic in wanted)
    return Target(group, wanted, False, own_ms, settings["max_in_flight"], tuple(found["members"]))


def _fetch_visibility_ms(broker: BrokerHttp, topic: str) -> int:
    return int(broker.send("GET", ["topics", topic])["settings"]["visibility_timeout_ms"])


def client_name() -> str:
    """The client id of this user on this machine. Long names are shortened with a hash, so that no two become the
    same."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "someone"
    name = f"cli-{user}@{platform.node() or 'localhost'}"
    if name.isprintable() and len(name) <= _NAME_LENGTH:
        return name
    mark = hashlib.blake2s(name.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    printable = "".join(letter if letter.isprintable() else "_" for letter in name)
    return f"{printable[: _NAME_LENGTH - len(mark) - 1]}~{mark}"


def is_own_member(member: dict[str, Any]) -> bool:
    """Whether a member was left in the group by a poll of this user on this machine."""
    return re.fullmatch(re.escape(client_name()) + _MARKS, member.get("instance_id", "")) is not None


class StayingMember:
    """A member that joins unless it is in the group already, and does not leave with messages in flight."""

    def __init__(self, broker: BrokerHttp, target: Target, visibility_ms: int) -> None:
        self._broker = broker
        self._target = target
        self._session_ms = max(visibility_ms, LEAST_VISIBLE_MS) + _SLACK_MS
        chosen = "\n".join([str(self._session_ms), *sorted(target.topics)])
        mark = hashlib.blake2s(chosen.encode(), digest_size=4).hexdigest()
        # Another session timeout or other topics require another join.
        self._name = f"{client_name()}-{mark}-"
        known = self._find_own(target.members)
        self.member_id = "" if known is None else str(known["member_id"])
        self.in_flight = 0 if known is None else int(known["in_flight"])
        """In flight before the first poll."""

    def _find_own(self, members: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        own = (each for each in members if is_own_member(each))
        return next((each for each in own if each["instance_id"].startswith(self._name)), None)

    def poll(self, most: int, wait_ms: int) -> list[dict[str, Any]]:
        """Messages that came within the time. Returns early and empty if the session was lost and had to be joined
        again."""
        for attempt in range(_MOST_JOINS + 1):
            if not self.member_id:
                name = self._name + secrets.token_hex(4)
                self.member_id = join(self._broker, self._target, self._session_ms, name)
            try:
                return poll(self._broker, self._target.group, self.member_id, most, wait_ms)
            except UnknownMember:
                # Its session ended, or another process polled as this member, got nothing and left.
                self.member_id, wait_ms = "", 0
                if attempt == _MOST_JOINS:
                    raise
        return []

    def leave_if_idle(self) -> None:
        """Leave if nothing is in flight for this member.

        The broker decides that atomically. Other processes that wait as the same member join again.
        """
        if self.member_id:
            leave(self._broker, self._target.group, self.member_id, if_idle=True)


def join(broker: BrokerHttp, target: Target, session_ms: int, instance_id: str = "") -> str:
    """Join, and return the member id. An existing group keeps its settings; a new one is of kind ``shared``."""
    body: dict[str, object] = {
        "client_id": client_name(),
        "topics": list(target.topics),
        "session_timeout": format_duration_ms(session_ms),
        "instance_id": instance_id,
    }
    if target.is_new:
        body["kind"] = "shared"
    return str(broker.send("POST", ["groups", target.group, "join"], body=body)["member_id"])


def poll(broker: BrokerHttp, group: str, member_id: str, most: int, wait_ms: int) -> list[dict[str, Any]]:
    parameters: dict[str, str | int] = {"member_id": member_id, "max_messages": most, "timeout": f"{wait_ms}ms"}
    found: list[dict[str, Any]] = broker.send("GET", ["groups", group, "poll"], parameters)["messages"]
    return found


def leave(broker: BrokerHttp, group: str, member_id: str, *, if_idle: bool = False) -> None:
    """Leave, ignoring errors: the session times out anyway."""
    body: dict[str, object] = {"member_id": member_id} | ({"if_idle": True} if if_idle else {})
    with suppress(GoQueueError):
        broker.send("POST", ["groups", group, "leave"], body=body)
