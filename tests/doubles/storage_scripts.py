"""Short histories in which every call matters. At each of their calls many ways are tried in which a crash may end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import deepcopy
from random import Random

from doubles.ledger import Broken, Entry, Ledger
from doubles.messages import Ticking, batch_of, read_all
from doubles.power_loss import PowerLoss, PowerLossDisk
from doubles.storage_workload import KEYED, Process
from goqueue.model.errors import DiskFull
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules, Step
from goqueue.storage.log.log import Log
from goqueue.storage.log.truncation import CUT, truncate_to


class Script:
    """A process with one log of keyed messages, watched from the moment ``watch`` is called.

    What a crash leaves is opened again, held against the ledger, and searched for the damaged bytes that must be kept.
    """

    def __init__(self, rng: Random, outcomes: int, ignored: str | None) -> None:
        self._rng = rng
        self._outcomes = outcomes
        self.ignored = ignored
        self._clock = Ticking()
        self._serial = 0
        self.ledger = Ledger()
        self.disk = PowerLossDisk()
        self.disk.ignore_sync_from(ignored)
        self.created: set[str] = set()
        self.damaged: list[bytes] = []
        self.is_dense = False
        """Whether no offset may be left out."""

    def start(self) -> None:
        """Also again: the process before is gone then, and the machine goes on."""
        self.disk.release_locks()
        self.process = Process(self.disk, self._clock, self.created, (KEYED,))

    @property
    def log(self) -> Log:
        return self.process.logs[KEYED]

    def watch(self) -> None:
        self.disk.before_call = self.look

    def look(self) -> None:
        """Try some of the ways in which a power loss right now may end."""
        for _ in range(self._outcomes):
            after = self.disk.crash(self._rng)
            after.ignore_sync_from(self.ignored)
            log = Process(after, self._clock, set(self.created), (KEYED,)).logs[KEYED]
            deepcopy(self.ledger).check(log)
            offsets = [message.offset for message in read_all(log)]
            if self.is_dense and offsets != list(range(log.end_offset)):
                raise Broken(f"offsets are left out: {offsets} of {log.end_offset}")
            asides = [after.content(log.folder / name) for name in after.list_dir(log.folder) if ".damaged-" in name]
            if any(all(piece not in aside for aside in asides) for piece in self.damaged):
                raise Broken("damaged bytes were thrown away")

    def append(self, number: int) -> None:
        self._serial += 1
        key, value = b"%d" % number, b"%08d" % self._serial
        self.ledger.appended(self.log.end_offset, [Entry(key, value)])
        self.log.append(batch_of([value], keys=[key]))

    async def write(self, *keys: int) -> None:
        """One message for each key, two to a segment, acknowledged."""
        for place, number in enumerate(keys):
            self.append(number)
            if place % 2:
                self.log.roll()
        await self.process.scheduler.reached(self.log, self.log.end_offset)
        self.ledger.acked(self.log.end_offset)

    def pass_over(self, *, max_keys: int = 1_000, until: str | None = None) -> None:
        """A compaction, or one that is dropped before the step of this name."""
        self.ledger.superseded(self.log.durable_offset)
        for step in compact(self.log, CompactionRules(self.log.durable_offset, 10**9, max_keys)):
            if step is None:
                continue
            if _name(step) == until:
                return
            step()

    def damage(self, offset: int) -> None:
        """Turn a bit in a message of the active segment."""
        path = self.log.active.log_path
        content = self.disk.content(path)
        value = self.ledger.may[offset].value
        broken = value[:-1] + b"!"
        self.disk.damage(path, lambda _: content.replace(value, broken))
        self.damaged.append(broken)
        self.ledger.released([offset])
        if offset == self.log.end_offset - 1:
            # Without a recovery point nobody knows that the offset was ever used.
            self.ledger.acked_end = offset

    def cut(self, offset: int) -> None:
        self.ledger.truncating(offset)
        truncate_to(self.log, offset, lambda: self.process.forget_point(KEYED))
        self.ledger.truncated(offset)


def _name(step: Step) -> str:
    return getattr(getattr(step, "func", step), "__name__", "")


async def compact_twice(script: Script) -> None:
    script.start()
    await script.write(0, 1, 2, 3, 4, 5, 4, 5)
    script.watch()
    script.pass_over(max_keys=4)
    script.pass_over()


async def compact_after_one_was_dropped(script: Script) -> None:
    script.start()
    await script.write(0, 1, 2, 3, 4, 5, 4, 5)
    script.watch()
    script.pass_over(max_keys=4, until="conclude")
    script.pass_over()


async def cut_what_was_compacted(script: Script) -> None:
    script.start()
    await script.write(0, 1, 2, 3, 4, 0, 1, 2, 3, 4)
    script.pass_over()
    script.watch()
    script.cut(7)


async def cut_what_was_not_synced(script: Script) -> None:
    script.start()
    script.watch()
    script.append(0)
    script.log.roll()
    for number in range(1, 4):
        script.append(number)
    script.cut(2)
    # Before, a power loss may leave anything of it.
    script.is_dense = True
    script.look()
    script.append(4)
    script.look()


async def cut_whole_segments(script: Script) -> None:
    script.is_dense = True
    script.start()
    await script.write(0, 1)
    await script.write(2, 3, 4, 5)
    script.watch()
    script.cut(2)
    await script.write(6)
    script.look()


async def start_after_a_cut_that_was_killed(script: Script) -> None:
    script.is_dense = True
    is_over = False
    call = 0
    while not is_over:
        call += 1
        script.disk = PowerLossDisk()
        script.disk.ignore_sync_from(script.ignored)
        script.created, script.ledger = set(), Ledger()
        script.start()
        await script.write(0, 1, 2, 3, 4)
        script.disk.fail_at = script.disk.calls + call
        try:
            script.cut(3)
            is_over = True
        except PowerLoss:
            pass
        script.disk.revive()
        if any(name.endswith(CUT) for name in script.disk.list_dir(script.log.folder)):
            script.watch()
        script.start()
        script.disk.before_call = lambda: None
        await script.write(5)
        script.look()


async def recover_from_damage(script: Script) -> None:
    script.start()
    await script.write(0, 1, 2)
    script.damage(2)
    script.watch()
    script.start()


async def recover_from_damage_before_valid_messages(script: Script) -> None:
    script.start()
    await script.write(0)
    await script.write(1)
    await script.write(2)
    script.damage(1)
    script.watch()
    script.start()
    await script.write(3)


async def start_after_a_start_that_was_killed(script: Script) -> None:
    for call in range(1, 16):
        script.disk = PowerLossDisk()
        script.disk.ignore_sync_from(script.ignored)
        script.created, script.ledger = set(), Ledger()
        script.disk.fail_at = call
        with suppress(PowerLoss):
            script.start()
        script.disk.revive()
        script.start()
        await script.write(0)
        script.look()


async def start_after_a_kill_before_the_fsync(script: Script) -> None:
    script.start()
    for number in range(4):
        script.append(number)
        script.log.roll()
    script.start()
    script.ledger.check(script.log)
    script.look()


async def append_after_the_disk_was_full(script: Script) -> None:
    script.start()
    await script.write(0)
    one = script.log.size_bytes
    script.disk.quota = script.disk.used_bytes() + 2 * one + one // 2
    with suppress(DiskFull):
        script.log.append(batch_of([b"refused!"] * 3, keys=[b"0"] * 3))
    script.disk.quota = None
    script.append(1)
    script.look()


async def open_a_log_whose_folder_is_missing(script: Script) -> None:
    script.created.add(KEYED)
    script.start()
    await script.write(0)
    script.look()


SCRIPTS = (
    compact_twice,
    compact_after_one_was_dropped,
    cut_what_was_compacted,
    cut_what_was_not_synced,
    cut_whole_segments,
    start_after_a_cut_that_was_killed,
    recover_from_damage,
    recover_from_damage_before_valid_messages,
    start_after_a_start_that_was_killed,
    start_after_a_kill_before_the_fsync,
    append_after_the_disk_was_full,
    open_a_log_whose_folder_is_missing,
)


def run_script(
    script: Callable[[Script], Awaitable[None]], seed: int, *, outcomes: int = 10, ignored: str | None = None
) -> set[str]:
    """Raises ``Broken`` if a crash at some call can break a promise. Returns the call sites of the syncs."""

    async def run() -> set[str]:
        stage = Script(Random(seed), outcomes, ignored)
        await script(stage)
        return stage.disk.sites

    try:
        return asyncio.run(run())
    except Exception as error:
        raise Broken(f"{script.__name__} with seed {seed}: {error!r}") from error
