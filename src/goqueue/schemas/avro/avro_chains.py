"""Upper bound on the validation steps per byte of an Avro value: the number of records that begin with the same byte.

Records are nested by name, so a schema whose text is flat can contain chains of any length.
"""

from __future__ import annotations

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.avro.avro_types import Array, AvroType, Fixed, Map, Primitive, Record, Union, takes_no_bytes
from goqueue.schemas.avro.avro_walk import WIDTHS
from goqueue.schemas.base import MAX_DEPTH


def steps_of_a_byte(root: AvroType) -> int:
    """Upper bound on the steps per byte of a value. ``InvalidSchema`` if records are nested too deep."""
    chains = _Chains()
    for record in _records(root):
        chains.add(record)
    return max((-(-steps // max(size, 1)) for steps, size in chains.least.values()), default=1)


class _Chains:
    def __init__(self) -> None:
        self.least: dict[int, tuple[int, int]] = {}
        """Steps and bytes of each record's smallest value, the one with the most steps per byte."""
        self._depth: dict[int, int] = {}

    def add(self, start: Record) -> None:
        under_way: set[int] = set()
        waiting = [(start, False)]
        while waiting:
            record, is_whole = waiting.pop()
            key = id(record)
            if is_whole:
                under_way.discard(key)
                self._finish(record)
            elif key not in self.least and key not in under_way:
                under_way.add(key)
                if len(under_way) > MAX_DEPTH:
                    _refuse(record)
                waiting.append((record, True))
                waiting += ((each, False) for each in _fields_of(record) if isinstance(each, Record))

    def _finish(self, record: Record) -> None:
        """Compute a record from its fields, all known but itself: one that directly contains itself has no values."""
        steps, size, depth = 1, 0, 0
        for each in _fields_of(record):
            if isinstance(each, Record):
                inner_steps, inner_size = self.least.get(id(each), (0, 0))
                depth = max(depth, self._depth.get(id(each), 0))
            else:
                inner_steps, inner_size = 1, _least_size(each)
            steps, size = steps + inner_steps, size + inner_size
        self.least[id(record)] = steps, size
        self._depth[id(record)] = depth + 1
        if depth + 1 > MAX_DEPTH:
            _refuse(record)


def _refuse(record: Record) -> None:
    raise InvalidSchema(
        f"record {record.name} is one of more than {MAX_DEPTH} records that lie in one another, counted through their "
        "names; put fewer of them into one another, or a union or an array between them"
    )


def _fields_of(record: Record) -> list[AvroType]:
    return [each.type for each in record.fields if not takes_no_bytes(each.type)]


def _least_size(avro_type: AvroType) -> int:
    match avro_type:
        case Fixed():
            return avro_type.size
        case Primitive(kind):
            return WIDTHS.get(kind, 1)
    return 1


def _records(root: AvroType) -> list[Record]:
    """Every record that can occur in a value."""
    found: list[Record] = []
    seen: set[int] = set()
    waiting: list[AvroType] = [root]
    while waiting:
        match waiting.pop():
            case Union(branches):
                waiting += branches
            case Array(inner) | Map(inner):
                waiting.append(inner)
            case Record() as record if id(record) not in seen:
                seen.add(id(record))
                found.append(record)
                waiting += (each.type for each in record.fields)
    return found
