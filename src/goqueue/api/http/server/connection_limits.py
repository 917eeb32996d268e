"""What all connections of an HTTP server have together, and those that come when there are enough of them."""

from __future__ import annotations

from typing import Any

from goqueue.model.config import HttpConfig

_HEALTH = (b"/health", b"/healthz", b"/livez", b"/readyz")
ALWAYS_ANSWERED = {*_HEALTH, *(b"/v1" + path for path in _HEALTH)}
"""A broker that has much to do is not one that is to be restarted."""
ABORT = "abort"
"""What a connection's state calls the function that cuts it off, for an answer that cannot be finished."""
_SPARE = 64
"""How many connections there may be beyond ``max_connections``, for those who ask how the broker is."""
_SHORT_PATIENCE_MS = 2_000


class ConnectionLimits:
    """Answers that clients have not taken so far, and connections that are too many."""

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self.unread_bytes = 0
        """Of answers, over all connections; exact at each sweep, and with large answers at once."""
        self.spare: dict[Any, None] = {}
        """Connections beyond ``max_connections``, the oldest first."""

    def add_spare(self, connection: Any) -> Any:
        """Return the one that has to go for it, if there are too many: those who are idle cannot keep others out."""
        self.spare[connection] = None
        if len(self.spare) <= _SPARE:
            return None
        oldest = next(iter(self.spare))
        del self.spare[oldest]
        return oldest

    @property
    def is_unread_full(self) -> bool:
        return self.unread_bytes >= self._config.max_unread_bytes

    @property
    def patience_ms(self) -> int:
        """How long a client may take nothing of its answer: not as long where others are kept from theirs by it."""
        whole = self._config.write_timeout_ms
        return min(whole, _SHORT_PATIENCE_MS) if self.is_unread_full else whole
