"""The bodies of requests and responses about messages that were polled, and about dead letters."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.schemas import ConsumeMessage, Request
from goqueue.broker.dead_letter_topics import MAX_REASON_LENGTH

MAX_RECEIPTS = 10_000
MAX_NAMED_LETTERS = 10_000
MAX_OFFSET = (1 << 63) - 1
Reason = Annotated[str, Meta(max_length=MAX_REASON_LENGTH)] | None


class SettleRequest(Request, kw_only=True):
    """One ``receipt_handle``, or many ``receipt_handles``."""

    receipt_handle: str | None = None
    receipt_handles: Annotated[list[str], Meta(min_length=1, max_length=MAX_RECEIPTS)] | None = None


class AckRequest(SettleRequest, kw_only=True):
    """Done. ``consumer_id`` is kept for older clients; the receipt says it all."""

    consumer_id: str | None = None


class NackRequest(SettleRequest, kw_only=True):
    """To be tried again, after ``delay`` or the topic's backoff; a ``reason`` is for the dead letters."""

    delay: str | None = None
    reason: Reason = None


class RejectRequest(SettleRequest, kw_only=True):
    """To the dead letters at once."""

    reason: Reason = None


class ExtendVisibilityRequest(SettleRequest, kw_only=True):
    """Hidden from others for ``timeout`` from now."""

    timeout: str


class SettleResult(Struct, omit_defaults=True):
    """What became of one receipt: ``ok``, or an error."""

    ok: bool | UnsetType = UNSET
    dlq_topic: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    retriable: bool | UnsetType = UNSET


class AckResponse(Struct, omit_defaults=True):
    """With ``receipt_handles``: ``results``, one for each in order; ``acknowledged`` if all of them were."""

    acknowledged: bool
    results: list[SettleResult] | UnsetType = UNSET


class NackResponse(Struct, omit_defaults=True):
    """As for ack."""

    requeued: bool
    results: list[SettleResult] | UnsetType = UNSET


class RejectResponse(Struct, omit_defaults=True):
    """As for ack. ``dlq_topic``: where it goes; a dead letter that is rejected stays where it lies."""

    rejected: bool
    dlq_topic: str | UnsetType = UNSET
    results: list[SettleResult] | UnsetType = UNSET


class ExtendVisibilityResponse(Struct, omit_defaults=True):
    """As for ack. Until ``new_deadline`` nobody else gets the message."""

    extended: bool
    new_deadline: str
    results: list[SettleResult] | UnsetType = UNSET


class ReliabilityStats(Struct):
    """Messages, counted since the broker started."""

    acks_total: int
    nacks_total: int
    rejects_total: int
    dlq_messages: int
    visibility_extensions: int
    redeliveries: int
    visibility_timeouts: int
    redriven: int
    expired: int


class DeadLetterMessage(ConsumeMessage, kw_only=True):
    """A dead letter: ``partition``, ``offset`` and ``timestamp`` tell where and since when it is one.

    The rest tells where it came from, which group could not use it, after how many deliveries, and why.
    """

    topic: str
    origin_partition: int
    origin_offset: int
    origin_timestamp: str
    group: str
    error: str
    deliveries: int
    redriven: bool


class LetterPlace(Struct):
    """Where a dead letter lies in its dead-letter topic."""

    partition: int
    offset: int


class DeadLettersResponse(Struct, omit_defaults=True):
    """Dead letters by partition and offset. If there may be more, go on at ``next``."""

    dlq_topic: str
    messages: list[DeadLetterMessage]
    next: LetterPlace | UnsetType = UNSET


class NamedLetter(Request):
    """A dead letter by its place in the dead-letter topic."""

    partition: int
    offset: int


class RedriveRequest(Request):
    """Which dead letters go back; those that nothing excludes. ``rate`` in messages/s; a ``dry_run`` moves nothing.

    With a ``delay`` they wait in their topics, as delayed messages do.
    """

    group: str | None = None
    error: str | None = None
    since: str | None = None
    until: str | None = None
    messages: Annotated[list[NamedLetter], Meta(min_length=1, max_length=MAX_NAMED_LETTERS)] | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    rate: Annotated[float, Meta(gt=0)] | None = None
    delay: str | None = None
    dry_run: bool = False
    from_partition: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] = 0
    from_offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] = 0


class RedriveResponse(Struct):
    """``already``: were redriven before. ``more``: there are more that fit; call again from ``next``.

    ``unreachable``: fit as well, but the topic or the group that they came from is gone.
    """

    matched: int
    redriven: int
    already: int
    unreachable: int
    by_topic: dict[str, int]
    more: bool
    next: LetterPlace | UnsetType = UNSET
