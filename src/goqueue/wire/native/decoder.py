"""Decoder of the native protocol: says where the next bytes are to be received, and finds the messages in them.

It does no input or output, so asyncio, blocking sockets and the simulator use the same one. A large message is received
into a buffer of its own, which it keeps: nothing of it is copied.
"""

from __future__ import annotations

from goqueue.model.errors import WrongPort
from goqueue.wire.native.message import HEADER, HEADER_SIZE, PREFACE, Message, check_header

_CHUNK_BYTES = 64 << 10
_LARGE_BYTES = 16 << 10
"""From here on a message is received into a buffer of its own; smaller ones are copied out of the common one."""


class Decoder:
    """Of one direction of one connection. Not to be used again once it has raised for bytes that are no message."""

    __slots__ = ("_body", "_chunk", "_end", "_expected", "_filled", "_header", "_max_bytes", "_start")

    def __init__(self, max_message_bytes: int) -> None:
        self._max_bytes = max_message_bytes
        self._expected = PREFACE
        """What is left of the preface."""
        self._chunk = bytearray(_CHUNK_BYTES)
        self._start = self._end = 0
        """The part of the chunk that was received and not looked at."""
        self._header: tuple[int, int, int, int, int, int] | None = None
        """Of the large message that is being received."""
        self._body = memoryview(b"")
        self._filled = 0

    @property
    def is_between_messages(self) -> bool:
        """Whether the end of the connection would cut nothing off."""
        return self._header is None and self._start == self._end and not self._expected

    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._header is not None:
            return self._body[self._filled :]
        return memoryview(self._chunk)[self._end :]

    def received(self, count: int) -> list[Message]:
        """So many bytes were put into ``buffer``: the messages that are whole by that."""
        if self._header is not None:
            self._filled += count
            if self._filled < len(self._body):
                return []
            _, operation, flags, _, correlation, head_size = self._header
            body, self._header, self._body = self._body, None, memoryview(b"")
            return [Message(operation, flags, correlation, body[:head_size], body[head_size:])]
        self._end += count
        return self._take_from_chunk()

    def feed(self, data: bytes | memoryview) -> list[Message]:
        """The same for bytes that were received elsewhere."""
        found: list[Message] = []
        rest = memoryview(data)
        while len(rest):
            room = self.buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            found += self.received(count)
            rest = rest[count:]
        return found

    def _take_from_chunk(self) -> list[Message]:
        found: list[Message] = []
        chunk, start, end = self._chunk, self._start, self._end
        if self._expected:
            start = self._take_preface(start, end)
        while end - start >= HEADER_SIZE:
            header = HEADER.unpack_from(chunk, start)
            size, operation, flags, version, correlation, head_size = header
            check_header(size, version, head_size, self._max_bytes)
            if end - start >= HEADER_SIZE + size:
                body_at = start + HEADER_SIZE
                start = body_at + size
                body = memoryview(bytes(memoryview(chunk)[body_at:start]))
                found.append(Message(operation, flags, correlation, body[:head_size], body[head_size:]))
            elif size >= _LARGE_BYTES:
                self._header = header
                self._body = memoryview(bytearray(size))
                self._filled = end - start - HEADER_SIZE
                self._body[: self._filled] = memoryview(chunk)[start + HEADER_SIZE : end]
                start = end
                break
            else:
                break
        if start == end:
            start = end = 0
        elif end > _CHUNK_BYTES - _LARGE_BYTES - HEADER_SIZE:
            chunk[: end - start] = chunk[start:end]
            start, end = 0, end - start
        self._start, self._end = start, end
        return found

    def _take_preface(self, start: int, end: int) -> int:
        count = min(len(self._expected), end - start)
        if self._chunk[start : start + count] != self._expected[:count]:
            raise WrongPort(_whose(PREFACE[: -len(self._expected)] + bytes(self._chunk[start:end])))
        self._expected = self._expected[count:]
        return start + count


def _whose(data: bytes) -> str:
    """What speaks on the other side, by its first bytes."""
    if data.startswith((b"HTTP/", b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ")):
        spoken = "HTTP"
    elif data.startswith((b"PRI * HTTP/2", b"\0\0")):
        spoken = "gRPC (HTTP/2)"
    elif data.startswith((b"\x16\x03", b"\x15\x03")):
        spoken = "TLS"
    else:
        spoken = f"something else, which begins with {data[:16]!r}"
    return f"the native protocol of GoQueue is expected, which begins with {PREFACE!r}; the other side speaks {spoken}"
