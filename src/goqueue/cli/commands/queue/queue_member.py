"""The member of a group that ``goqueue queue poll`` is.

One that leaves gives back at once what it has in flight, so that receipts would be worth nothing when they are printed.
It stays until its session is over, and whoever polls again from here in the same way is the same member. It is known by
its ``instance_id``. No two join under the same one: whoever comes second would void what the first has. Several may
poll as one member at the same time: it leaves only while the broker sees that none of them has anything.
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
"""A session lasts 30 minutes at the most, and what is in flight ends with it."""
LEAST_VISIBLE_MS = 1_000
_SLACK_MS = 10_000
"""A session is to be over behind what is in flight, not before it."""
_MOST_JOINS = 5
"""Of one poll: others who leave as the same member make it join again."""
_NAME_LENGTH = 100
_MARKS = r"-[0-9a-f]{8}-[0-9a-f]{8}"


class NoGroup(GroupNotFound):
    """As the broker's; it could be made."""

    remedy = "Name its topics to make it: --topic NAME. 'goqueue group list' shows the groups that there are."


class IsStream(InvalidRequest):
    """A stream has no receipts."""

    remedy = (
        "'goqueue consume' reads its topics, 'goqueue queue peek' shows what it has to do; "
        "poll from a group with mode 'queue'."
    )


class OtherTopic(InvalidRequest):
    """What a group reads is its members' affair, not that of someone who looks by."""

    remedy = "Leave --topic out to get messages of all of its topics, or take a group of another name."


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be polled, as the group is now."""

    group: str
    topics: tuple[str, ...]
    is_new: bool
    own_visibility_ms: int
    """As the group and its topics are set; the longest of them."""
    max_in_flight: int
    members: tuple[dict[str, Any], ...] = ()


def find_target(broker: BrokerHttp, group: str, topics: Sequence[str]) -> Target:
    """Raise if the group cannot be polled; nothing is changed by this."""
    try:
        found = broker.send("GET", ["groups", group])
    except GroupNotFound as error:
        if not topics:
            raise NoGroup(str(error)) from None
        visibility_ms = max(_visibility_ms(broker, topic) for topic in topics)
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
        own_ms = max(_visibility_ms(broker, topic) for topic in wanted)
    return Target(group, wanted, False, own_ms, settings["max_in_flight"], tuple(found["members"]))


def _visibility_ms(broker: BrokerHttp, topic: str) -> int:
    return int(broker.send("GET", ["topics", topic])["settings"]["visibility_timeout_ms"])


def client_name() -> str:
    """Who sits here, as members are named. No two have the same name, however long theirs are."""
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


def is_from_here(member: dict[str, Any]) -> bool:
    """Whether it is one that polls from here have left in the group."""
    return re.fullmatch(re.escape(client_name()) + _MARKS, member.get("instance_id", "")) is not None


class StayingMember:
    """Joins unless it is there already, and stays."""

    def __init__(self, broker: BrokerHttp, target: Target, visibility_ms: int) -> None:
        self._broker = broker
        self._target = target
        self._session_ms = max(visibility_ms, LEAST_VISIBLE_MS) + _SLACK_MS
        chosen = "\n".join([str(self._session_ms), *sorted(target.topics)])
        mark = hashlib.blake2s(chosen.encode(), digest_size=4).hexdigest()
        # Another session timeout, or other topics, would need another join.
        self._name = f"{client_name()}-{mark}-"
        known = self._among(target.members)
        self.member_id = "" if known is None else str(known["member_id"])
        self.in_flight = 0 if known is None else int(known["in_flight"])
        """Before the first poll."""

    def _among(self, members: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        own = (each for each in members if is_from_here(each))
        return next((each for each in own if each["instance_id"].startswith(self._name)), None)

    def poll(self, most: int, wait_ms: int) -> list[dict[str, Any]]:
        """What came within the time; earlier with nothing if the member was lost meanwhile and another is there."""
        for attempt in range(_MOST_JOINS + 1):
            if not self.member_id:
                name = self._name + secrets.token_hex(4)
                self.member_id = join(self._broker, self._target, self._session_ms, name)
            try:
                return poll(self._broker, self._target.group, self.member_id, most, wait_ms)
            except UnknownMember:
                # Its session ended, or another who polled as this member got nothing and left.
                self.member_id, wait_ms = "", 0
                if attempt == _MOST_JOINS:
                    raise
        return []

    def leave_if_idle(self) -> None:
        """Who got nothing has no reason to stay, unless others have got something as the same member.

        The broker decides it at one moment. Others who wait as the same member join anew.
        """
        if self.member_id:
            leave(self._broker, self._target.group, self.member_id, if_idle=True)


def join(broker: BrokerHttp, target: Target, session_ms: int, instance_id: str = "") -> str:
    """The member's id. A group that is there stays as it is; one that is made is shared."""
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
    """Whatever comes of it: its session ends anyway."""
    body: dict[str, object] = {"member_id": member_id} | ({"if_idle": True} if if_idle else {})
    with suppress(GoQueueError):
        broker.send("POST", ["groups", group, "leave"], body=body)
