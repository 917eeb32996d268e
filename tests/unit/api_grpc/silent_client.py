"""A client that makes calls and takes none of their answers: its HTTP/2 windows are closed from the beginning."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Any, Self

from doubles.patience import PATIENCE_S
from google.protobuf.message import Message

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE = 4


class SilentClient:
    """One connection. Statuses without an answer come through: they are headers, which no window holds back."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._next_stream = 1
        no_window = struct.pack(">HI", _INITIAL_WINDOW_SIZE, 0)
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, no_window))

    def call(self, method: str, request: Message) -> None:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        body = request.SerializeToString()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]
        self._socket.sendall(
            _frame(_HEADERS, _END_HEADERS, stream, b"".join(_literal(*each) for each in headers))
            + _frame(_DATA, _END_STREAM, stream, struct.pack(">BI", 0, len(body)) + body)
        )

    def wait_until_closed(self) -> None:
        self._socket.settimeout(PATIENCE_S)
        with suppress(ConnectionError):
            while self._socket.recv(1 << 16):
                pass

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header as HPACK has it without its tables and without Huffman codes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
