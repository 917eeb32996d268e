"""How the broker is: named checks, each of which says what is wrong and what to do about it.

``fail`` means that some writing does not work, ``warn`` that something needs to be seen to before it does or that
something stored is not as it was. Where a restart is the remedy, the check says so: that is what liveness asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Final, Literal, Protocol

from goqueue.broker.delays.delayed_messages import Delays
from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.runtime.disk_guard import DiskGuard, shown_size
from goqueue.broker.tracing.trace_export import TraceExport
from goqueue.broker.transactions.transaction_service import TransactionService
from goqueue.broker.upkeep.damage import told_of_loss
from goqueue.broker.upkeep.upkeep import Upkeep
from goqueue.model.clock import NANOS_PER_SECOND, Clock
from goqueue.model.errors import GoQueueError
from goqueue.observe.process import LoopDelay
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log
from goqueue.storage.log.open_files import OpenFiles

MOST_NAMED: Final = 20
SLOW_FSYNC_NS: Final = 2 * NANOS_PER_SECOND
STUCK_FSYNC_NS: Final = 10 * NANOS_PER_SECOND
HOPELESS_FSYNC_NS: Final = 60 * NANOS_PER_SECOND
"""A round that runs for so long will hardly end in this process."""
LATE_LOOP_NS: Final = NANOS_PER_SECOND
LATE_DELAYS_NS: Final = 10 * NANOS_PER_SECOND
LATE_TRANSACTIONS_NS: Final = 10 * NANOS_PER_SECOND
_RESTART = "check the disk and the system's log, then restart the broker"

Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was found. ``took_ns``: how long that which was looked at takes, where that means something."""

    status: Status = "pass"
    message: str = ""
    took_ns: int = 0
    needs_restart: bool = False


class Examined(Protocol):
    """What the checks need of a broker."""

    clock: Clock
    delays: Delays
    disk: DiskGuard
    groups: GroupService
    tracing: TraceExport
    transactions: TransactionService

    @property
    def is_stopping(self) -> bool: ...

    def logs(self) -> Iterable[Log]: ...

    def running_topics(self) -> Iterable[Topic]: ...


