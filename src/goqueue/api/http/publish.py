"""Publishing in JSON.

It is what a broker does most, and the framework's own work for a request, about 100 µs, is more than all the rest. So
``PublishPath`` answers this one path before the framework sees it. The framework has the same path as a route, by the
same ``publish_json``, for OpenAPI.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send
from litestar.utils.path import normalize_path
from msgspec.structs import replace

from goqueue.api.http.convert import to_new_message, to_result
from goqueue.api.http.errors import error_body, error_headers, unexpected
from goqueue.api.http.schemas import PublishMessage, PublishRequest, PublishResponse
from goqueue.broker.broker import Broker
from goqueue.broker.pacing import in_stretches
from goqueue.model.config import HttpConfig
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.message import NO_HEADERS, Headers
from goqueue.model.publishing import NewMessage, Outcome, Published
from goqueue.wire.trace_context import parse_traceparent
from goqueue.wire.trace_headers import in_trace, trace_headers

_SHORTEST_MESSAGE = len('{"value":""},')
_ENCODER = msgspec.json.Encoder()
_JSON = (b"content-type", b"application/json")
_TEMPLATE = "/topics/{topic_name}/messages"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response before it is bytes."""

    body: PublishResponse
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Publish = Callable[[str, PublishRequest, Headers], Awaitable[Answer]]
"""Takes the topic, the request, and the headers of the trace that the request belongs to."""


class Decoder:
    """Stops at the first message that is too many, instead of making all of them and counting then."""

    def __init__(self, max_messages: int) -> None:
        def count(message: PublishMessage) -> None:
            self._left -= 1
            if self._left < 0:
                raise InvalidRequest(f"the request has too many messages; http.max_publish_messages is {max_messages}")

        counted = msgspec.defstruct(
            "CountedMessage", [], bases=(PublishMessage,), namespace={"__post_init__": count}, gc=False
        )
        messages = Annotated[list[counted], msgspec.Meta(min_length=1)]  # type: ignore[valid-type]
        many = msgspec.defstruct("ManyMessages", [("messages", messages)], bases=(PublishRequest,))
        self._left = 0
        self._max_messages = max_messages
        self._few = msgspec.json.Decoder(PublishRequest)
        self._many: msgspec.json.Decoder[PublishRequest] = msgspec.json.Decoder(many)

    def decode(self, body: bytes) -> PublishRequest:
        self._left = self._max_messages
        fits = len(body) <= self._max_messages * _SHORTEST_MESSAGE
        try:
            return (self._few if fits else self._many).decode(body)
        except msgspec.MsgspecError as error:
            raise InvalidRequest(f"the body is not a publish request: {error}") from None
        except UnicodeDecodeError:
            raise InvalidRequest("the body is not UTF-8") from None


def publish_json(broker: Broker, config: HttpConfig) -> Publish:
    """What happens to a decoded request, whoever decoded it."""

    async def publish(topic_name: str, request: PublishRequest, trace: Headers) -> Answer:
        if len(request.messages) > config.max_publish_messages:
            raise InvalidRequest(
                f"the request has {len(request.messages)} messages; http.max_publish_messages allows "
                f"{config.max_publish_messages}"
            )
        broker.topic(topic_name)
        now_ns = broker.clock.now_ns()
        given: list[NewMessage | GoQueueError] = []
        async for part in in_stretches(request.messages):
            given += [_converted(message, now_ns, trace) for message in part]
        accepted = [each for each in given if isinstance(each, NewMessage)]
        stored = iter(await broker.publish(topic_name, accepted) if accepted else [])
        return _answer([each if isinstance(each, GoQueueError) else next(stored) for each in given])

    return publish


def _converted(message: PublishMessage, now_ns: int, trace: Headers) -> NewMessage | GoQueueError:
    try:
        return in_trace_of(to_new_message(message, now_ns), trace)
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


def _answer(outcomes: list[Outcome]) -> Answer:
    """200 if anything was stored, else the status of the first error: nobody takes a refusal for a success."""
    results = [to_result(outcome) for outcome in outcomes]
    if any(isinstance(outcome, Published) for outcome in outcomes):
        return Answer(PublishResponse(results))
    first = next(outcome for outcome in outcomes if isinstance(outcome, GoQueueError))
    body = PublishResponse(results, str(first), first.code, first.retriable)
    return Answer(body, first.http_status, error_headers(first))


class PublishPath:
    """``POST /topics/{name}/messages``, at the root and under ``/v1``; everything else goes on to ``rest``."""

    def __init__(self, publish: Publish, max_messages: int, rest: ASGIApp) -> None:
        self._publish = publish
        self._decode = Decoder(max_messages).decode
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = topic_in(scope["path"]) if scope.get("method") == "POST" else None
        if name is None:
            await self._rest(scope, receive, send)
            return
        # As the framework does when it has found a route.
        scope["path_template"] = _TEMPLATE
        try:
            body = await _whole_body(receive)
            if body is None:
                return
            answer = await self._publish(name, self._decode(body), trace_of(scope["headers"]))
            status, headers, content = answer.status, answer.headers, _ENCODER.encode(answer.body)
        except GoQueueError as error:
            status, headers, content = error.http_status, error_headers(error), error_body(error)
        except Exception as error:
            failed = unexpected(error, "POST", scope["path"], scope["headers"])
            status, headers, content = failed.http_status, error_headers(failed), error_body(failed)
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        raw += [_JSON, (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": content, "more_body": False})


def topic_in(path: str) -> str | None:
    """The topic's name if the path is the one that publishes."""
    if path.endswith("/") or "//" in path:
        path = normalize_path(path)
    if not path.endswith("/messages"):
        return None
    inner = path.removeprefix("/v1")
    name = inner[len("/topics/") : -len("/messages")]
    return name if inner.startswith("/topics/") and name and "/" not in name else None


async def _whole_body(receive: Receive) -> bytes | None:
    """All of it, or ``None`` if the client went away."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message["body"])
        if not message["more_body"]:
            return b"".join(parts)
