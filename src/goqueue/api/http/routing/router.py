"""From a request to the method that answers it, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.bodies.errors import error_answer, known_error
from goqueue.api.http.routing.convention import Convention
from goqueue.api.http.routing.declaration import Route
from goqueue.api.http.routing.paths import decoded_parts, routed, unversioned
from goqueue.api.http.server.content_coding import CODINGS, is_taken
from goqueue.api.http.server.request import Request
from goqueue.broker.operations import Endpoint, Requests
from goqueue.model.errors import GoQueueError, InvalidRequest, MethodNotAllowed, NotFound, UnsupportedMediaType
from goqueue.model.fields import did_you_mean, shown

_EVERYWHERE = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
_AT = re.compile(r"`\$\.(.+)`$")
"""Where in a body something is wrong, at the end of what is wrong with it."""
_PARAMETER = re.compile(r"_([a-z])")
_ENCODER = msgspec.json.Encoder()


class _Place:
    """A place in the tree of paths: the routes that end there, and where paths go on."""

    __slots__ = ("any", "named", "routes")

    def __init__(self) -> None:
        self.named: dict[str, _Place] = {}
        self.any: _Place | None = None
        """Where a path goes on with a parameter."""
        self.routes: dict[str, Route] = {}

    @property
    def allowed(self) -> str:
        """The value of the header ``Allow``."""
        methods = {*self.routes, "OPTIONS"}
        if "GET" in methods and not self.routes["GET"].declared.has_effects:
            methods.add("HEAD")
        return ", ".join(sorted(methods))

    def end_of(self, parts: list[str], at: int, values: list[str]) -> _Place | None:
        """Where a path ends that is here with its part ``at``; ``values`` gets the texts of its parameters.

        What is spelt out goes before a parameter, if the path ends at a route that way.
        """
        if at == len(parts):
            return self if self.routes else None
        named = self.named.get(parts[at])
        if named is not None and (end := named.end_of(parts, at + 1, values)) is not None:
            return end
        if self.any is None:
            return None
        values.append(parts[at])
        end = self.any.end_of(parts, at + 1, values)
        if end is None:
            values.pop()
        return end


class Router:
    """Serves the routes, each at its path and again under ``/v1``."""

    def __init__(self, routes: Iterable[Route], requests: Requests) -> None:
        self._requests = requests
        self._endpoints: dict[Route, Endpoint] = {}
        self._root = _Place()
        self._conventions: dict[str, Convention] = {}
        """By the first part of a path."""
        self._keeps_slashes: list[list[str]] = []
        """How paths begin in which an encoded ``/`` belongs to a name."""
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        parts = route.path.split("/")[1:] if route.path != "/" else []
        place = self._root
        for part in parts:
            if not part.startswith("{"):
                place = place.named.setdefault(part, _Place())
            else:
                place.any = place = place.any or _Place()
        place.routes[route.declared.method] = route
        if route.owner.convention is not None:
            self._conventions[parts[0]] = route.owner.convention
        if route.declared.keeps_slashes:
            self._keeps_slashes.append([part for part in parts if not part.startswith("{")])

    async def __call__(self, request: Request) -> None:
        try:
            answer = await self._answer(request)
        except Exception as error:
            answer = error_answer(_failure(error, request))
        if answer.status == UnsupportedMediaType.http_status and not is_taken(
            request.headers.get(b"content-encoding", b"")
        ):
            answer.headers["Accept-Encoding"] = CODINGS
        await request.send(answer)

    async def _answer(self, request: Request) -> Answer:
        parts = routed(request.path.split("/"))
        convention = self._conventions.get(parts[0]) if parts else None
        if convention is None:
            if b"%" in request.raw_path and any(parts[: len(start)] == start for start in self._keeps_slashes):
                parts = routed(decoded_parts(request.raw_path))
            route, values = self._find(parts, request)
            return route if isinstance(route, Answer) else await self._call(route, values, request)
        try:
            media_type = convention.media_type(request)
        except GoQueueError as error:
            return convention.error(request, error)
        route, values = self._find(convention.parts(request), request)
        if isinstance(route, Answer):
            return route
        try:
            answer = await self._call(route, values, request)
        except Exception as error:
            return convention.error(request, _failure(error, request))
        answer.media_type = media_type
        return answer

    def _find(self, parts: list[str], request: Request) -> tuple[Route | Answer, list[str]]:
        """The route and the texts of its parameters; an answer if there is no route for the method."""
        values: list[str] = []
        place = self._root.end_of(parts, 0, values)
        if place is not None:
            return self._of_method(place, request), values
        if request.method == "OPTIONS" and request.path == "*":
            return Answer(b"", 204, "", {"Allow": _EVERYWHERE}), values
        raise NotFound(f"{_named(request)}: Not Found")

    def _of_method(self, place: _Place, request: Request) -> Route | Answer:
        method = request.method
        if method == "OPTIONS":
            return Answer(b"", 204, "", {"Allow": place.allowed})
        route = place.routes.get(method)
        if route is None and method == "HEAD" and "HEAD" in place.allowed:
            # The server leaves the body out.
            route = place.routes["GET"]
        if route is None:
            answer = error_answer(MethodNotAllowed(f"{_named(request)}: Method Not Allowed"))
            answer.headers["Allow"] = place.allowed
            return answer
        request.endpoint = self._endpoints.get(route) or self._counted(route)
        request.route = route.path
        return route

    def _counted(self, route: Route) -> Endpoint:
        """What counts the requests of a route, which is made when the first one comes."""
        made = self._endpoints[route] = self._requests.endpoint(route, _endpoint_name(route))
        return made

    async def _call(self, route: Route, values: list[str], request: Request) -> Answer:
        declared, arguments = route.declared, route.arguments
        request.is_repeatable = declared.method == "GET" and not declared.has_effects
        named: dict[str, Any] = dict(zip(arguments.path, values, strict=True))
        for name in arguments.whole_numbers:
            try:
                named[name] = int(named[name])
            except ValueError:
                raise NotFound(f"{_named(request)}: Not Found") from None
        if request.query or arguments.query:
            _read_query(route, request, named)
        if arguments.decoder is not None:
            content = await request.body(declared.max_body_bytes)
            if route.is_lenient:
                # Fields that are not declared are skipped without being looked at.
                content.decode()
            if content:
                named["data"] = _decoded(arguments.decoder, content)
            elif arguments.is_body_required:
                raise InvalidRequest("body: it is missing")
        if arguments.given == "caller":
            result = await route.handler(request.caller, **named)
        elif arguments.given:
            result = await route.handler(request, **named)
        else:
            result = await route.handler(**named)
        if isinstance(result, Answer):
            return result
        return Answer(_ENCODER.encode(result), declared.status, route.media_type)


def _named(request: Request) -> str:
    return f"{request.method} {unversioned(request.path)[:200]}"


def _failure(error: Exception, request: Request) -> GoQueueError:
    return known_error(error, request.method, unversioned(request.path), request.raw_headers)


def _endpoint_name(route: Route) -> str:
    """Requests are counted by it: the path with parameters spelt as the documentation does."""
    pattern = re.sub(r"\{[^}]*\}", lambda each: _PARAMETER.sub(lambda part: part[1].upper(), each[0]), route.path)
    return f"{route.declared.method} {pattern}"


def _read_query(route: Route, request: Request, named: dict[str, Any]) -> None:
    """Add what the query says to ``named``. What is not there is left to the defaults of the method."""
    parameters = route.arguments.query
    for name, text in _pairs(request.query):
        parameter = parameters.get(name)
        if parameter is None:
            if route.is_lenient:
                continue
            known = sorted(parameters)
            allowed = f"there are {', '.join(known)}" if known else "this path takes none"
            raise InvalidRequest(f"no such parameter: {shown(name)}; {allowed}{did_you_mean(name, known)}")
        if parameter.is_list:
            named.setdefault(name, []).append(text)
        else:
            named[name] = text
    problems: list[str] = []
    for name, parameter in parameters.items():
        if name not in named:
            if parameter.is_required:
                raise InvalidRequest(f"Missing required query parameter {name!r} for path {unversioned(request.path)}")
        elif parameter.converts:
            try:
                named[name] = msgspec.convert(named[name], parameter.kind, strict=False)
            except msgspec.ValidationError as error:
                problems.append(f"{name}: {error}")
    if problems:
        raise InvalidRequest("; ".join(problems))


def _pairs(query: bytes) -> list[tuple[str, str]]:
    text = query.decode("latin-1")
    if "%" in text or "+" in text:
        return parse_qsl(text, keep_blank_values=True)
    return [(name, value) for name, _, value in (pair.partition("=") for pair in text.split("&") if pair)]


def _decoded(decoder: msgspec.json.Decoder[Any], content: bytes) -> Any:
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        what, where = str(error).split(" - ", maxsplit=1)[0], _AT.search(str(error))
        raise InvalidRequest(f"{where[1] if where else 'body'}: {what}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(str(error)) from None
