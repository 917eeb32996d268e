"""Declaring routes: a route is a method of a controller, with its verb, its path and what OpenAPI says about it.

What a request must have follows from the method's signature. A parameter that the path names comes from the path,
``data`` is the decoded body, ``caller`` or ``request`` comes first if it is needed, and all others are query
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from goqueue.api.http.bodies.answer import JSON
from goqueue.api.http.routing.arguments import Arguments, arguments_of
from goqueue.api.http.routing.convention import Convention

Handler = TypeVar("Handler", bound=Callable[..., Any])

SMALL_BODY_BYTES = 1 << 20
"""Of a body that carries no messages: decoding 30 MB takes seconds."""
_MARK = "_declared"


@dataclass(frozen=True, slots=True)
class Documented:
    """An answer as OpenAPI describes it."""

    description: str = ""
    """Left out, what its status means in HTTP."""
    example: Any = None
    kind: Any = None
    """The type of its body; left out, there is none, or it is what the method returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What is declared of a route beside its signature."""

    method: str
    paths: tuple[str, ...]
    summary: str
    status: int = 200
    media_type: str | None = None
    """Of its answer; left out, that of the controller."""
    answer: Documented | None = None
    """Of the usual answer; it has a ``kind`` where the method returns an ``Answer``."""
    body: Any = None
    """The type of a body that the method reads and decodes itself; ``bytes``: a batch of frames."""
    errors: tuple[int, ...] = ()
    """Statuses of errors that it may answer with, besides those of every route."""
    others: Mapping[int, Documented] = field(default_factory=dict)
    tag: str | None = None
    """In OpenAPI; left out, that of the controller."""
    max_body_bytes: int | None = SMALL_BODY_BYTES
    has_effects: bool = False
    """A ``GET`` that does more than answer: there is no ``HEAD``, and its answer is not withheld."""
    keeps_slashes: bool = False
    """A ``/`` that is encoded in the path belongs to a name."""
    ignores_query: bool = False
    """Query parameters mean nothing to it, and are not refused."""
    is_hidden: bool = False
    """OpenAPI has nothing of it."""


class Controller:
    """The routes of one resource. Its constructor gets the operations that they need."""

    tag: ClassVar[str] = ""
    media_type: ClassVar[str] = JSON
    errors: ClassVar[tuple[int, ...]] = ()
    """Statuses of errors that each of its routes may answer with."""
    convention: ClassVar[Convention | None] = None
    """How its paths differ from the usual ones, if they do."""


class Route:
    """A method of a controller, at one of its paths."""

    def __init__(self, declared: Declared, path: str, handler: Callable[..., Any], owner: Controller) -> None:
        self.declared = declared
        self.path = path
        self.handler = handler
        self.owner = owner
        self.media_type = declared.media_type or owner.media_type
        self.is_lenient = declared.ignores_query or owner.convention is not None
        """What is sent beyond what is declared means nothing to it."""

    @cached_property
    def arguments(self) -> Arguments:
        """Made when the route is first used: making all of them would make a start longer."""
        return arguments_of(self.handler, self.path)


def routes_of(controllers: Iterable[Controller]) -> list[Route]:
    """In the order of their sources."""
    return [
        Route(member.__dict__[_MARK], path, getattr(controller, name), controller)
        for controller in controllers
        for name, member in vars(type(controller)).items()
        if _MARK in getattr(member, "__dict__", ())
        for path in member.__dict__[_MARK].paths
    ]


def _verb(method: str) -> Callable[..., Callable[[Handler], Handler]]:
    def declare(*paths: str, summary: str = "", **declared: Any) -> Callable[[Handler], Handler]:
        made = Declared(method=method, paths=paths, summary=summary, **declared)

        def mark(handler: Handler) -> Handler:
            setattr(handler, _MARK, made)
            return handler

        return mark

    return declare


get = _verb("GET")
post = _verb("POST")
put = _verb("PUT")
patch = _verb("PATCH")
delete = _verb("DELETE")
