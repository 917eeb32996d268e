"""Which of its names for JSON a client of the registry would like, by its ``Accept``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from goqueue.api.http.registry_schemas import REGISTRY_JSON

OFFERED = (REGISTRY_JSON, "application/vnd.schemaregistry+json", "application/json")
_ANY = {"*/*", "application/*"}
_MAX_RANGES = 32
"""More are not looked at: a header may have thousands."""


def accepted(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The one that it likes best, or ``None`` if it takes none of them. What it names comes before what it lets pass.

    A client that does not say takes the first.
    """
    ranges = dict(_ranges(headers))
    if not ranges:
        return OFFERED[0]
    anything = max((ranges[each] for each in _ANY if each in ranges), default=0.0)
    ranked = [(ranges.get(kind, anything), kind in ranges, -place) for place, kind in enumerate(OFFERED)]
    best = max(ranked)
    return OFFERED[-best[2]] if best[0] > 0 else None


def named(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The same for errors, which are plain JSON to all that have not asked for another name."""
    kept = list(headers)
    found = accepted(kept)
    return found if found is not None and found in dict(_ranges(kept)) else OFFERED[-1]


def _ranges(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[str, float]]:
    """What is accepted, and how much it is liked."""
    given = b",".join(value for name, value in headers if name == b"accept")
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
