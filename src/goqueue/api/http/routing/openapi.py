"""The OpenAPI document, made from the declarations of routes and the types of their arguments and answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from goqueue.api.http.bodies.answer import JSON
from goqueue.api.http.bodies.message_schemas import ErrorResponse
from goqueue.api.http.routing.declaration import Documented, Route
from goqueue.api.http.routing.openapi_bounds import Schema, bound
from goqueue.model.config import Config
from goqueue.version import __version__

_REFERENCE = "#/components/schemas/{name}"
_FRAMES = "application/octet-stream"
_OF_A_TYPE = {"type", "items", "additionalProperties", "enum", "$ref"}
_ALWAYS = (400, 403, 503)
"""Every route may be busy or stopping."""
_WITH_A_BODY = (413, 415)
"""Every body may be too large, or packed in another way than is taken."""
_MEANINGS = {
    400: "The request is wrong; nothing was changed.",
    403: "The name is kept for the broker, or the request comes from another site's page or is for another host.",
    404: "There is no such topic, partition, group, member, delayed message, producer or transaction.",
    406: "The client takes none of the names for JSON that the registry has.",
    409: "It exists already, or is not as the request takes it to be.",
    410: "The receipt is void: the message was settled, or delivered again.",
    413: "A message or the body is too large.",
    415: "The body has another content type or encoding than is taken.",
    416: "The offset was removed or is not there yet.",
    422: "The schema or the message is not as it should be; nothing was changed.",
    429: "As many delayed messages wait, dedup ids are remembered or transactions are open as the broker allows.",
    501: "This version does not have the feature.",
    503: "Too much at once, stopping, or a failed disk.",
    507: "The disk is nearly full.",
}


def document(routes: Iterable[Route], config: Config) -> bytes:
    schemas = _Schemas()
    paths: Schema = {}
    for route in routes:
        if not route.declared.is_hidden:
            paths.setdefault(route.path, {})[route.declared.method.lower()] = _operation(route, schemas)
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "GoQueue",
            "version": __version__,
            "description": "One message system instead of two: a log and a queue over the same topics.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas.components},
    }
    return msgspec.json.encode(bound(made, config))


class _Schemas:
    """Schemas of types. Those of classes are components, to which others refer."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._choices: dict[frozenset[str], list[str]] = {}
        """Values that there are to choose from, in the order of their type, which says more than the alphabet."""

    def of(self, kind: Any) -> Schema:
        if kind is bytes:
            return {"type": "string"}
        self._find_choices(kind)
        (schema,), components = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
        for name, component in components.items():
            if name not in self.components:
                # Fields and whole answers are described. What a class says of itself is for readers of the source.
                component.pop("description", None)
                self.components[name] = self._published(component)
        return self._published(schema)

    def _find_choices(self, kind: Any) -> None:
        if get_origin(kind) is Literal:
            self._choices[frozenset(get_args(kind))] = list(get_args(kind))
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__name__ not in self.components:
            for field in get_type_hints(kind, include_extras=True).values():
                self._find_choices(field)
        else:
            for each in get_args(kind):
                self._find_choices(each)

    def _published(self, schema: Schema) -> Schema:
        """As our document has it: what is said of a value that may be left out or null stands beside its type."""
        for inner in _inner(schema):
            self._published(inner)
        if "enum" in schema:
            schema.setdefault("type", "string")
            schema["enum"] = self._choices.get(frozenset(schema["enum"]), schema["enum"])
        if schema.get("default", "") in (None, {}, []):
            # It is the same as leaving the field out.
            del schema["default"]
        choices = schema.pop("anyOf", None)
        if choices is not None:
            schema["oneOf"] = choices
            kinds = [each for each in choices if each != {"type": "null"}]
            if len(kinds) == 1:
                for name in [each for each in kinds[0] if each not in _OF_A_TYPE]:
                    schema.setdefault(name, kinds[0].pop(name))
        return schema


def _operation(route: Route, schemas: _Schemas) -> Schema:
    declared, arguments = route.declared, route.arguments
    operation: Schema = {
        "tags": [declared.tag or route.owner.tag],
        "summary": declared.summary,
        "description": " ".join((route.handler.__doc__ or "").split()),
        "operationId": operation_id(route.path, route.handler.__name__),
    }
    parameters = [_parameter(schemas, name, "path", kind) for name, kind in arguments.path.items()]
    for name, each in arguments.query.items():
        parameters.append(_parameter(schemas, name, "query", each.kind, is_required=each.is_required))
        if not each.is_required and each.default is not None:
            parameters[-1]["schema"]["default"] = each.default
    if parameters:
        operation["parameters"] = parameters
    if declared.body is bytes:
        content = {_FRAMES: {"schema": {"type": "string", "format": "binary"}}}
        described = "A batch of frames: see docs/frames.md."
        operation["requestBody"] = {"content": content, "description": described, "required": True}
    elif (body := declared.body or arguments.body) is not None:
        operation["requestBody"] = {"content": {JSON: {"schema": schemas.of(body)}}, "required": True}
    operation["responses"] = _responses(route, schemas)
    return operation


def _parameter(schemas: _Schemas, name: str, place: str, kind: Any, *, is_required: bool = True) -> Schema:
    schema = schemas.of(kind)
    return {"name": name, "in": place, "schema": schema, "description": schema["description"], "required": is_required}


def _responses(route: Route, schemas: _Schemas) -> Schema:
    declared, result = route.declared, route.arguments.result
    usual = declared.answer or Documented()
    kind, meaning = usual.kind or result, HTTPStatus(declared.status).description
    answers = {declared.status: _response(schemas, usual, kind, route.media_type, meaning)}
    of_body = () if (declared.body or route.arguments.body) is None else _WITH_A_BODY
    for status in sorted({*declared.errors, *route.owner.errors, *_ALWAYS, *of_body} - declared.others.keys()):
        answers[status] = _response(schemas, Documented(_MEANINGS[status]), ErrorResponse, JSON)
    for status, each in declared.others.items():
        answers[status] = _response(schemas, each, each.kind, JSON)
    return {str(status): answer for status, answer in answers.items()}


def _response(schemas: _Schemas, answer: Documented, kind: Any, media_type: str, meaning: str = "") -> Schema:
    response: Schema = {"description": answer.description or meaning}
    if kind is not None:
        content: Schema = {"schema": schemas.of(kind)}
        if answer.example is not None:
            content["examples"] = {"example": {"value": answer.example}}
        response["content"] = {media_type: content}
    return response


def operation_id(path: str, name: str) -> str:
    """Unique and stable: generated clients call their functions by it."""
    made = ""
    for part in path.split("/"):
        if (words := _in_one_word(part.strip("{}"))) not in made:
            made += words
    return made + _in_one_word(name)


def _in_one_word(text: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[_\W]+", text))


def _inner(schema: Schema) -> Iterator[Schema]:
    yield from schema.get("properties", {}).values()
    yield from schema.get("anyOf", ())
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield schema[name]
