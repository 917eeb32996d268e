"""What happens to requests for the schema registry before the framework sees them.

Looking a schema up by its id is what its clients do most, and is answered right here: the framework's own work for a
request is more than all the rest. The framework has the same path as a route, for OpenAPI and for what is rarely asked.

Subjects may have any characters, such as the ``/`` in the name of a file that another one imports.

A path under ``/contexts/{context}`` is the same path with the context in front of the subject.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from goqueue.api.http.bodies.encoded_path import decode_parameters, decoded_parts, encoded, has_encoded_slash
from goqueue.api.http.bodies.errors import error_body, error_media_type, unexpected
from goqueue.api.http.bodies.registry_media import OFFERED, accepted
from goqueue.api.http.bodies.registry_schemas import REGISTRY_JSON, SchemaBody, described
from goqueue.api.http.caller import AnyRequest, caller_in
from goqueue.broker.operations import SchemaOperations
from goqueue.model.errors import GoQueueError, NotAcceptable

_IDS = "/schemas/ids/"
_TEMPLATE = "/schemas/ids/{schema_id}"
_ROOTS = {"subjects", "compatibility", "config", "mode", "contexts", "schemas", "metadata"}
_ENCODER = msgspec.json.Encoder()


class RegistryPath:
    """``GET /schemas/ids/{id}``; everything else goes on to ``rest``, its path as a route expects it."""

    def __init__(self, schemas: SchemaOperations, rest: ASGIApp) -> None:
        self._schemas = schemas
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_registry(scope["path"]):
            await self._rest(scope, receive, send)
            return
        told = accepted(scope["headers"])
        if told is None:
            await _refuse(scope, send)
            return
        schema_id = _schema_id(scope)
        if schema_id is not None:
            await self._answer(schema_id, told, scope, send)
            return
        _rewrite(scope)
        await self._rest(scope, receive, send if told == REGISTRY_JSON else _retold(send, told))

    async def _answer(self, schema_id: int, told: str, scope: Scope, send: Send) -> None:
        # As the framework does when it has found a route.
        scope["path_template"] = _TEMPLATE
        status, kind = 200, told
        try:
            record = await self._schemas.get(caller_in(scope), schema_id)
            content = _ENCODER.encode(SchemaBody(**described(record), guid=record.guid))
        except Exception as error:
            if isinstance(error, GoQueueError):
                failed = error
            else:
                failed = unexpected(error, "GET", scope["path"], scope["headers"])
            status, content = failed.http_status, error_body(failed)
            kind = error_media_type(scope["headers"], to_registry=True)
        await _send_whole(send, status, kind, content)


async def _refuse(scope: Scope, send: Send) -> None:
    error = NotAcceptable(f"HTTP 406 Not Acceptable: the answer is {', '.join(OFFERED)}; accept one of these")
    kind = error_media_type(scope["headers"], to_registry=True)
    await _send_whole(send, error.http_status, kind, error_body(error, to_registry=True))


async def _send_whole(send: Send, status: int, kind: str, content: bytes) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def _is_registry(path: str) -> bool:
    root = path.removeprefix("/v1").removeprefix("/")
    return root.partition("/")[0] in _ROOTS


def _schema_id(scope: Scope) -> int | None:
    """The id that is looked up, if that is all that is asked."""
    path = scope["path"].removeprefix("/v1")
    text = path[len(_IDS) :]
    if scope.get("method") != "GET" or not path.startswith(_IDS) or len(text) > 10:
        return None
    query = scope["query_string"]
    if not (text.isascii() and text.isdigit()) or b"format" in query or b"fetchMaxId" in query:
        return None
    return int(text)


# Paths


def _rewrite(scope: Scope) -> None:
    if not has_encoded_slash(scope) and b"/contexts/" not in scope["raw_path"]:
        return
    parts = decoded_parts(scope)
    if "contexts" in parts:
        _leave_context(scope, parts)
    scope["path"] = encoded(parts)


def _leave_context(scope: Scope, parts: list[str]) -> None:
    """Put the context before the subject; where none is named, the context stands for it, or for a prefix of all."""
    at = parts.index("contexts")
    if len(parts) < at + 3 or parts[at + 2] not in _ROOTS:
        return
    context, rest = parts[at + 1], parts[at + 2 :]
    prefix = "" if context in ("", ".") else f":{context if context.startswith('.') else f'.{context}'}:"
    place = 2 if rest[0] == "compatibility" else 1
    if rest[0] == "schemas":
        pass
    elif len(rest) > place:
        if not rest[place].startswith(":."):
            rest[place] = prefix + rest[place]
    elif rest[0] == "subjects":
        scope["query_string"] += b"&subjectPrefix=" + quote(prefix).encode()
    elif prefix:
        rest.append(prefix)
    parts[at:] = rest


async def decoded(request: AnyRequest) -> None:
    """Runs before every route of the registry."""
    decode_parameters(request)


# Content types


def _retold(send: Send, told: str) -> Callable[[Any], Awaitable[None]]:
    async def send_on(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                (name, told.encode() if value == REGISTRY_JSON.encode() else value)
                for name, value in message["headers"]
            ]
        await send(message)

    return send_on
