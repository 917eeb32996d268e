"""The OpenAPI document, made from the routes' types, and a page to try it that loads nothing from elsewhere."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example

from goqueue.api.http.server.openapi_bounds import bound
from goqueue.model.config import Config
from goqueue.version import __version__

_PARAMETER_TYPE = re.compile(r":\w+}")


_OF_A_PAGE = {
    # A page in another's frame can be clicked by people who do not see it. The page itself cannot say so.
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
}


def answer(body: type, description: str, example: dict[str, Any]) -> ResponseSpec:
    """For a route's OpenAPI: a good answer, and what one looks like."""
    return ResponseSpec(body, description=description, generate_examples=False, examples=[Example(value=example)])


def document(routes: list[HTTPRouteHandler], config: Config) -> bytes:
    """Made once, by an application that serves nothing: the framework's own pages would answer errors in HTML."""
    described = Litestar(
        routes,
        openapi_config=OpenAPIConfig(
            title="GoQueue",
            version=__version__,
            description="One message system instead of two: a log and a queue over the same topics.",
            use_handler_docstrings=True,
        ),
        logging_config=None,
    )
    made = described.openapi_schema.to_schema()
    # The framework has the paths of a route in a set, which every process orders otherwise.
    order = [_PARAMETER_TYPE.sub("}", path) for route in routes for path in sorted(route.paths)]
    made["paths"] = {path: made["paths"][path] for path in order}
    return msgspec.json.encode(bound(made, config))


def documentation_routes(routes: list[HTTPRouteHandler], config: Config) -> list[HTTPRouteHandler]:
    # Made when someone asks: it takes longer than everything else that a start does.
    openapi = cache(lambda: document(routes, config))
    page = files("goqueue.api.http").joinpath("try.html").read_bytes()

    @get("/openapi.json", include_in_schema=False, sync_to_thread=True)
    def openapi_json() -> Response[bytes]:
        return Response(openapi(), media_type=MediaType.JSON)

    @get("/docs", response_headers=_OF_A_PAGE, include_in_schema=False, sync_to_thread=False)
    def try_page() -> Response[bytes]:
        return Response(page, media_type=MediaType.HTML)

    return [openapi_json, try_page]
