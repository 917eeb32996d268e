"""Compatibility of Avro schemas: whether a reader can read a writer's data by Avro's rules of schema resolution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from goqueue.schemas.avro.avro_types import Array, AvroType, Enum, Fixed, Map, Named, Primitive, Record, Union, shown
from goqueue.schemas.base import TOO_COMPLEX, Incompatibility

MOST_REASONS = 100
_MOST_STEPS = 300_000
"""Limit on the steps of a comparison: the largest schemas take far fewer, unless many types have the same name."""
_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""Types that a reader's type can read by promotion."""


@dataclass(frozen=True, slots=True)
class _NamedPair:
    """A pair of named types, the reader's and the writer's, and its path in the pair that contains it."""

    path: str
    reader: Named
    writer: Named

    @property
    def pair(self) -> _Pair:
        return id(self.reader), id(self.writer)


_Pair = tuple[int, int]
_Reason = Incompatibility | _NamedPair


class _TooComplex(Exception):
    """The comparison would take too long."""


class AvroReading:
    """One comparison.

    Types can be recursive, so a pair of named types is assumed to be compatible until a reason against it is found; the
    pairs that relied on it are then compared again. Pairs wait in a queue instead of on the stack, so chains of them
    may have any length.
    """

    def __init__(self) -> None:
        self._steps = _MOST_STEPS
        self._reasons: dict[_Pair, list[_Reason]] = {}
        """Reasons for each compared pair; their paths are relative to the pair."""
        self._relying: dict[_Pair, dict[_Pair, _NamedPair]] = {}
        """Pairs that relied on a pair."""
        self._used: dict[_Pair, _NamedPair] = {}
        """Pairs that the running comparison relies on."""
        self._branches: dict[int, dict[object, list[tuple[int, AvroType]]]] = {}

    def cannot_read(self, reader: AvroType, writer: AvroType) -> list[Incompatibility]:
        try:
            return self._reported(self._compare_all(reader, writer))
        except _TooComplex:
            return [
                Incompatibility(
                    TOO_COMPLEX, "/", "the schemas take too long to be compared; give fewer types the same name"
                )
            ]

    def _compare_all(self, reader: AvroType, writer: AvroType) -> list[_Reason]:
        while True:
            self._used = {}
            reasons = self._compare(reader, writer, "")
            waiting = [each for pair, each in self._used.items() if pair not in self._reasons]
            if not waiting:
                return reasons
            self._process_queue(waiting)

    def _process_queue(self, inners: list[_NamedPair]) -> None:
        waiting = {each.pair: each for each in inners}
        while waiting:
            pair, each = waiting.popitem()
            self._used = {}
            reasons = self._reasons[pair] = self._compare_named(each.reader, each.writer)
            for used, inner in self._used.items():
                self._relying.setdefault(used, {})[pair] = each
                if used not in self._reasons:
                    waiting[used] = inner
            if reasons:
                relying = self._relying.get(pair, {})
                waiting |= {one: inner for one, inner in relying.items() if not self._reasons.get(one)}

    def _reported(self, reasons: list[_Reason]) -> list[Incompatibility]:
        """The reasons with those inside of named types, each reported where the type is used first."""
        told: list[Incompatibility] = []
        seen: set[_Pair] = set()
        waiting = [("", each) for each in reversed(reasons)]
        while waiting and len(told) < MOST_REASONS:
            path, each = waiting.pop()
            if isinstance(each, Incompatibility):
                told.append(replace(each, path=path + each.path or "/"))
            elif each.pair not in seen:
                seen.add(each.pair)
                # Compare again: more pairs inside of it may be known to be incompatible by now.
                inside = _root_causes(self._compare_named(each.reader, each.writer), seen)
                waiting += ((path + each.path, inner) for inner in reversed(inside))
        return told

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[_Reason]:
        self._steps -= 1
        if self._steps < 0:
            raise _TooComplex
        if isinstance(writer, Union):
            return self._each_branch(reader, writer, path)
        if isinstance(reader, Union):
            return self._some_branch(reader, writer, path)
        match reader, writer:
            case Primitive(), Primitive():
                fits = reader.type == writer.type or writer.type in _PROMOTIONS.get(reader.type, ())
                return [] if fits else [_mismatch(reader, writer, path)]
            case Array(), Array():
                return self._compare(reader.items, writer.items, f"{path}/items")
            case Map(), Map():
                return self._compare(reader.values, writer.values, f"{path}/values")
        if not (isinstance(reader, Named) and isinstance(writer, Named) and reader.type == writer.type):
            return [_mismatch(reader, writer, path)]
        inner = _NamedPair(path, reader, writer)
        self._used.setdefault(inner.pair, inner)
        return [inner] if self._reasons.get(inner.pair) else []

    def _compare_named(self, reader: Named, writer: Named) -> list[_Reason]:
        match reader, writer:
            case Fixed(), Fixed():
                return [*_names(reader, writer)] or [*_sizes(reader, writer)]
            case Enum(), Enum():
                return [*_names(reader, writer)] or [*_symbols(reader, writer)]
            case Record(), Record():
                return [*_names(reader, writer), *self._fields(reader, writer)]
        return []

    def _each_branch(self, reader: AvroType, writer: Union, path: str) -> list[_Reason]:
        found: list[_Reason] = []
        for branch in writer.branches:
            found += self._compare(reader, branch, path)
            if len(found) >= MOST_REASONS:
                break
        return found

    def _some_branch(self, reader: Union, writer: AvroType, path: str) -> list[_Reason]:
        closest: list[_Reason] = []
        for place, branch in self._candidates(reader, writer):
            reasons = self._compare(branch, writer, f"{path}/{place}")
            if not reasons:
                return []
            closest = closest or reasons
        missing = Incompatibility(
            "MISSING_UNION_BRANCH",
            path,
            f"the union has no branch that reads {shown(writer)}; add one, or keep the old schema from writing it",
        )
        return [missing, *closest]

    def _candidates(self, reader: Union, writer: AvroType) -> list[tuple[int, AvroType]]:
        """Branches that may read the writer's type; a union can have thousands of branches."""
        known = self._branches.get(id(reader))
        if known is None:
            known = self._branches[id(reader)] = {}
            for place, branch in enumerate(reader.branches):
                for key in _branch_keys(branch):
                    known.setdefault(key, []).append((place, branch))
        if not isinstance(writer, Named):
            return known.get(writer.type, [])
        by_name = known.get((writer.type, writer.short_name), [])
        return by_name + [each for each in known.get((writer.type, writer.name, "alias"), []) if each not in by_name]

    def _fields(self, reader: Record, writer: Record) -> list[_Reason]:
        written = {each.name: each for each in writer.fields}
        found: list[_Reason] = []
        for place, each in enumerate(reader.fields):
            path = f"/fields/{place}"
            source = written.get(each.name)
            if source is None:
                source = next((written[alias] for alias in each.aliases if alias in written), None)
            if source is not None:
                found += self._compare(each.type, source.type, f"{path}/type")
            elif not each.has_default:
                found.append(
                    Incompatibility(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        path,
                        f"field {each.name!r} is not in what was written and has no default; give it a default, or the "
                        "name that it had as an alias",
                    )
                )
            if len(found) >= MOST_REASONS:
                break
        return found


