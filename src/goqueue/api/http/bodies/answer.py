"""An answer to a request, before it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.json import Encoder

JSON = "application/json"
_ENCODER = Encoder()


class Answer(Struct):
    """What a route returns when its status, headers or media type depend on the request."""

    content: bytes | AsyncIterator[bytes]
    status: int = 200
    media_type: str = JSON
    headers: dict[str, str] = {}


def json_answer(body: Struct, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(_ENCODER.encode(body), status, JSON, headers or {})
