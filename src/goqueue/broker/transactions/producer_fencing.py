"""Ids and epochs of producers: an id is issued once, and a transactional id fences the producer that had it before."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from goqueue.broker.runtime.journal import Journal
from goqueue.coordination.issued_ids import KEY_BYTES
from goqueue.coordination.transaction_records import NamedProducer
from goqueue.coordination.transactions import Transactions
from goqueue.model.clock import NANOS_PER_MS, Clock, Randomness
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import InvalidRequest, ProducerFenced
from goqueue.model.fields import shown

MAX_NAME_LENGTH = 255
_NOTED_AFTER = 4
"""The use of a name is journaled again when this fraction of the time until it expires has passed."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    producer_id: int
    epoch: int
    timeout_ms: int


class ProducerFencing:
    def __init__(
        self, journal: Journal[Transactions], config: TransactionsConfig, clock: Clock, randomness: Randomness
    ) -> None:
        self._journal = journal
        self._config = config
        self._clock = clock
        self._randomness = randomness
        self._next = 0
        self._safe_below = 0
        """Numbers below are reserved durably, and their ids can be issued at once."""
        self._used_ns: dict[str, int] = {}
        """When names were last used, if that is later than the journal says."""
        self.fenced = 0
        """Producers that were fenced, and requests of fenced producers, since the start."""

    async def start(self) -> None:
        """Issue no id again that may have been issued before the start."""
        key = self._randomness.random_bytes(KEY_BYTES)
        await self._journal.submit(lambda state: state.ids.decide_key(key))
        self._next = self._safe_below = self._journal.machine.ids.reserved

    async def fresh(self, *, is_for_a_name: bool = False) -> int:
        """Issue an id. Numbers come in pairs, one of each kind, from a block that is reserved durably before any of it
        is issued, so that few callers wait for the disk."""
        pair = self._next + self._next % 2
        self._next = pair + 2
        while pair + 2 > self._safe_below:
            await self._reserve()
        return self._journal.machine.ids.id_of(pair + 1 if is_for_a_name else pair)

    async def _reserve(self) -> None:
        ids = self._journal.machine.ids
        if self._safe_below >= ids.reserved:
            self._journal.propose(ids.decide_reserve())
        end = ids.reserved
        await self._journal.settled()
        self._safe_below = max(self._safe_below, end)

    async def taken_over(self, name: str, timeout_ms: int, instance: str, *, again: bool) -> NamedProducer:
        """Fence the producer that had the name. The caller waits for the journal before it answers."""
        if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise InvalidRequest(
                f"transactional_id is {shown(name)}; 1 to {MAX_NAME_LENGTH} printable characters are allowed"
            )
        if len(instance) > MAX_NAME_LENGTH:
            raise InvalidRequest(f"instance has {len(instance)} characters; {MAX_NAME_LENGTH} are allowed")
        fresh_id = await self.fresh(is_for_a_name=True)
        state, now_ns = self._journal.machine, self._clock.now_ns()
        most = self._config.max_producers
        self._journal.propose(state.decide_name(name, fresh_id, timeout_ms, now_ns, most, instance, again=again))
        found = state.producer(name)
        assert found is not None
        return found

    def check(self, producer_id: int, epoch: int) -> None:
        """Raise for an id that was never issued, and for a producer that was fenced."""
        try:
            name = self._journal.machine.check_producer(producer_id, epoch)
        except ProducerFenced:
            self.fenced += 1
            raise
        if name:
            self._used_ns[name] = self._clock.now_ns()

    def timeout(self, timeout_ms: int | None) -> int:
        """The timeout of a transaction that asks for this one; ``None`` asks for the default."""
        if timeout_ms is None:
            return min(self._config.timeout_ms, self._config.max_timeout_ms)
        if not 1 <= timeout_ms <= self._config.max_timeout_ms:
            raise InvalidRequest(
                f"timeout_ms is {shown(timeout_ms)}; 1 to {self._config.max_timeout_ms} are allowed "
                "(transactions.max_timeout_ms)"
            )
        return timeout_ms

    def tidy(self, in_use: Collection[str]) -> None:
        """Forget names that expired, except those ``in_use``, and commit keys that expired."""
        now_ns, config, state = self._clock.now_ns(), self._config, self._journal.machine
        expiry_ns = config.id_expiry_ms * NANOS_PER_MS
        self._journal.propose(state.decide_used(self._used_ns, now_ns - expiry_ns // _NOTED_AFTER))
        self._used_ns = {name: at_ns for name, at_ns in self._used_ns.items() if not self._is_noted(name, at_ns)}
        events = state.decide_forget(
            now_ns - expiry_ns,
            now_ns - config.key_retention_ms * NANOS_PER_MS,
            config.max_keys,
            {*in_use, *self._used_ns},
        )
        self._journal.propose(events)

    def _is_noted(self, name: str, used_ns: int) -> bool:
        known = self._journal.machine.producer(name)
        return known is None or known.used_ns >= used_ns
