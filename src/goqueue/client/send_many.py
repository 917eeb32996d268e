"""One call of ``send_many``, and what it tells of each of its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from time import time_ns
from typing import TYPE_CHECKING, Any, NoReturn

from goqueue.client.accumulator import MAX_FRAMES_BYTES
from goqueue.client.outgoing import Encoder, Outgoing, Sent, traced
from goqueue.client.parcels import Stored
from goqueue.model.errors import GoQueueError, InvalidMessage, NotAllStored
from goqueue.model.message import Headers, Priority
from goqueue.wire.frame import encode_frame, encode_headers
from goqueue.wire.trace_context import traceparent_in

if TYPE_CHECKING:
    from goqueue.client.outbox import Outbox

_PARCEL_BYTES = 256 << 10
_NORMAL = int(Priority.NORMAL)


class _Share:
    """What one partition gets of a ``send_many``, or a part of it."""

    __slots__ = ("dedup_ids", "frames", "number", "places", "size")

    def __init__(self, number: int, dedup_ids: set[str] | None) -> None:
        self.number = number
        self.dedup_ids = dedup_ids
        """``None`` if its messages have none: those that have one travel apart."""
        self.frames: list[bytes] = []
        self.places: list[int] = []
        self.size = 0

    def takes(self, dedup_id: str | None) -> bool:
        """Whether a message with this one, or without any, can go with the others."""
        if self.dedup_ids is None or dedup_id is None:
            return self.dedup_ids is None and dedup_id is None
        return dedup_id not in self.dedup_ids


class SendMany:
    """One ``send_many``: messages are gathered by partition and leave while the rest is being encoded."""

    def __init__(self, outbox: Outbox, encoder: Encoder, topic: str, partitions: int, trace: Headers) -> None:
        self._outbox = outbox
        self._encoder = encoder
        self._topic = topic
        self._partitions = partitions
        self._shares: dict[int, _Share] = {}
        self._sent: list[tuple[_Share, asyncio.Future[Stored]]] = []
        self._lanes: list[int] = []
        self._trace = trace
        self._named_traces: dict[int, str] = {}
        """By place, of those that carry one."""
        self._keyless: int | None = None
        self._failures: dict[int, Exception] = {}
        """By place, of those that were not handed over."""
        self._refusal: GoQueueError | None = None
        """Why nothing more is handed over."""

    async def take_in(self, messages: Iterable[Any]) -> None:
        encoder = self._encoder
        plain, flags, leave_room = encoder.is_plain, self._outbox.flags, self._outbox.is_numbered
        trace_headers = encode_headers(self._trace)
        parent = traceparent_in(self._trace)
        trace = None if parent is None else parent.trace_id
        for place, given in enumerate(_as_far_as_it_goes(messages)):
            if self._refusal is not None:
                self._failures[place] = self._refusal
                self._lanes.append(_NORMAL)
                continue
            try:
                if plain and type(given) is bytes and len(given) < _PARCEL_BYTES:
                    frame = encode_frame(b"", given, trace_headers, time_ns(), _NORMAL, flags)
                    lane, number, named, dedup_id = _NORMAL, self._next_keyless(), trace, None
                elif type(given) is _Broken:
                    raise given.error
                else:
                    message = given if isinstance(given, Outgoing) else Outgoing(given)
                    message, named = traced(encoder.keyed(message), self._trace)
                    frame, lane = encoder.encode(message, flags, leave_room=leave_room)
                    number, dedup_id = self._route(message), message.dedup_id
            except Exception as error:
                # Also what a serializer raises: it says what is wrong with this message, and the others are sent.
                self._failures[place] = error
                self._lanes.append(_NORMAL)
                continue
            self._lanes.append(lane)
            if named is not None:
                self._named_traces[place] = named
            share = self._shares.get(number)
            if share is not None and (
                share.size + len(frame) > MAX_FRAMES_BYTES
                or ((dedup_id is not None or share.dedup_ids is not None) and not share.takes(dedup_id))
            ):
                await self._send(self._shares.pop(number))
                share = None
            if share is None:
                share = self._shares[number] = _Share(number, None if dedup_id is None else set())
            if dedup_id is not None and share.dedup_ids is not None:
                share.dedup_ids.add(dedup_id)
            share.frames.append(frame)
            share.places.append(place)
            share.size += len(frame)
            if share.size >= _PARCEL_BYTES:
                await self._send(self._shares.pop(number))
                # Let batches leave while the rest is being encoded.
                await asyncio.sleep(0)
        for number in list(self._shares):
            await self._send(self._shares.pop(number))

    def _route(self, message: Outgoing) -> int:
        if message.partition is None and not message.key:
            return self._next_keyless()
        return self._outbox.route(self._topic, message, self._partitions)

    def _next_keyless(self) -> int:
        """Messages without a key stay together until their share leaves."""
        if self._keyless is None:
            self._keyless = self._outbox.next_keyless(self._topic, self._partitions)
        return self._keyless

    async def _send(self, share: _Share) -> None:
        if share.number == self._keyless:
            self._keyless = None
        if self._refusal is not None:
            self._failures.update(dict.fromkeys(share.places, self._refusal))
            return
        try:
            dedup_ids = None if share.dedup_ids is None else frozenset(share.dedup_ids)
            done = await self._outbox.enqueue(self._topic, share.number, share.frames, share.size, dedup_ids)
        except GoQueueError as error:
            # There is no room, or the producer was closed: what comes behind would wait for nothing.
            self._refusal = error
            self._failures.update(dict.fromkeys(share.places, error))
        else:
            self._sent.append((share, done))

    async def results(self) -> list[Sent]:
        """When everything that was handed over is settled. Who loses patience does not take the messages with him."""
        if self._sent:
            await asyncio.wait([done for _, done in self._sent])
        settled = [done.exception() or done.result() for _, done in self._sent]
        found: list[Any] = [None] * len(self._lanes)
        failures: dict[int, BaseException] = dict(self._failures)
        topic, trace_at = self._topic, self._named_traces.get
        for (share, _), stored in zip(self._sent, settled, strict=True):
            if isinstance(stored, BaseException):
                failures.update(dict.fromkeys(share.places, stored))
            elif stored.dues is None and not stored.duplicates:
                for offset, place in zip(stored.offsets, share.places, strict=True):
                    found[place] = Sent(share.number, offset, self._lanes[place], None, False, topic, trace_at(place))
            else:
                for at, place in enumerate(share.places):
                    partition, offset = stored.place_of(at, share.number)
                    lane, due, is_known = self._lanes[place], stored.due(at), at in stored.duplicates
                    found[place] = Sent(partition, offset, lane, due, is_known, topic, trace_at(place))
            if not isinstance(stored, BaseException):
                failures.update((share.places[at], error) for at, error in stored.failures.items())
        if failures:
            for place, error in failures.items():
                found[place] = error
            _raise(found, failures)
        return found


class _Broken:
    """Instead of a message that could not be had."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _as_far_as_it_goes(messages: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from messages
    except Exception as error:
        yield _Broken(error)


def _raise(outcomes: list[Any], failures: dict[int, BaseException]) -> NoReturn:
    """One reason for everything is raised as it is; else who called is told what became of each message."""
    first = min(failures)
    if len(failures) == len(outcomes) and len(set(map(_reason, outcomes))) == 1:
        raise outcomes[first]
    raise NotAllStored(
        f"{len(failures)} of {len(outcomes)} messages are not stored; the first of them, at place {first}: "
        f"{outcomes[first]}",
        outcomes,
    ) from outcomes[first]


def _reason(error: BaseException) -> object:
    """The same for what is one reason. What is wrong with a message is said of each."""
    return (type(error), str(error)) if isinstance(error, InvalidMessage) else type(error)
