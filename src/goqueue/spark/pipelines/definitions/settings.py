"""Settings of a pipeline: each declared once, with its type, bounds, default and meaning.

``goqueue pipeline plan`` and the reference show the declarations; ``--set name=value`` is validated against them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.fields import FieldSpec, did_you_mean, shown
from goqueue.model.units import parse_instant_ns
from goqueue.spark.pipelines.definitions.problems import plain_problems, problem_list

Kind = Literal["text", "names", "number", "ratio", "duration", "size", "flag", "choice", "instant"]
_UNITS = {"number": "count", "ratio": "ratio", "duration": "ms", "size": "bytes", "flag": "flag", "choice": "choice"}
_MAX_TEXT_CHARS = 10_000
LARGEST = 1 << 53
_FORMATS_IN_WORDS = {"names": "names with commas between them", "instant": "an instant, like 2026-01-31T12:00:00Z"}


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of a setting. ``default`` None means that it has no value unless given.

    | kind | a value in Python | what a user writes |
    | --- | --- | --- |
    | text | str | anything printable |
    | names | tuple of str | ``a,b,c``, or a list in YAML |
    | number | int | ``1000`` |
    | ratio | float | ``0.5`` |
    | duration | int, milliseconds | ``250ms``, ``1h30m``, or a number of milliseconds |
    | size | int, bytes | ``64MiB``, or a number of bytes |
    | flag | bool | ``true`` or ``false`` |
    | choice | str, one of ``choices`` | one of ``choices`` |
    | instant | str, as written | ``2026-01-31T12:00:00Z`` |
    """

    name: str
    doc: str
    kind: Kind = "text"
    default: Any = None
    required: bool = False
    minimum: float = 0
    maximum: float = LARGEST
    choices: tuple[str, ...] = ()
    may_change: bool = False
    """Whether a run may continue from a checkpoint that was started with another value."""

    def parse(self, raw: object) -> Any:
        """Convert user input to a value; raises ``InvalidRequest`` with the allowed values."""
        if self.kind == "names":
            return _names(raw)
        if self.kind == "instant":
            text = raw.isoformat().replace("+00:00", "Z") if hasattr(raw, "isoformat") else raw
            if not isinstance(text, str):
                raise InvalidRequest(f"{shown(raw)} is not {_FORMATS_IN_WORDS['instant']}")
            parse_instant_ns(text)
            return text
        if self.kind == "text":
            if isinstance(raw, int | float) and not isinstance(raw, bool):
                return str(raw)
            if not isinstance(raw, str) or not raw or len(raw) > _MAX_TEXT_CHARS:
                raise InvalidRequest(f"{shown(raw)} is not a text of 1 to {_MAX_TEXT_CHARS} characters")
            return raw
        try:
            return self._spec().parse(raw)
        except InvalidRequest as error:
            raise InvalidRequest(str(error).replace(self._spec().bounds(), self.allowed())) from None

    def format(self, value: object) -> str:
        """A value as a user would write it; an empty text for None."""
        if value is None:
            return ""
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value) if self.kind in ("text", "instant") else self._spec().format(value)

    def allowed(self) -> str:
        """The allowed values, for error messages and the reference."""
        if self.kind in ("text", "names", "instant"):
            return _FORMATS_IN_WORDS.get(self.kind, "text")
        if self.kind in ("number", "ratio") and self.maximum == LARGEST:
            return f"a number, {self.minimum:g} or more"
        if self.kind in ("duration", "size") and self.maximum == LARGEST:
            return f"{self.format(int(self.minimum))} or more"
        return self._spec().bounds()

    def _spec(self) -> FieldSpec:
        unit: Any = _UNITS[self.kind]
        return FieldSpec(self.doc, unit, minimum=self.minimum, maximum=self.maximum, choices=self.choices)


class Settings(Mapping[str, Any]):
    """The value of each setting of a pipeline: the given one, else the default, else None."""

    def __init__(self, declared: Sequence[Setting], given: Mapping[str, object], where: str = "--set") -> None:
        self.declared = {each.name: each for each in declared}
        self.values_by_name: dict[str, Any] = {}
        self.given = frozenset(given)
        problems = [*self._take(given), *self._missing()]
        if problems:
            raise problem_list(where, problems)

    def __getitem__(self, name: str) -> Any:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def formatted(self, name: str) -> str:
        return self.declared[name].format(self[name])

    def _take(self, given: Mapping[str, object]) -> Iterator[str]:
        self.values_by_name = {each.name: each.default for each in self.declared.values()}
        for name, raw in given.items():
            declared = self.declared.get(name)
            if declared is None:
                yield f"{name}: no such setting{did_you_mean(name, self.declared) or self._known_names()}"
                continue
            try:
                self.values_by_name[name] = declared.parse(raw)
            except GoQueueError as error:
                yield f"{name}: {error}"

    def _missing(self) -> Iterator[str]:
        for each in self.declared.values():
            if each.required and each.name not in self.given:
                yield f"{each.name}: it must be set ({each.allowed()}): {each.doc}"

    def _known_names(self) -> str:
        return f"; there are {', '.join(self.declared)}" if self.declared else "; this pipeline has none"


_EXAMPLES = {"--set": "topic=orders", "--conf": "spark.executor.memory=2g"}


def assignments(pairs: Iterable[str], where: str = "--set") -> dict[str, str]:
    """``["a=1", "b=2"]`` -> ``{"a": "1", "b": "2"}``. Raises if a name is given twice with different values."""
    found: dict[str, str] = {}
    problems = []
    for pair in pairs:
        name, separator, value = pair.partition("=")
        name = name.strip()
        if not separator or not name:
            problems.append(f"{shown(pair)} is not NAME=VALUE, such as {_EXAMPLES[where]}")
        elif found.setdefault(name, value) != value:
            problems.append(f"{name} is given twice, as {shown(found[name])} and as {shown(value)}")
    if problems:
        raise (problem_list if where == "--set" else plain_problems)(where, problems)
    return found


def _names(raw: object) -> tuple[str, ...]:
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise InvalidRequest(f"{shown(raw)} is not {_FORMATS_IN_WORDS['names']}")
    return tuple(part.strip() for part in parts)
