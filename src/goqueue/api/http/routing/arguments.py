"""What the arguments of a route are made from, by its signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

_IN_PATH = re.compile(r"\{(\w+)\}")
_GIVEN = ("caller", "request")
"""Parameters that come with every request. Only one of them is asked for, and it comes first."""
_BODY = "data"


@dataclass(frozen=True, slots=True)
class QueryParameter:
    name: str
    kind: Any
    default: Any
    """``inspect.Parameter.empty`` if it is required."""
    is_list: bool
    """It may be given more than once."""
    converts: bool
    """Not every text is right."""

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Arguments:
    """How the arguments of one route are made."""

    given: str
    """``caller``, ``request`` or nothing."""
    path: dict[str, Any]
    """Types by name, in the order of the path."""
    whole_numbers: tuple[str, ...]
    """The names of those that are integers."""
    query: dict[str, QueryParameter]
    decoder: msgspec.json.Decoder[Any] | None
    """Of the body, if the route has one decoded."""
    body: Any
    """Its type."""
    is_body_required: bool
    result: Any
    """The type of the answer's body."""


def arguments_of(handler: Callable[..., Any], path: str) -> Arguments:
    """``handler``: a bound method."""
    hints = get_type_hints(handler, include_extras=True)
    parameters = inspect.signature(handler).parameters
    in_path = {name: hints[name] for name in _IN_PATH.findall(path)}
    body = hints.get(_BODY)
    return Arguments(
        given=next((name for name in _GIVEN if name in parameters), ""),
        path=in_path,
        whole_numbers=tuple(name for name, kind in in_path.items() if int in _taken_apart(kind)[0]),
        query={
            name: _query_parameter(name, hints[name], each.default)
            for name, each in parameters.items()
            if name not in in_path and name not in _GIVEN and name != _BODY
        },
        # Numbers and truth values may be sent as text.
        decoder=None if body is None else msgspec.json.Decoder(body, strict=False),
        body=body,
        is_body_required=body is not None and parameters[_BODY].default is inspect.Parameter.empty,
        result=hints.get("return"),
    )


def _query_parameter(name: str, kind: Any, default: Any) -> QueryParameter:
    plain, metas = _taken_apart(kind)
    is_bounded = any(getattr(meta, name) is not None for meta in metas for name in ("min_length", "max_length"))
    is_list = plain == {list[str]}
    return QueryParameter(name, kind, default, is_list, converts=not is_list and (is_bounded or plain != {str}))


def _taken_apart(kind: Any) -> tuple[set[Any], list[msgspec.Meta]]:
    """The plain types that a type stands for, but for ``None``, and what is said of them."""
    if get_origin(kind) is Annotated:
        inner, *said = get_args(kind)
        plain, metas = _taken_apart(inner)
        return plain, [*metas, *(each for each in said if isinstance(each, msgspec.Meta))]
    if get_origin(kind) in (Union, UnionType):
        parts = [_taken_apart(each) for each in get_args(kind)]
        return {each for plain, _ in parts for each in plain}, [each for _, metas in parts for each in metas]
    return {kind} - {NoneType}, []
