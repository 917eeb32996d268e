"""Which messages are wanted: by key, headers, lane, text, and by what lies in their JSON.

A condition of ``--where`` is ``PATH OPERATOR VALUE``. The path has names with dots between them and places of lists in
brackets: ``items[0].sku``; ``$`` is the whole value, and a name with other letters is quoted: ``"first name"``. The
operators are ``== != < <= > >=``, ``~`` (a text has the text in it, or a list the value) and ``exists``, which has no
value behind it. The value is JSON, or a text that needs no quotes; one without quotes also fits the same as a text, so
that ``== 17`` finds ``17`` and ``"17"``. A path that is not there fits nothing. In ``< <= > >=`` numbers are compared
with numbers only, and texts with texts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.message import Headers

MAX_CONDITION = 1_000
"""Letters of a condition."""
MISSING = object()
_STEP = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s.\[\]"=!<>~]+))|\s*\[\s*(-?[0-9]{1,9})\s*\]')
_OPERATOR = re.compile(r"\s*(==|!=|<=|>=|<|>|~|exists\b)\s*")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Path = tuple[str | int, ...]


class Looked(Protocol):
    """What a filter needs to know of a message."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def priority(self) -> int: ...


class BadCondition(InvalidRequest):
    """A condition that cannot be read."""

    remedy = "Write it like 'total > 10', 'customer.city == Oslo', 'items[0].sku exists' or 'name ~ ada'."


@dataclass(frozen=True, slots=True)
class Condition:
    """``fits`` tells of a decoded JSON value."""

    path: Path
    operator: str
    wanted: Any = None
    as_text: str | None = None
    """What was written, if it had no quotes."""

    def fits(self, document: Any) -> bool:
        found = at(document, self.path)
        if found is MISSING:
            return False
        if self.operator == "exists":
            return True
        if self.operator == "==":
            return self._equals(found)
        if self.operator == "!=":
            return not self._equals(found)
        if self.operator == "~":
            if isinstance(found, str):
                text = self.as_text if self.as_text is not None else self.wanted
                return isinstance(text, str) and text in found
            return isinstance(found, list) and any(map(self._equals, found))
        return self._is_ordered(found)

    def _equals(self, found: Any) -> bool:
        if isinstance(found, str) and self.as_text is not None:
            return found == self.as_text
        # In Python True is 1.
        return isinstance(found, bool) == isinstance(self.wanted, bool) and bool(found == self.wanted)

    def _is_ordered(self, found: Any) -> bool:
        compare = _ORDERS[self.operator]
        if _is_number(found) and _is_number(self.wanted):
            return compare(found, self.wanted)
        # As a text, 9 would be more than 12: whoever wants that writes quotes.
        return isinstance(found, str) and isinstance(self.wanted, str) and compare(found, self.wanted)


def parse_condition(text: str) -> Condition:
    if len(text) > MAX_CONDITION:
        raise BadCondition(f"the condition has {len(text)} letters; at most {MAX_CONDITION}")
    path, end = parse_path(text)
    found = _OPERATOR.match(text, end)
    if found is None:
        raise BadCondition(
            f"{shown(text)}: behind the path there is {shown(text[end:].strip())}; "
            "one of == != < <= > >= ~ exists belongs there"
        )
    written = text[found.end() :].strip()
    if found[1] == "exists":
        if written:
            raise BadCondition(f"{shown(text)}: behind 'exists' there is nothing to write")
        return Condition(path, "exists")
    if not written:
        raise BadCondition(f"{shown(text)}: there is no value behind {found[1]}")
    try:
        wanted = msgspec.json.decode(written.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return Condition(path, found[1], written, written)
    return Condition(path, found[1], wanted, None if isinstance(wanted, str) else written)


def parse_path(text: str, first: int = 0) -> tuple[Path, int]:
    """The path at the beginning of a text, and where it ends."""
    steps: list[str | int] = []
    position = first
    while True:
        found = _STEP.match(text, position)
        is_place = found is not None and found[3] is not None
        if found is None or (steps and not is_place and text[position - 1 : position] != "."):
            break
        position = found.end()
        if is_place:
            steps.append(int(found[3]))
        elif found[1] is not None:
            steps.append(re.sub(r"\\(.)", r"\1", found[1]))
        else:
            steps.append(found[2])
        if text[position : position + 1] == ".":
            position += 1
        elif text[position : position + 1] != "[":
            break
    if not steps or text[position - 1 : position] == ".":
        raise BadCondition(f"{shown(text)}: there is no path; it is like customer.city, items[0].sku or $")
    return tuple(steps[1:] if steps[0] == "$" else steps), position


def at(document: Any, path: Path) -> Any:
    """What lies there, or ``MISSING``."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(document, dict) or step not in document:
                return MISSING
            document = document[step]
        elif isinstance(document, list) and -len(document) <= step < len(document):
            document = document[step]
        else:
            return MISSING
    return document


def in_json(value: Any) -> Any:
    """A value as JSON, or ``MISSING`` if it is not."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, TypeError, RecursionError):
        return MISSING


@dataclass(frozen=True, slots=True)
class Filter:
    """All of it has to hold."""

    keys: frozenset[bytes] = frozenset()
    key_prefix: bytes = b""
    headers: Sequence[tuple[str, bytes | None]] = ()
    """A name, and what its value must be; ``None``: anything."""
    priority: int | None = None
    text: bytes = b""
    conditions: Sequence[Condition] = ()

    @property
    def is_empty(self) -> bool:
        return self == Filter()

    def fits(self, message: Looked) -> bool:
        if self.priority is not None and message.priority != self.priority:
            return False
        if self.keys and message.key not in self.keys:
            return False
        if self.key_prefix and not (message.key or b"").startswith(self.key_prefix):
            return False
        for name, wanted in self.headers:
            if not any(name == each and (wanted is None or wanted == value) for each, value in message.headers):
                return False
        value = message.value or b""
        if self.text and self.text not in value:
            return False
        if not self.conditions:
            return True
        document = in_json(value)
        return document is not MISSING and all(condition.fits(document) for condition in self.conditions)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
