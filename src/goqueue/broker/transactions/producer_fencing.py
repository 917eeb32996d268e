"""Ids and epochs of producers: an id is issued once, and a transactional id fences the producer that had it before.

Ids are on record in the metadata, names with their epochs at the coordinator of each name.
"""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.shard_placement import shard_of_transactional_id
from goqueue.broker.transactions.coordinators import Coordinators
from goqueue.coordination.catalog import Catalog
from goqueue.coordination.issued_ids import KEY_BYTES
from goqueue.coordination.transaction_records import NamedProducer
from goqueue.model.clock import NANOS_PER_MS, Clock, Randomness
from goqueue.model.config import TransactionsConfig
from goqueue.model.errors import InvalidRequest, NotLeader, Overloaded, ProducerFenced, UnknownProducer
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
        self,
        catalog: Journal[Catalog],
        coordinators: Coordinators,
        config: TransactionsConfig,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self._catalog = catalog
        self._coordinators = coordinators
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
        await self._catalog.submit(lambda catalog: catalog.ids.decide_key(key))
        self._next = self._safe_below = self._catalog.machine.ids.reserved

    async def fresh(self) -> int:
        """Issue an id to a producer without a name. Coordinators take turns."""
        number = await self._number()
        serving = self._coordinators.serving
        if not serving:
            raise NotLeader("this broker leads no shard that coordinates producers at present")
        return self._coordinators.ids.id_of(number, serving[number // 2 % len(serving)].shard)

    async def _number(self, *, is_for_a_name: bool = False) -> int:
        """Numbers come in pairs, one of each kind, from a block that is reserved durably before any of it is issued, so
        that few callers wait for the disk."""
        pair = self._next + self._next % 2
        self._next = pair + 2
        while pair + 2 > self._safe_below:
            await self._reserve()
        return pair + 1 if is_for_a_name else pair

    async def _reserve(self) -> None:
        ids = self._catalog.machine.ids
        if self._safe_below >= ids.reserved:
            self._catalog.propose(ids.decide_reserve())
        end = ids.reserved
        await self._catalog.settled()
        self._safe_below = max(self._safe_below, end)

    async def taken_over(self, name: str, timeout_ms: int, instance: str, *, again: bool) -> NamedProducer:
        """Fence the producer that had the name. The caller waits for the coordinator's journal before it answers."""
        if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise InvalidRequest(
                f"transactional_id is {shown(name)}; 1 to {MAX_NAME_LENGTH} printable characters are allowed"
            )
        if len(instance) > MAX_NAME_LENGTH:
            raise InvalidRequest(f"instance has {len(instance)} characters; {MAX_NAME_LENGTH} are allowed")
        number, ids = await self._number(is_for_a_name=True), self._coordinators.ids
        coordinator = self._coordinators.of_name(name)
        known = coordinator.state.producer(name)
        if known is None:
            self._check_room()
        events = coordinator.state.decide_name(
            name,
            ids.id_of(number, shard_of_transactional_id(name)),
            timeout_ms,
            self._clock.now_ns(),
            instance,
            again=again,
            keeps_id=known is not None and ids.keeps_its_epochs(known.producer_id),
        )
        coordinator.own.propose(events)
        found = coordinator.state.producer(name)
        assert found is not None
        return found

    def _check_room(self) -> None:
        most = self._config.max_producers
        if sum(each.state.name_count() for each in self._coordinators.serving) >= most:
            raise Overloaded(
                f"{most} transactional ids are in use (transactions.max_producers); those that nobody uses expire"
            )

    def check(self, producer_id: int, epoch: int) -> None:
        """Raise for an id that was never issued, and for a producer that was fenced. Of a producer without a name this
        is known also while its coordinator's shard is not led."""
        ids = self._catalog.machine.ids
        number = ids.number_of(producer_id)
        if number is None:
            raise UnknownProducer(f"producer id {shown(producer_id)} was never given to anyone")
        try:
            if ids.is_for_a_name(producer_id, number):
                coordinator = self._coordinators.of_producer(producer_id)
                # Every request asks: by attributes, without a call.
                name = coordinator.own.journal.machine.transactions.check_producer(producer_id, epoch)
                self._used_ns[name] = self._clock.now_ns()
            elif epoch:
                raise ProducerFenced(f"producer {producer_id} has epoch 0 by now; this is epoch {shown(epoch)}")
        except ProducerFenced:
            self.fenced += 1
            raise

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

    def tidy(self) -> None:
        """Forget names that expired, and that have no transaction open."""
        now_ns, expiry_ns = self._clock.now_ns(), self._config.id_expiry_ms * NANOS_PER_MS
        used: dict[int, dict[str, int]] = {}
        for name, at_ns in self._used_ns.items():
            used.setdefault(shard_of_transactional_id(name), {})[name] = at_ns
        for coordinator in self._coordinators.serving:
            state, of_shard = coordinator.state, used.pop(coordinator.shard, {})
            coordinator.own.propose(state.decide_used(of_shard, now_ns - expiry_ns // _NOTED_AFTER))
            for name, at_ns in of_shard.items():
                known = state.producer(name)
                if known is None or known.used_ns >= at_ns:
                    del self._used_ns[name]
            in_use = {each.name for each in coordinator.opened.all()} | of_shard.keys() & self._used_ns.keys()
            coordinator.own.propose(state.decide_forget_names(now_ns - expiry_ns, in_use))
