"""Declaration of settings: a default, bounds, a unit and a sentence for the reference; and parsing of their values.

Every value that a user sets, in a file, the environment, a flag or a request, is parsed here according to its
declaration. It is a number in the unit that the field's name ends with, a text with its own unit (``"7d"``,
``"64MiB"``), or ``"unlimited"`` where the declaration allows it.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.names import check_topic_name
from goqueue.model.units import format_duration_ms, format_size_bytes, parse_duration_ms, parse_size_bytes

Unit = Literal["ms", "bytes", "count", "ratio", "text", "topic", "flag", "choice"]
UNLIMITED = "unlimited"
INHERITED = "topic"
"""The value of a group's setting that is inherited from the topic."""
MAX_FIELDS = 100
"""A request with more settings is refused before any is parsed: suggesting a name for each would take too long."""
_NEARLY_THE_SAME = 0.66
"""The share of characters that two names must have in common to count as a typing error."""
_SPEC = "goqueue"
HIDDEN = "***"
"""Shown in place of a secret."""
_CREDENTIALS = re.compile(r"//[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The declaration of one field: what it means, and which values are allowed."""

    doc: str
    unit: Unit
    minimum: float = 0
    maximum: float = 0
    choices: tuple[str, ...] = ()
    unlimited: bool = False
    fixed: bool = False
    """True for a setting that cannot change once the topic or group exists."""
    while_empty: bool = False
    """True for a fixed setting that can change while the group has no members."""
    inherits: bool = False
    """True for a group's setting that is inherited from the topic unless it is set."""
    secret: bool = False
    """True for a value that is never shown, such as a token."""

    def parse(self, raw: object) -> Any:
        """Convert user input to the value of the field. Raises ``InvalidRequest`` with the allowed values."""
        if self.unlimited and (raw is None or raw == UNLIMITED):
            return None
        if self.inherits and (raw is None or raw == INHERITED):
            return None
        if self.unit == "flag":
            return _parse_flag(raw)
        if self.unit in {"text", "topic", "choice"}:
            return self._parse_text(raw)
        return self._parse_number(raw)

    def format(self, value: object) -> str:
        """The value as a user would write it."""
        if value is None:
            return UNLIMITED if self.unlimited else INHERITED if self.inherits else ""
        if self.unit == "ms" and isinstance(value, int):
            return format_duration_ms(value)
        if self.unit == "bytes" and isinstance(value, int):
            return format_size_bytes(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    def displayed(self, value: object) -> str:
        """The value for display: without secrets, and without a password in an address."""
        if self.secret and value:
            return HIDDEN
        return _CREDENTIALS.sub(f"//{HIDDEN}@", self.format(value))

    def bounds(self) -> str:
        """The allowed values, for the reference and for error messages."""
        if self.unit == "choice":
            return ", ".join(self.choices)
        if self.unit == "flag":
            return "true, false"
        if self.unit == "topic":
            return "a topic's name, or nothing"
        if self.unit == "text":
            return f"{int(self.minimum)} to {int(self.maximum)} printable characters"
        low, high = (self.format(self._whole(bound)) for bound in (self.minimum, self.maximum))
        return f"{low} to {high}" + (
            f", or {UNLIMITED}" if self.unlimited else f", or {INHERITED}" if self.inherits else ""
        )

    def _whole(self, number: float) -> float:
        return number if self.unit == "ratio" else int(number)

    def _parse_text(self, raw: object) -> str:
        if not isinstance(raw, str):
            what = "the value" if self.secret else shown(raw)
            raise InvalidRequest(f"{what} is not a text; allowed: {self.bounds()}")
        if self.unit == "choice" and raw not in self.choices:
            raise InvalidRequest(f"{shown(raw)} is not one of {self.bounds()}")
        if self.unit == "text" and not self.minimum <= len(raw) <= self.maximum:
            raise InvalidRequest(f"the text has {len(raw)} characters; allowed: {self.bounds()}")
        if not raw.isprintable():
            what = "the text" if self.secret else shown(raw)
            raise InvalidRequest(f"{what} has a character that cannot be printed; allowed: {self.bounds()}")
        if self.unit == "topic" and raw:
            check_topic_name(raw)
        return raw

    def _parse_number(self, raw: object) -> float:
        number: float
        if isinstance(raw, str):
            number = self._number_from_text(raw)
        elif isinstance(raw, int | float) and not isinstance(raw, bool):
            number = raw
        else:
            raise InvalidRequest(f"{shown(raw)} is not a number; allowed: {self.bounds()}")
        if not self.minimum <= number <= self.maximum:
            raise InvalidRequest(f"{shown(raw)} is out of bounds; allowed: {self.bounds()}")
        if self.unit != "ratio" and number != int(number):
            raise InvalidRequest(f"{shown(raw)} is not a whole number; allowed: {self.bounds()}")
        return self._whole(number)

    def _number_from_text(self, raw: str) -> float:
        try:
            return int(raw) if self.unit != "ratio" else float(raw)
        except ValueError:
            pass
        try:
            if self.unit == "ms":
                return parse_duration_ms(raw)
            if self.unit == "bytes":
                return parse_size_bytes(raw)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error}; allowed: {self.bounds()}") from None
        raise InvalidRequest(f"{shown(raw)} is not a number; allowed: {self.bounds()}")


def shown(raw: object) -> str:
    """User input for an error message: shortened, and on one line."""
    try:
        return repr(raw[:40]) if isinstance(raw, str) else reprlib.repr(raw)
    except ValueError:
        # Python refuses to print an integer of thousands of digits.
        return "a very large number"


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for a name that is similar to a known one, else an empty text."""
    nearest = difflib.get_close_matches(wrong[:80], list(known), n=1, cutoff=_NEARLY_THE_SAME)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _parse_flag(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in {"true", "false"}:
        return raw.lower() == "true"
    raise InvalidRequest(f"{shown(raw)} is not true or false")


def _setting(default: Any, doc: str, unit: Unit, **limits: Any) -> Any:
    return dataclasses.field(default=default, metadata={_SPEC: FieldSpec(doc=doc, unit=unit, **limits)})


def _bounded(unit: Unit, default: float | str | None, bounds: tuple[float, float], doc: str, **more: bool) -> Any:
    """``bounds``: the smallest and the largest number, or numbers of characters."""
    return _setting(default, doc, unit, minimum=bounds[0], maximum=bounds[1], **more)


# One function for each unit declares a field of a settings dataclass. ``more`` are the flags of ``FieldSpec``.

count = partial(_bounded, "count")
duration_ms = partial(_bounded, "ms")
size_bytes = partial(_bounded, "bytes")
ratio = partial(_bounded, "ratio")
text = partial(_bounded, "text")


def choice(default: str, choices: tuple[str, ...], doc: str, **more: bool) -> Any:
    return _setting(default, doc, "choice", choices=choices, **more)


def flag(default: bool, doc: str) -> Any:
    return _setting(default, doc, "flag")


def topic_name(default: str, doc: str) -> Any:
    return _setting(default, doc, "topic")


def specs(kind: type) -> dict[str, FieldSpec]:
    """The declarations of a settings dataclass, in order."""
    return {field.name: field.metadata[_SPEC] for field in dataclasses.fields(kind)}


def too_many_fields(count: int) -> str:
    return f"there are {count} settings; at most {MAX_FIELDS} are looked at"


def parse_fields(kind: type, raw: dict[str, object]) -> tuple[dict[str, Any], list[str]]:
    """Parse every field; return the valid values and a sentence for each problem."""
    declared = specs(kind)
    if len(raw) > MAX_FIELDS:
        return {}, [too_many_fields(len(raw))]
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in raw.items():
        spec = declared.get(name)
        if spec is None:
            label = name if name.isidentifier() and len(name) <= 80 else shown(name)
            guess = did_you_mean(name, declared) or f"; there are {', '.join(declared)}"
            problems.append(f"{label}: no such setting{guess}")
            continue
        try:
            values[name] = spec.parse(value)
        except GoQueueError as error:
            problems.append(f"{name}: {error}")
    return values, problems
