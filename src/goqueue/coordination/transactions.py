"""What one coordinator knows: which producers have a name, which transactions are prepared or decided, and what was
committed under which key. It is a part of the state of the coordinator's shard.

Pure: ``decide_*`` look at the state and return events or raise; ``apply`` changes the state. A transaction that is only
open is not here: what is not known to be prepared or committed is aborted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from zlib import crc32

import msgspec

from goqueue.coordination import transaction_records as records
from goqueue.coordination.transaction_records import NamedProducer, TransactionRecord, TransactionsEvent, UsedKey
from goqueue.model.errors import ProducerFenced
from goqueue.model.fields import shown
from goqueue.model.producer_sequences import MAX_EPOCH

REMEMBERED = 20_000
"""Of so many transactions that were committed it is known that they were, when their producer asks again."""
_FORGOTTEN_AT_ONCE = 1_000
_DIVISIONS = 16
"""Names and keys are divided into so many parts, so that none takes long to write down."""
_NUMBERED = re.compile(r"(.*#)(0|[1-9][0-9]{0,17})", re.DOTALL)
_TRANSACTIONS = "transactions"


class _Unended(msgspec.Struct):
    prepared: dict[str, TransactionRecord] = {}
    decided: dict[str, TransactionRecord] = {}
    committed: dict[str, None] = {}
    """Of those that have ended, the last."""

    @property
    def is_empty(self) -> bool:
        return not (self.prepared or self.decided or self.committed)


class Transactions:
    """The state, in parts: the transactions, and names and keys in divisions."""

    def __init__(self) -> None:
        self._unended = _Unended()
        self._names: list[dict[str, NamedProducer]] = [{} for _ in range(_DIVISIONS)]
        self._keys: list[dict[str, UsedKey]] = [{} for _ in range(_DIVISIONS)]
        self._names_by_id: dict[int, str] = {}

    # Looking

    @property
    def prepared(self) -> dict[str, TransactionRecord]:
        return self._unended.prepared

    @property
    def decided(self) -> dict[str, TransactionRecord]:
        return self._unended.decided

    @property
    def committed(self) -> dict[str, None]:
        """The last of those that have ended."""
        return self._unended.committed

    def is_committed(self, transaction_id: str) -> bool:
        return transaction_id in self._unended.decided or transaction_id in self._unended.committed

    def producer(self, name: str) -> NamedProducer | None:
        return self._names[_division(name)].get(name)

    def producers(self) -> Iterator[tuple[str, NamedProducer]]:
        for names in self._names:
            yield from names.items()

    def name_of(self, producer_id: int) -> str:
        """The transactional id of a producer; empty if it has none."""
        return self._names_by_id.get(producer_id, "")

    def name_count(self) -> int:
        return sum(map(len, self._names))

    def used_key(self, key: str) -> UsedKey | None:
        """What was committed under a key. Of a series only the last is known: what was before it is used, and empty."""
        name, number = series_of(key)
        found = self._keys[_division(name)].get(name)
        if found is None or found.number < number:
            return None
        return found if found.number == number else UsedKey([], found.at_ns, 0, found.number)

    def last_of_series(self, key: str) -> UsedKey | None:
        """What was committed last under a key, or under one of its series."""
        name, _ = series_of(key)
        return self._keys[_division(name)].get(name)

    def used_keys(self) -> Iterator[tuple[str, UsedKey]]:
        """All that are remembered: names of series, and keys of none."""
        for keys in self._keys:
            yield from keys.items()

    # Deciding

    def decide_name(
        self,
        name: str,
        fresh_id: int,
        timeout_ms: int,
        now_ns: int,
        instance: str = "",
        *,
        again: bool = False,
        keeps_id: bool = True,
    ) -> list[TransactionsEvent]:
        """A producer begins under a name. The epoch after the last is its own again only with another id.

        ``again``: one that had the name before and goes on with it. A producer that was fenced must not take it back.
        ``keeps_id``: whether the name goes on with the id that it has, if it has one.
        """
        known = self.producer(name)
        if again and known is not None and known.instance != instance:
            raise ProducerFenced(_another_started(name, known.epoch))
        if known is None or known.epoch >= MAX_EPOCH or not keeps_id:
            return [records.ProducerNamed(name, NamedProducer(fresh_id, 0, timeout_ms, now_ns, instance))]
        taken_over = NamedProducer(known.producer_id, known.epoch + 1, timeout_ms, now_ns, instance)
        return [records.ProducerNamed(name, taken_over)]

    def check_producer(self, producer_id: int, epoch: int) -> str:
        """The transactional id of a producer that was given one; raises if the producer was fenced."""
        name = self._names_by_id.get(producer_id)
        if name is None:
            raise ProducerFenced(
                f"producer {producer_id} is nobody's any more: its transactional id has another one, or was forgotten "
                "because nobody used it for long"
            )
        expected = self._names[_division(name)][name].epoch
        if epoch < expected:
            raise ProducerFenced(_another_started(name, expected, f"; this one has epoch {shown(epoch)}"))
        if epoch != expected:
            raise ProducerFenced(
                f"producer {producer_id} ({name!r}) has epoch {expected} by now; this is epoch {shown(epoch)}"
            )
        return name

    def decide_used(self, used_ns: Mapping[str, int], before_ns: int) -> list[TransactionsEvent]:
        """Note for names that were used when that was, if they are known to have been used before ``before_ns``."""
        return [
            records.ProducerNamed(name, msgspec.structs.replace(producer, used_ns=at_ns))
            for name, at_ns in used_ns.items()
            if (producer := self.producer(name)) is not None and producer.used_ns < min(before_ns, at_ns)
        ]

    def decide_forget_names(self, before_ns: int, in_use: Collection[str]) -> list[TransactionsEvent]:
        """Forget names that were not used for long, except those ``in_use``."""
        events: list[TransactionsEvent] = []
        for names in self._names:
            gone = [name for name, producer in names.items() if producer.used_ns < before_ns and name not in in_use]
            if gone:
                events.append(records.NamesForgotten(gone))
        return events

    def decide_forget_keys(self, going: Collection[str]) -> list[TransactionsEvent]:
        """Forget these of the ``used_keys``, as far as they are here."""
        events: list[TransactionsEvent] = []
        for keys in self._keys:
            gone = [key for key in keys if key in going]
            if gone:
                events.append(records.KeysForgotten(gone))
        return events

    # Changing

    def apply(self, event: TransactionsEvent) -> None:
        unended = self._unended
        match event:
            case records.ProducerNamed(name, producer):
                self._name(name, producer)
            case records.NamesForgotten(names):
                for name in names:
                    gone = self._names[_division(name)].pop(name, None)
                    if gone is not None:
                        self._names_by_id.pop(gone.producer_id, None)
            case records.Prepared(transaction):
                unended.prepared[transaction.transaction_id] = transaction
            case records.Decided(transaction):
                unended.prepared.pop(transaction.transaction_id, None)
                unended.decided[transaction.transaction_id] = transaction
            case records.Aborted(transaction_id):
                unended.prepared.pop(transaction_id, None)
            case records.Ended(transaction_ids):
                self._end(transaction_ids)
            case records.KeyUsed(key, used):
                name, _ = series_of(key)
                self._keys[_division(name)][name] = used
            case records.KeysForgotten(keys):
                for key in keys:
                    self._keys[_division(key)].pop(key, None)
            case records.Adopted(part, state):
                self.restore(part, bytes(state))

    def _name(self, name: str, producer: NamedProducer) -> None:
        before = self._names[_division(name)].pop(name, None)
        if before is not None:
            self._names_by_id.pop(before.producer_id, None)
        self._names[_division(name)][name] = producer
        self._names_by_id[producer.producer_id] = name

    def _end(self, transaction_ids: Sequence[str]) -> None:
        unended = self._unended
        for transaction_id in transaction_ids:
            if unended.decided.pop(transaction_id, None) is not None:
                unended.committed[transaction_id] = None
        beyond = len(unended.committed) - REMEMBERED
        if beyond >= _FORGOTTEN_AT_ONCE:
            for transaction_id in list(unended.committed)[:beyond]:
                del unended.committed[transaction_id]

    # Snapshots

    def parts(self) -> list[str]:
        """Those that have anything."""
        found = [] if self._unended.is_empty else [_TRANSACTIONS]
        found += [f"names/{number}" for number, names in enumerate(self._names) if names]
        return found + [f"keys/{number}" for number, keys in enumerate(self._keys) if keys]

    def part_of(self, event: TransactionsEvent) -> str:
        match event:
            case records.ProducerNamed(name):
                return f"names/{_division(name)}"
            case records.NamesForgotten(names):
                return f"names/{_division(names[0])}"
            case records.KeyUsed(key):
                return f"keys/{_division(series_of(key)[0])}"
            case records.KeysForgotten(keys):
                return f"keys/{_division(keys[0])}"
            case records.Adopted(part):
                return part
            case _:
                return _TRANSACTIONS

    def dump(self, part: str) -> bytes:
        if part == _TRANSACTIONS:
            return msgspec.json.encode(self._unended)
        kind, number = part.split("/")
        return msgspec.json.encode(self._names[int(number)] if kind == "names" else self._keys[int(number)])

    def restore(self, part: str, payload: bytes) -> None:
        if part == _TRANSACTIONS:
            self._unended = msgspec.json.decode(payload, type=_Unended)
        elif part.startswith("names/"):
            for name, producer in msgspec.json.decode(payload, type=dict[str, NamedProducer]).items():
                self._name(name, producer)
        else:
            self._keys[int(part.split("/")[1])] = msgspec.json.decode(payload, type=dict[str, UsedKey])


def series_of(key: str) -> tuple[str, int]:
    """A key that ends in ``#`` and a number is one of a series, in which only the last is remembered: the name of the
    series, and the number. Any other key is itself, and has none."""
    found = _NUMBERED.fullmatch(key)
    # A name that no key has.
    return (f"{found[1]}\0", int(found[2])) if found is not None else (key, -1)


def keys_beyond(known: Iterable[tuple[str, UsedKey]], before_ns: int, most: int) -> set[str]:
    """Which keys are forgotten: old ones, then those of no series, the oldest first, until there is room; then the last
    of series. These stay for as long as there is room: a writer that comes back to one may come late."""
    keys = [(used.number >= 0, used.at_ns, key, used.cost) for key, used in known]
    going = {key for is_series, at_ns, key, _ in keys if at_ns < before_ns and not is_series}
    beyond = sum(cost for _, _, key, cost in keys if key not in going) - most
    for _, _, key, cost in sorted(keys) if beyond > 0 else ():
        if beyond <= 0:
            break
        if key not in going:
            going.add(key)
            beyond -= cost
    return going


def _another_started(name: str, epoch: int, own: str = "") -> str:
    return (
        f"another process has started with transactional_id {name!r} (epoch {epoch}){own}: "
        "stop it, or give each process an id of its own"
    )


def _division(text: str) -> int:
    return crc32(text.encode()) % _DIVISIONS
