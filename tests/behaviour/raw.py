"""HTTP by hand, for requests that no client library would send."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RawConnection:
    """A socket that sends bytes as they are and reads answers as they come."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._buffer = b""

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def finish_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def answer(self, *, bodyless: bool = False) -> Answer:
        """The next answer, without the body if it is sent in chunks; ``bodyless`` for one to HEAD."""
        while b"\r\n\r\n" not in self._buffer:
            self._read()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(status_line.split(" ")[1])
        length = 0 if bodyless or status in {100, 204} else int(headers.get("content-length", 0))
        while len(self._buffer) < length:
            self._read()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Answer(status, headers, body)

    def closed_by_peer(self) -> bool:
        """Waits until the other side closes; False if it sends something more first."""
        if self._buffer:
            return False
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def drain(self) -> bytes:
        """Everything until the other side closes."""
        while True:
            try:
                more = self._socket.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                return self._buffer
            self._buffer += more

    def _read(self) -> None:
        more = self._socket.recv(1 << 16)
        if not more:
            raise ConnectionError(f"closed after {self._buffer[:200]!r}")
        self._buffer += more


def request(method: str, path: str, body: bytes = b"", *headers: str, kind: str = "application/json") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body:
        lines += [f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def ask(port: int, data: bytes, *, bodyless: bool = False) -> Answer:
    """One request on a connection of its own."""
    with RawConnection(port) as connection:
        connection.send(data)
        return connection.answer(bodyless=bodyless)
