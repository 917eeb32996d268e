"""Message filter: by key, headers, lane, text, and conditions on JSON values.

A condition of ``--where`` is ``PATH OPERATOR VALUE``. A path has names separated by dots and list indexes in brackets:
``items[0].sku``; ``$`` is the whole value, and a name with other characters is quoted: ``"first name"``. The operators
are ``== != < <= > >=``, ``~`` (a text contains the text, or a list the value) and ``exists``, which takes no value. The
value is JSON, or a text without quotes; an unquoted one also matches the same as a text, so that ``== 17`` finds ``17``
and ``"17"``. A missing path matches nothing. ``< <= > >=`` compare numbers with numbers only, and texts with texts.
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
"""In characters."""
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


class FilterInput(Protocol):
    """What a filter needs of a message."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def priority(self) -> int: ...


class BadCondition(InvalidRequest):
    """The condition cannot be parsed."""

    remedy = "Write it like 'total > 10', 'customer.city == Oslo', 'items[0].sku exists' or 'name ~ ada'."


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. ``matches`` takes a decoded JSON value."""

    path: Path
    operator: str
    wanted: Any = None
    as_text: str | None = None
    """The value as written, if it had no quotes."""

    def matches(self, document: Any) -> bool:
        found = value_at(document, self.path)
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
        # In Python, True == 1.
        return isinstance(found, bool) == isinstance(self.wanted, bool) and bool(found == self.wanted)

    def _is_ordered(self, found: Any) -> bool:
        compare = _ORDERS[self.operator]
        if _is_number(found) and _is_number(self.wanted):
            return compare(found, self.wanted)
        # As texts, "9" > "12": comparing texts requires quotes.
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
    """The path at the beginning of a text, and the index where it ends."""
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


def value_at(document: Any, path: Path) -> Any:
    """The value at the path, or ``MISSING``."""
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


def decode_json(value: Any) -> Any:
    """The decoded value, or ``MISSING`` if it is not JSON."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, TypeError, RecursionError):
        return MISSING


@dataclass(frozen=True, slots=True)
class Filter:
    """A message filter; all criteria given must match."""

    keys: frozenset[bytes] = frozenset()
    key_prefix: bytes = b""
    headers: Sequence[tuple[str, bytes | None]] = ()
    """Names with the required values; ``None`` accepts any value."""
    priority: int | None = None
    text: bytes = b""
    conditions: Sequence[Condition] = ()

    @property
    def is_empty(self) -> bool:
        return self == Filter()

    def matches(self, message: FilterInput) -> bool:
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
        document = decode_json(value)
        return document is not MISSING and all(condition.matches(document) for condition in self.conditions)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
