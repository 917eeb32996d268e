"""Which of its names for JSON a client of the registry would like, by its ``Accept``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from goqueue.api.http.bodies.registry_schemas import REGISTRY_JSON

OFFERED = (REGISTRY_JSON, "application/vnd.schemaregistry+json", "application/json")
_ANY = {"*/*", "application/*"}
_MAX_RANGES = 32
"""More are not looked at: a header may have thousands."""
_REMEMBERED_BYTES = 512


def accepted(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The one that it likes best, or ``None`` if it takes none of them. What it names comes before what it lets pass.

    A client that does not say takes the first.
    """
    return _read(headers).best


def named(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The same for errors, which are plain JSON to all that have not asked for another name."""
    wish = _read(headers)
    return wish.best if wish.best is not None and wish.is_named else OFFERED[-1]


class _Wish(NamedTuple):
    best: str | None
    is_named: bool


def _read(headers: Iterable[tuple[bytes, bytes]]) -> _Wish:
    given = b",".join(value for name, value in headers if name == b"accept")
    return _known(given) if len(given) <= _REMEMBERED_BYTES else _wish(given)


@lru_cache(maxsize=64)
def _known(given: bytes) -> _Wish:
    """Clients say the same with every request."""
    return _wish(given)


def _wish(given: bytes) -> _Wish:
    ranges = dict(_ranges(given))
    if not ranges:
        return _Wish(OFFERED[0], is_named=False)
    anything = max((ranges[each] for each in _ANY if each in ranges), default=0.0)
    weight, is_named, place = max(
        (ranges.get(kind, anything), kind in ranges, -place) for place, kind in enumerate(OFFERED)
    )
    return _Wish(OFFERED[-place] if weight > 0 else None, is_named)


def _ranges(given: bytes) -> Iterator[tuple[str, float]]:
    """What is accepted, and how much it is liked."""
    for each in given.decode("latin-1").lower().split(",", _MAX_RANGES)[:_MAX_RANGES]:
        kind, *parameters = (part.strip() for part in each.split(";"))
        if kind:
            yield kind, _weight(parameters)


def _weight(parameters: list[str]) -> float:
    for each in parameters:
        if each.startswith("q="):
            try:
                return min(1.0, max(0.0, float(each[2:])))
            except ValueError:
                return 1.0
    return 1.0
