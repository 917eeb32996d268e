"""What controllers over the operations of a broker have in common."""

from __future__ import annotations

from goqueue.api.http.routing.declaration import Controller
from goqueue.broker.operations import Operations
from goqueue.model.config import HttpConfig


class BrokerRoutes(Controller):
    """Routes over the operations of a broker, within the bounds of the HTTP settings."""

    def __init__(self, operations: Operations, config: HttpConfig) -> None:
        self._operations = operations
        self._config = config