@dataclass(eq=False, repr=False)
class Health:
    _broker: Examined
    _commits: GroupCommit
    _open_files: OpenFiles
    _upkeep: Upkeep
    _journals: Mapping[str, Log]
    """By what does not work without them."""
    _loop_delay: LoopDelay

    def checks(self) -> dict[str, Check]:
        """All of them, by name."""
        found = self.readiness()
        found["event_loop"] = self._event_loop(self._loop_delay.worst_ns())
        found["delays"] = self._delays()
        found["transfers"] = self._transfers()
        found["transactions"] = self._transactions()
        found["upkeep"] = self._upkeep_works()
        found["traces"] = self._traces()
        found["damage"] = self._damage()
        return found

    def readiness(self) -> dict[str, Check]:
        """Those that can fail: while one of them does, the broker does not take everything that it is sent."""
        return {
            "storage": self._storage(),
            "journals": self._journals_work(),
            "disk": self._disk(),
            "fsync": self._fsync(),
            "shutdown": self._shutdown(),
        }

    def problems(self) -> dict[str, str]:
        """What keeps the broker from doing all of its work, by check."""
        return {name: check.message for name, check in self.readiness().items() if check.status == "fail"}

    def damage(self) -> list[str]:
        """What was found to be damaged or gone, a line for each partition."""
        found = []
        for topic in self._broker.running_topics():
            for number, partition in enumerate(topic.partitions):
                found += [f"{topic.name}/{number}: {told}" for told in told_of_loss(partition.log)]
                if partition.damaged:
                    found.append(f"{topic.name}/{number}: {_failing(partition.damaged)}")
        return found

    # The checks

    def _storage(self) -> Check:
        failed = [f"{_name_of(each.folder)} ({each.failure})" for each in self._broker.logs() if each.failure]
        if not failed:
            return Check()
        told = f"{_counted(failed, 'log')} no writes since the disk failed: {_first(failed)}; {_RESTART}"
        return Check("fail", told, needs_restart=True)

    def _journals_work(self) -> Check:
        failed = [without for without, journal in self._journals.items() if journal.failure]
        if not failed:
            return Check()
        told = f"journals take no writes since the disk failed, so {'; '.join(failed)}; {_RESTART}"
        return Check("fail", told, needs_restart=True)

    def _disk(self) -> Check:
        disk = self._broker.disk
        began_ns = perf_counter_ns()
        try:
            is_full = disk.is_full()
        except GoQueueError as error:
            return Check("fail", f"{error}: is the data folder still mounted?")
        took_ns = perf_counter_ns() - began_ns
        free, least = shown_size(disk.free_bytes), shown_size(disk.min_free_bytes)
        room = "delete topics, keep messages for less time (retention_ms, retention_bytes), or give it a larger disk"
        if is_full:
            told = f"{free} free, less than storage.min_free_bytes ({least}): publishing is refused until there is room"
            return Check("fail", f"{told}; {room}", took_ns)
        if not disk.free_bytes or self._open_files.found_no_room_lately(self._broker.clock.now_ns()):
            return Check(
                "fail", f"writing finds no room on the disk, with {free} free: a quota, perhaps; {room}", took_ns
            )
        if disk.free_bytes < 2 * disk.min_free_bytes:
            told = f"{free} free; publishing will be refused below storage.min_free_bytes ({least})"
            return Check("warn", f"{told}; {room}", took_ns)
        return Check(took_ns=took_ns)

    def _fsync(self) -> Check:
        began_ns = self._commits.round_began_ns
        if began_ns is None:
            return Check(took_ns=self._commits.last_round_ns)
        took_ns = self._broker.clock.monotonic_ns() - began_ns
        if took_ns < SLOW_FSYNC_NS:
            return Check(took_ns=took_ns)
        told = f"an fsync has been running for {took_ns // NANOS_PER_SECOND} s"
        if took_ns < STUCK_FSYNC_NS:
            return Check("warn", f"{told}; the disk is slow: see what else uses it", took_ns)
        told += ", and everyone who publishes waits for it; the disk hangs: check it and the system's log"
        if took_ns < HOPELESS_FSYNC_NS:
            return Check("fail", told, took_ns)
        return Check("fail", f"{told}, then restart the broker", took_ns, needs_restart=True)

    def _shutdown(self) -> Check:
        return Check("fail", "the broker is stopping and takes nothing new") if self._broker.is_stopping else Check()

    def _event_loop(self, delay_ns: int) -> Check:
        if delay_ns <= LATE_LOOP_NS:
            return Check(took_ns=delay_ns)
        told = f"everything was held up for {delay_ns / NANOS_PER_SECOND:.1f} s lately"
        advice = "the machine is short of processors or swaps, or a request was too large"
        return Check("warn", f"{told}; {advice}", delay_ns)

    def _delays(self) -> Check:
        late = self._broker.delays.overdue(self._broker.clock.now_ns() - LATE_DELAYS_NS)
        if not late:
            return Check()
        named = [f"{_name_of(each.partition.log.folder)} ({each.trouble or 'many are due at once'})" for each in late]
        told = f"delayed messages are due for more than {LATE_DELAYS_NS // NANOS_PER_SECOND} s and not visible yet"
        return Check("warn", f"{told}, in {_first(named)}; it is tried every second: see to the reason")

    def _transfers(self) -> Check:
        held_up = self._broker.groups.held_up()
        if not held_up:
            return Check()
        named = [f"{each.messages} of group {each.group} ({each.reason})" for each in held_up]
        told = "dead letters or redriven messages cannot be moved for now"
        return Check("warn", f"{told}: {_first(named)}; it is tried at least every 30 s, nothing is lost meanwhile")

    def _transactions(self) -> Check:
        held_up = [f"{each} ({why})" for each, why in self._broker.transactions.held_up().items()]
        if held_up:
            told = "transactions have ended, and readers still wait for that where it cannot be written"
            return Check("warn", f"{told}: {_first(held_up)}; it is tried every second, and after a restart")
        before_ns = self._broker.clock.now_ns() - LATE_TRANSACTIONS_NS
        late = [each for each in self._broker.transactions.coordinators.all_open() if each.deadline_ns < before_ns]
        if not late:
            return Check()
        named = [f"{each.transaction_id} ({each.state.words})" for each in late]
        told = f"transactions are open for {LATE_TRANSACTIONS_NS // NANOS_PER_SECOND} s longer than their timeout"
        return Check("warn", f"{told}, and readers wait behind them: {_first(named)}; see to the disk and the journals")

    def _upkeep_works(self) -> Check:
        failing = [f"{work} ({why})" for work, why in self._upkeep.failing.items()]
        if not failing:
            return Check()
        return Check(
            "warn", f"the last round of upkeep failed: {_first(failing)}; it is tried again: see to the reason"
        )

    def _traces(self) -> Check:
        trouble = self._broker.tracing.trouble
        if not trouble:
            return Check()
        return Check("warn", f"what happens to messages is not kept in files: {trouble}; messages are not affected")

    def _damage(self) -> Check:
        found = self.damage()
        if not found:
            return Check()
        advice = (
            "the others can be read; restore the data folder from a backup if these are needed, or accept the loss of "
            "what is gone with 'goqueue damage acknowledge'"
        )
        if any(partition.damaged for topic in self._broker.running_topics() for partition in topic.partitions):
            advice += ", and of what fails its checksum after 'goqueue doctor --repair' beside a stopped broker"
        return Check("warn", f"messages are damaged or gone: {_first(found)}; {advice}")


def _name_of(folder: Path) -> str:
    """A partition as people know it: its topic and number."""
    return f"{folder.parent.name.rpartition('~')[0] or folder.parent.name}/{folder.name}"


def _failing(damaged: set[int]) -> str:
    """In words, messages that readers met and that still lie in their segment."""
    found = sorted(damaged)
    if len(found) == 1:
        return f"offset {found[0]} fails its checksum"
    return f"offsets {_first([str(each) for each in found])} fail their checksums"


def _first(named: list[str]) -> str:
    more = len(named) - MOST_NAMED
    return ", ".join(named[:MOST_NAMED]) + (f", and {more} more" if more > 0 else "")


def _counted(found: list[str], what: str) -> str:
    return f"1 {what} takes" if len(found) == 1 else f"{len(found)} {what}s take"
