"""Dead letters: looking at them, and sending them back."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta
from msgspec.structs import replace

from goqueue.api.http.bodies.convert import PageOfMessages
from goqueue.api.http.bodies.durations import due
from goqueue.api.http.bodies.fields import TopicPath
from goqueue.api.http.bodies.queue_schemas import (
    MAX_OFFSET,
    DeadLetterMessage,
    DeadLettersResponse,
    LetterPlace,
    RedriveRequest,
    RedriveResponse,
)
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import get, post
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import DeadLetter, Filter
from goqueue.broker.operations.limits import MAX_REDRIVEN
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.message import Message
from goqueue.model.units import parse_instant_ns
from goqueue.wire.internal_headers import ORIGIN_TIMESTAMP, RESERVED_PREFIX

Page = PageOfMessages[DeadLetterMessage]

_MAX_TEXT = 1_000


class DeadLetterRoutes(BrokerRoutes):
    """Dead letters of topics."""

    tag = "Dead letters"

    @get("/topics/{topic_name}/dead-letters", errors=(404, 416), summary="Look at a topic's dead letters")
    async def browse(
        self,
        request: Request,
        topic_name: TopicPath,
        limit: Annotated[
            int, Meta(ge=1, description="The most dead letters to answer with; at most http.max_read_messages.")
        ] = 100,
        group: Annotated[str | None, Meta(description="Only those of this group.")] = None,
        error: Annotated[str | None, Meta(description="Only those whose error has this text in it.")] = None,
        since: Annotated[
            str | None, Meta(description="Only those that became one at this instant or later (RFC 3339).")
        ] = None,
        until: Annotated[
            str | None, Meta(description="Only those that became one before this instant (RFC 3339).")
        ] = None,
        from_partition: Annotated[
            int, Meta(ge=0, le=MAX_OFFSET, description="Where to begin: next of the answer before.")
        ] = 0,
        from_offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET, description="Where to begin in that partition.")] = 0,
    ) -> DeadLettersResponse:
        """With where each came from, which group could not use it, and why."""
        caller, config = request.caller, self._config
        if limit > config.max_read_messages:
            raise InvalidRequest(f"limit is {shown(limit)}; at most {config.max_read_messages} is allowed")
        dead_letter_topic = self._operations.dead_letters.topic_of(caller, topic_name)
        browsing = self._operations.dead_letters.browse(
            caller,
            topic_name,
            _filter(group, error, since, until),
            limit,
            (from_partition, from_offset),
            config.max_read_bytes,
        )
        # A search may take long. It ends when its client leaves.
        found = await request.waiting_read(browsing)
        page = Page(None, config.max_read_bytes)
        answer = DeadLettersResponse(dead_letter_topic, page.messages)
        max_message_bytes = self._operations.max_message_bytes(dead_letter_topic)
        for letter in found:
            if not page.add(_own(letter.message), max_message_bytes, _maker(letter)):
                answer.next = LetterPlace(letter.partition, letter.message.offset)
                return answer
        if found and (len(found) == limit or _size(found) >= config.max_read_bytes):
            answer.next = LetterPlace(found[-1].partition, found[-1].message.offset + 1)
        return answer

    @post("/topics/{topic_name}/redrive", errors=(404,), summary="Send dead letters back to where they came from")
    async def redrive(self, request: Request, topic_name: TopicPath, data: RedriveRequest) -> RedriveResponse:
        """They go to the end of their topic, for the group that could not use them; each is sent back once."""
        named = None if data.messages is None else frozenset((each.partition, each.offset) for each in data.messages)
        redriving = self._operations.dead_letters.redrive(
            request.caller,
            topic_name,
            _filter(data.group, data.error, data.since, data.until, named),
            MAX_REDRIVEN if data.limit is None else data.limit,
            data.rate,
            (data.from_partition, data.from_offset),
            dry_run=data.dry_run,
            delay_ms=due(data.delay, None, self._operations.clock.now_ns())[0],
        )
        report = await request.waiting_read(redriving)
        return RedriveResponse(
            report.matched,
            report.redriven,
            report.already,
            report.unreachable,
            report.by_topic,
            report.next is not None,
            UNSET if report.next is None else LetterPlace(*report.next),
        )


def _filter(
    group: str | None,
    error: str | None,
    since: str | None,
    until: str | None,
    messages: frozenset[tuple[int, int]] | None = None,
) -> Filter:
    for field, text in (("group", group), ("error", error)):
        if text is not None and not 1 <= len(text) <= _MAX_TEXT:
            raise InvalidRequest(f"{field} has {len(text)} characters; 1 to {_MAX_TEXT} are allowed")
    return Filter(
        group,
        error,
        None if since is None else parse_instant_ns(since),
        None if until is None else parse_instant_ns(until),
        messages,
    )


def _maker(letter: DeadLetter) -> partial[DeadLetterMessage]:
    told = dict(letter.message.headers)
    return partial(
        DeadLetterMessage,
        letter.partition,
        topic=letter.topic,
        origin_partition=letter.origin_partition,
        origin_offset=letter.origin_offset,
        origin_timestamp=told.get(ORIGIN_TIMESTAMP, b"").decode(errors="replace"),
        group=letter.group,
        error=letter.error,
        deliveries=letter.deliveries,
        redriven=letter.redriven,
    )


def _own(message: Message) -> Message:
    """Without the headers that have become fields of the answer."""
    own = tuple((name, value) for name, value in message.headers if not name.startswith(RESERVED_PREFIX))
    return replace(message, headers=own)


def _size(found: list[DeadLetter]) -> int:
    return sum(len(letter.message.value) for letter in found)
