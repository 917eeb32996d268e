"""Reading HTTP answers from a keep-alive connection with hardly any work."""

from __future__ import annotations

import re

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_STATUS = slice(9, 12)
"""Where the status stands in ``HTTP/1.1 200 OK``."""


class ResponseReader:
    """Takes bytes as they come; answers must carry a Content-Length and come one at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._body_at = 0
        self._end = 0

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """(status, body) of the answer that ``data`` completes, or ``None`` if more must come."""
        self._buffer += data
        if not self._end:
            head_end = self._buffer.find(_HEAD_END)
            if head_end < 0:
                return None
            self._body_at = head_end + len(_HEAD_END)
            length = _LENGTH.search(self._buffer, 0, self._body_at)
            if length is None:
                raise ValueError(f"an answer has no Content-Length: {bytes(self._buffer[:300])!r}")
            self._end = self._body_at + int(length[1])
        if len(self._buffer) < self._end:
            return None
        if len(self._buffer) > self._end:
            raise ValueError("more bytes came than the answer has")
        answer = bytes(self._buffer[_STATUS]), bytes(self._buffer[self._body_at :])
        self._buffer.clear()
        self._end = 0
        return answer