def _root_causes(reasons: list[_Reason], seen: set[_Pair]) -> list[_Reason]:
    """The reasons without union branches that are missing only because of a recursive type reported already."""
    kept: list[_Reason] = []
    for each, cause in zip(reasons, [*reasons[1:], None], strict=True):
        is_known = isinstance(cause, _NamedPair) and cause.pair in seen and cause.path.startswith(f"{each.path}/")
        if isinstance(each, _NamedPair) or not is_known:
            kept.append(each)
    return kept


def _branch_keys(branch: AvroType) -> list[object]:
    """Keys under which a branch is looked up."""
    if not isinstance(branch, Named):
        return [branch.type, *_PROMOTIONS.get(branch.type, ())]
    return [(branch.type, branch.short_name), *((branch.type, alias, "alias") for alias in set(branch.aliases))]


def _mismatch(reader: AvroType, writer: AvroType, path: str) -> Incompatibility:
    readable = sorted(_PROMOTIONS.get(reader.type, ()))
    more = f" (and {', '.join(readable)})" if readable else ""
    return Incompatibility(
        "TYPE_MISMATCH",
        path,
        f"what was written as {shown(writer)} cannot be read as {shown(reader)}; that reads {shown(reader)}{more} only",
    )


def _names(reader: Named, writer: Named) -> Iterator[_Reason]:
    if reader.short_name != writer.short_name and writer.name not in reader.aliases:
        yield Incompatibility(
            "NAME_MISMATCH",
            "/name",
            f"the type was called {writer.name!r} and is called {reader.name!r}; keep the name, or add the old "
            "one as an alias",
        )


def _sizes(reader: Fixed, writer: Fixed) -> Iterator[_Reason]:
    if reader.size != writer.size:
        yield Incompatibility(
            "FIXED_SIZE_MISMATCH",
            "/size",
            f"fixed {reader.name!r} has {reader.size} bytes, what was written has {writer.size}; keep the size",
        )


def _symbols(reader: Enum, writer: Enum) -> Iterator[_Reason]:
    known = set(reader.symbols)
    missing = [each for each in writer.symbols if each not in known]
    if missing and reader.default is None:
        yield Incompatibility(
            "MISSING_ENUM_SYMBOLS",
            "/symbols",
            f"enum {reader.name!r} lacks {', '.join(missing[:10])}, which may have been written; keep them, or give "
            "the enum a default",
        )
