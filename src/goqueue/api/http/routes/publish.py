"""Publishing in JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, cast

import msgspec
from msgspec.structs import replace

from goqueue.api.http.bodies.answer import Answer, json_answer
from goqueue.api.http.bodies.convert import to_new_message, to_result
from goqueue.api.http.bodies.errors import error_headers
from goqueue.api.http.bodies.fields import HeaderValues, TopicPath
from goqueue.api.http.bodies.message_schemas import PublishMessage, PublishRequest, PublishResponse, PublishResult
from goqueue.api.http.routing.declaration import Controller, Documented, post
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import Operations, TimeSlice
from goqueue.model.config import HttpConfig
from goqueue.model.errors import GoQueueError, InvalidRequest, MessageTooLarge
from goqueue.model.message import NO_HEADERS, Headers
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage, Outcome
from goqueue.wire.frame import MAX_HEADERS_BYTES
from goqueue.wire.trace_context import in_trace, parse_traceparent, trace_headers

_SMALL_BODY_BYTES = 256 << 10
"""So much is read within a few milliseconds, whatever it is."""
MAX_REQUEST_HEADERS = 200_000
"""Of all messages together: ten times what bodies of such a size have."""
_LONGEST_HEADERS = 512 << 10
"""Of one message in JSON, where a byte takes up to six characters."""
_HEADERS: msgspec.json.Decoder[dict[str, HeaderValues] | None] = msgspec.json.Decoder(dict[str, HeaderValues] | None)
MAX_ESCAPES = 4 << 20
"""Backslashes in a body: they take several times as long to read as plain text."""
_NULL = b"null"
_SHORTEST_MESSAGE = len('{"value":""},')


class PublishRoutes(Controller):
    """Publishing messages in JSON."""

    tag = "Messages"

    def __init__(self, operations: Operations, config: HttpConfig) -> None:
        self._operations = operations
        self._max_messages = config.max_publish_messages
        self._decode = Decoder(config.max_publish_messages).decode

    @post(
        "/topics/{topic_name}/messages",
        errors=(404, 429, 507),
        body=PublishRequest,
        answer=Documented(kind=PublishResponse),
        ignores_query=True,
        summary="Publish one message or many",
    )
    async def publish(self, request: Request, topic_name: TopicPath) -> Answer:
        """Answers when they are as durable as the topic promises. One that is refused does not hold up the others."""
        body = await request.body()
        if len(body) > _SMALL_BODY_BYTES:
            # Putting it together took a while already.
            await asyncio.sleep(0)
        messages = (await self._decode(body)).messages
        if len(messages) > self._max_messages:
            raise InvalidRequest(
                f"the request has {len(messages)} messages; http.max_publish_messages allows {self._max_messages}"
            )
        now_ns, trace = self._operations.clock.now_ns(), trace_of(request.raw_headers)
        given: list[NewMessage | GoQueueError] = []
        stretch = TimeSlice()
        for message in messages:
            given.append(_converted(message, now_ns, trace))
            if stretch.is_over:
                await stretch.rest()
        accepted = [each for each in given if isinstance(each, NewMessage)]
        stored = iter(await self._operations.publishing.publish(request.caller, topic_name, accepted))
        return await _answer([each if isinstance(each, GoQueueError) else next(stored) for each in given])


class Decoder:
    """Bounds what a body may hold while it is read, instead of making all of it and counting then.

    Reading a body cannot be interrupted. Of a large one headers are left as they are, since nothing else in it can have
    many parts; they are read message by message, and only if they are not too long.
    """

    def __init__(self, max_messages: int) -> None:
        def count(message: PublishMessage) -> None:
            self._left -= 1
            if self._left < 0:
                raise InvalidRequest(f"the request has too many messages; http.max_publish_messages is {max_messages}")

        counted = msgspec.defstruct(
            "CountedMessage",
            [("headers", msgspec.Raw, msgspec.Raw(_NULL))],
            bases=(PublishMessage,),
            namespace={"__post_init__": count},
            gc=False,
        )
        messages = Annotated[list[counted], msgspec.Meta(min_length=1)]  # type: ignore[valid-type]
        many = msgspec.defstruct("ManyMessages", [("messages", messages)], bases=(PublishRequest,))
        self._left = 0
        self._max_messages = max_messages
        self._small = msgspec.json.Decoder(PublishRequest)
        self._large: msgspec.json.Decoder[PublishRequest] = msgspec.json.Decoder(many)

    async def decode(self, body: bytes) -> PublishRequest:
        fits = len(body) <= self._max_messages * _SHORTEST_MESSAGE
        if fits and len(body) <= _SMALL_BODY_BYTES:
            with _unreadable():
                return self._small.decode(body)
        if (escapes := body.count(b"\\")) > MAX_ESCAPES:
            raise InvalidRequest(
                f"the body has {escapes} backslashes; at most {MAX_ESCAPES} are read in a request. Send values that "
                "have so many as base64 (encoding), or in several requests"
            )
        self._left = self._max_messages
        with _unreadable():
            request = self._large.decode(body)
        headers, stretch = 0, TimeSlice()
        for place, message in enumerate(request.messages):
            if stretch.is_over:
                await stretch.rest()
            message.headers = _headers(place, cast("msgspec.Raw", message.headers))
            if message.headers:
                headers += sum(1 if isinstance(each, str) else len(each) for each in message.headers.values())
            if headers > MAX_REQUEST_HEADERS:
                raise InvalidRequest(
                    f"the request has more than {MAX_REQUEST_HEADERS} headers in all; send fewer messages at once"
                )
        return request


@contextmanager
def _unreadable(where: str = "$") -> Iterator[None]:
    """``where``: what is read, as a path into the body."""
    try:
        yield
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"the body is not a publish request: {str(error).replace('`$', f'`{where}')}") from None
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not UTF-8") from None


def _headers(place: int, written: msgspec.Raw) -> dict[str, HeaderValues] | None:
    size = len(memoryview(written))
    if size == len(_NULL) and bytes(written) == _NULL:
        return None
    where = f"$.messages[{place}].headers"
    if size > _LONGEST_HEADERS:
        raise MessageTooLarge(
            f"{where} has {size} bytes of JSON; at most {_LONGEST_HEADERS} are read, since a message has room for "
            f"{MAX_HEADERS_BYTES} bytes of headers"
        )
    with _unreadable(where):
        return _HEADERS.decode(written)


def _converted(message: PublishMessage, now_ns: int, trace: Headers) -> NewMessage | GoQueueError:
    try:
        made = to_new_message(message, now_ns)
        return in_trace_of(made, trace) if trace else made
    except GoQueueError as error:
        return error


def in_trace_of(message: NewMessage, trace: Headers) -> NewMessage:
    """The message as a part of its request's trace, unless it has one of its own."""
    return replace(message, headers=in_trace(message.headers, trace)) if trace else message


def trace_of(request_headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The trace that a request says it belongs to, as headers for its messages. Nothing if it says so twice."""
    named = [value for name, value in request_headers if name == b"traceparent"]
    parent = parse_traceparent(named[0]) if len(named) == 1 else None
    if parent is None:
        return NO_HEADERS
    return trace_headers(parent, b",".join(value for name, value in request_headers if name == b"tracestate"))


async def _answer(outcomes: list[Outcome]) -> Answer:
    """200 if anything was stored, else the status of the first error: nobody takes a refusal for a success."""
    results: list[PublishResult] = []
    stretch = TimeSlice()
    for outcome in outcomes:
        results.append(to_result(outcome))
        if stretch.is_over:
            await stretch.rest()
    if any(isinstance(outcome, Published) for outcome in outcomes):
        return json_answer(PublishResponse(results))
    first = next(outcome for outcome in outcomes if isinstance(outcome, GoQueueError))
    body = PublishResponse(results, str(first), first.code, first.retriable)
    return json_answer(body, first.http_status, error_headers(first))
