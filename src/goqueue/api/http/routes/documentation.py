"""``/openapi.json``, and a page to try the API that loads nothing from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files

from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.routing.declaration import Controller, Route, get
from goqueue.api.http.routing.openapi import document
from goqueue.model.config import Config

_OF_A_PAGE = {
    # A page in another's frame can be clicked by people who do not see it. The page itself cannot say so.
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
}


class DocumentationRoutes(Controller):
    """The documentation of other routes."""

    def __init__(self, routes: Sequence[Route], config: Config) -> None:
        self._routes = routes
        self._config = config
        self._page = files("goqueue.api.http").joinpath("try.html").read_bytes()

    @cached_property
    def _document(self) -> bytes:
        return document(self._routes, self._config)

    @get("/openapi.json", is_hidden=True)
    async def openapi(self) -> Answer:
        # Made when it is first asked for: it takes longer than the rest of a start.
        return Answer(await asyncio.to_thread(lambda: self._document))

    @get("/docs", is_hidden=True)
    async def page(self) -> Answer:
        return Answer(self._page, media_type="text/html; charset=utf-8", headers=_OF_A_PAGE)
