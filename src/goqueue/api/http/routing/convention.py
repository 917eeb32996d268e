"""How a family of paths may differ from the others."""

from __future__ import annotations

from abc import ABC, abstractmethod

from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.server.request import Request
from goqueue.model.errors import GoQueueError


class Convention(ABC):
    """What the clients of a family of paths expect. Query parameters that are not declared mean nothing to it."""

    @abstractmethod
    def media_type(self, request: Request) -> str:
        """Of an answer that is no error. Raises if the client takes none that there is."""

    @abstractmethod
    def parts(self, request: Request) -> list[str]:
        """The decoded parts of the path, as routes are declared. May add to the request's query."""

    @abstractmethod
    def error(self, request: Request, error: GoQueueError) -> Answer:
        """The answer to a request of this family that failed."""
