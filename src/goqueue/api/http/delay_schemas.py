"""The bodies of requests and responses about delayed messages."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from goqueue.api.http.schemas import DelayField, DeliverAtField, Encoding, HeaderValues, Request


class DelayedMessage(Struct, omit_defaults=True, kw_only=True):
    """A message that waits, at the offset that its publish answered; when it is due it gets another one.

    ``size_bytes`` is the size of its value as it is stored. The value itself is shown where one message is asked for.
    Of one that cannot be read only the place and the time are told.
    """

    topic: str
    partition: int
    offset: int
    deliver_at: str
    timestamp: str | UnsetType = UNSET
    priority: str | UnsetType = UNSET
    size_bytes: int | UnsetType = UNSET
    encoding: Encoding | UnsetType = UNSET
    key: str | UnsetType = UNSET
    headers: dict[str, HeaderValues] | UnsetType = UNSET
    value: str | UnsetType | None = UNSET
    compressed: bool = False


class DelayedMessagesResponse(Struct, omit_defaults=True):
    """What waits, the next due first. ``total``: in the whole topic. If there is more, go on with ``after=next``."""

    messages: list[DelayedMessage]
    count: int
    total: int
    next: str | UnsetType = UNSET


class RescheduleRequest(Request):
    """One of the two; a delay counts from now. Zero or a time that has passed: at once."""

    delay: DelayField | None = None
    deliverAt: DeliverAtField | None = None  # noqa: N815


class CancelDelayedResponse(Struct):
    """Nobody will ever see the message, not even after a crash."""

    cancelled: bool


class DelayStats(Struct, omit_defaults=True):
    """``pending_count``: how many wait now; the others are counted since the broker started.

    ``avg_delay``: how long those that were delivered had waited. ``lost_count``: were damaged on the disk when due.
    """

    pending_count: int
    delivered_count: int
    cancelled_count: int
    rescheduled_count: int
    lost_count: int
    avg_delay: str
    next_due: str | UnsetType = UNSET
