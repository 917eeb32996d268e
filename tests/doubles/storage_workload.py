"""A broker's life with its storage, driven by a seed, on a disk that may lose power at any call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from doubles.frame_oracle import LENGTHS, LENGTHS_AT
from doubles.inline import InlineExecutor
from doubles.ledger import Broken, Entry, Ledger
from doubles.messages import Ticking, batch_of
from doubles.power_loss import PowerLoss, PowerLossDisk
from goqueue.storage.files.checkpoint import CheckpointFile, RecoveryPoint
from goqueue.storage.files.data_folder import DataFolder
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import Log, LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recoverable import Recoverable
from goqueue.storage.log.recovery import open_log
from goqueue.storage.log.swap import MANIFEST
from goqueue.storage.log.truncation import at_once, plan_cut, truncate_to
from goqueue.wire.frame import HEADER_SIZE

ROOT = Path("/srv/goqueue")
OPTIONS = LogOptions(segment_bytes=1_500, index_interval_bytes=300)
PLAIN, KEYED = "plain", "keyed"
_KEYS = [b"a", b"b", b"c", b"d"]


class Process:
    """One run of a broker: everything in memory, gone when it stops."""

    def __init__(self, disk: PowerLossDisk, clock: Ticking, created: set[str], names: tuple[str, ...]) -> None:
        self.disk = disk
        self.folder = DataFolder(disk, ROOT)
        self.scheduler = GroupCommit(disk, ROOT)
        self.scheduler._thread = InlineExecutor()  # type: ignore[assignment]
        self.checkpoint = CheckpointFile(disk, self.folder.checkpoint)
        self.points: dict[str, RecoveryPoint] = self.checkpoint.load()
        self.logs: dict[str, Log] = {}
        open_files = OpenFiles(disk, 12)
        for name in names:
            home = self.folder.topic_folder(name, "0")
            if name not in created:
                self.folder.create_partitions(home, 1)
                created.add(name)
            self.logs[name] = open_log(open_files, home / "0", OPTIONS, clock, self.points.get(name))

    async def save_points(self) -> None:
        """As the broker does it: note the state, make it durable, then vouch for it."""
        points = {name: (log.end_offset, log.recovery_point()) for name, log in self.logs.items()}
        await self.scheduler.sync(self.logs.values())
        for name, (end, point) in points.items():
            if self.logs[name].durable_offset >= end:
                self.points[name] = point
        self.checkpoint.save(self.points)

    def forget_point(self, name: str) -> None:
        self.points.pop(name, None)
        self.checkpoint.save(self.points)


class Workload:
    """Lives of one machine. ``run`` goes on until the power is lost; ``check`` starts again on what is left."""

    def __init__(self, seed: int, *, ignored: str | None = None) -> None:
        self.rng = Random(seed)
        self.clock = Ticking()
        self.ignored = ignored
        self.ledgers = {PLAIN: Ledger(), KEYED: Ledger()}
        self.sites: set[str] = set()
        self.disk = PowerLossDisk()
        self.disk.ignore_sync_from(ignored)
        self._serial = 0
        self.profile = seed % 3
        """Which steps are likely: a bit of everything, compaction, or retention."""
        self.first_start_fails = seed % 10 == 5
        self.created: set[str] = set()
        self.process: Process | None = None
        self.damaged: list[tuple[Path, bytes]] = []
        self.removed_topics: set[str] = set()

    def live_and_crash(self, lives: int = 2) -> None:
        for life in range(lives):
            killed = self.rng.random() < 0.25
            if life == 0 and self.first_start_fails:
                killed, self.disk.fail_at = True, self.rng.randint(1, 12)
            asyncio.run(self._live())
            self.sites |= self.disk.sites
            if killed:
                # Only the process died.
                self.disk.revive()
            else:
                self.disk = self.disk.crash(self.rng)
                self.disk.ignore_sync_from(self.ignored)
        self.disk = self.disk.crash(self.rng)
        self.disk.ignore_sync_from(self.ignored)
        self._start()
        self.sites |= self.disk.sites

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        lost = loop.create_future()
        self.disk.fail_at = self.disk.fail_at or self.disk.calls + self.rng.choice(
            (1, 20, 100, 300)
        ) + self.rng.randrange(100)
        self.disk.on_power_loss = lambda: lost.done() or lost.set_result(None)
        life = asyncio.create_task(self._work())
        await asyncio.wait({life, lost}, return_when=asyncio.FIRST_COMPLETED)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        if life.done():
            with suppress(PowerLoss):
                life.result()

    async def _work(self) -> None:
        self._start()
        steps: dict[Callable[[], object], tuple[int, int, int]] = {
            self._append: (12, 12, 10),
            self._roll: (2, 6, 2),
            self._save_points: (3, 2, 2),
            self._retention: (2, 1, 6),
            self._compaction: (3, 12, 1),
            self._truncation: (2, 3, 0),
            self._restart: (2, 1, 2),
            self._damage: (2, 0, 0),
            self._many: (1, 0, 0),
            self._short_lived_topic: (1, 0, 0),
        }
        weights = [each[self.profile] for each in steps.values()]
        while True:
            (step,) = self.rng.choices(list(steps), weights)
            self._fail_soon(0.01)
            outcome = step()
            if asyncio.iscoroutine(outcome):
                await outcome

    def _fail_soon(self, likelihood: float, within: int = 12) -> None:
        """Where a few calls belong together, a crash among them is the likeliest to do harm."""
        if self.disk.fail_at is not None and self.rng.random() < likelihood:
            self.disk.fail_at = min(self.disk.fail_at, self.disk.calls + 1 + self.rng.randrange(within))

    def _start(self) -> None:
        self.disk.release_locks()
        self.process = Process(self.disk, self.clock, self.created, (PLAIN, KEYED))
        for name, log in self.process.logs.items():
            self.ledgers[name].check(log)
        self._check_quarantine()
        back = self.removed_topics & set(self.disk.list_dir(self.process.folder.logs))
        if back:
            raise Broken(f"removed topics came back: {back}")

    # Steps

    def _pick(self) -> tuple[str, Log, Ledger]:
        assert self.process is not None
        name = self.rng.choice(((PLAIN, KEYED), (KEYED,), (PLAIN,))[self.profile])
        return name, self.process.logs[name], self.ledgers[name]

    async def _append(self) -> None:
        assert self.process is not None
        name, log, ledger = self._pick()
        self._write(name, log, ledger)
        if self.rng.random() < 0.6:
            end = log.end_offset
            await self.process.scheduler.reached(log, end)
            ledger.acked(end)

    def _write(self, name: str, log: Log, ledger: Ledger) -> None:
        count = self.rng.randint(1, 4)
        stamped = name == PLAIN and self.rng.random() < 0.5
        keys = [self.rng.choice(_KEYS) if name == KEYED else b"" for _ in range(count)]
        values = [self._value(tombstone=name == KEYED and self.rng.random() < 0.1) for _ in range(count)]
        batch = batch_of(values, keys=keys, timestamps=[self.clock() for _ in values], stamped=stamped)
        first = log.end_offset
        entries = [
            Entry(key, value, first if stamped else None, count) for key, value in zip(keys, values, strict=True)
        ]
        ledger.appended(first, entries)
        assert log.append(batch) == first

    def _value(self, *, tombstone: bool) -> bytes:
        if tombstone:
            return b""
        self._serial += 1
        size = 60 if self.rng.random() < 0.5 else self.rng.choice((10, 200, 700))
        return b"%08d" % self._serial * (size // 8)

    def _roll(self) -> None:
        _, log, _ = self._pick()
        log.roll()

    async def _save_points(self) -> None:
        assert self.process is not None
        await self.process.save_points()
        for name, log in self.process.logs.items():
            self.ledgers[name].acked(log.durable_offset)

    async def _retention(self) -> None:
        assert self.process is not None
        log, ledger = self.process.logs[PLAIN], self.ledgers[PLAIN]
        if self.rng.random() < 0.4:
            self.clock.now_ns += 10**12
            log.start_offset = log.expired(1_000, None)
        else:
            log.start_offset = log.expired(None, self.rng.choice((500, 2_000, 4_000)))
        ledger.forgotten_below(log.start_offset)
        await self._save_points()
        if self.process.points[PLAIN].start_offset == log.start_offset:
            Recoverable(log).point_saved(log.recovery_point())
            self._fail_soon(0.2)

    async def _compaction(self) -> None:
        assert self.process is not None
        log, ledger = self.process.logs[KEYED], self.ledgers[KEYED]
        ledger.superseded(log.durable_offset)
        rules = CompactionRules(log.durable_offset, self.rng.choice((0, 10**9)), self.rng.choice((2, 1_000)))
        steps = compact(log, rules)
        if any(name.endswith(MANIFEST) for name in self.disk.list_dir(log.folder)):
            self._fail_soon(0.5, 25)
        for step in steps:
            if step is not None:
                if self.rng.random() < 0.04:
                    break
                step()
                self._fail_soon(0.15)
                if self.rng.random() < 0.04:
                    break
            elif self.rng.random() < 0.1:
                self._write(KEYED, log, ledger)

    async def _truncation(self) -> None:
        assert self.process is not None
        name, log, ledger = self._pick()
        wanted = self.rng.randint(log.start_offset, log.end_offset)
        wanted = max(wanted, log.end_offset - 12)
        planned = at_once(plan_cut(log, wanted))
        target = log.end_offset if planned is None else planned.offset
        ledger.truncating(target)
        assert truncate_to(log, wanted, lambda: self._forget_point(name)) == target
        ledger.truncated(target)

    def _forget_point(self, name: str) -> None:
        assert self.process is not None
        self.process.forget_point(name)
        self._fail_soon(0.4, 25)

    def _restart(self) -> None:
        """The process is killed; the machine goes on."""
        self.process = None
        self._start()

    def _damage(self) -> None:
        """Turn a byte of a log file over and start again without recovery points."""
        assert self.process is not None
        name, log, ledger = self._pick()
        segment = self.rng.choice(log.segments)
        if not self.disk.exists(segment.log_path) or not self.disk.size(segment.log_path):
            return
        self.process.forget_point(name)
        content = self.disk.content(segment.log_path)
        place = self.rng.randrange(len(content))
        start, end = _frame_around(content, place)
        if segment is not log.active and 8 <= place - start < 16:
            # No checksum covers an offset, and where there are gaps a wrong one may look right.
            return
        offset = int.from_bytes(content[start + 8 : start + 16])
        entry = ledger.may[offset]
        ledger.damaged([offset] if entry.batch is None else list(range(entry.batch, entry.batch + entry.batch_size)))
        ledger.acked_end = min(ledger.acked_end, segment.base)
        flipped = content[:place] + bytes([content[place] ^ (1 << self.rng.randrange(8))]) + content[place + 1 :]
        self.disk.damage(segment.log_path, lambda _: flipped)
        self.damaged.append((log.folder, flipped[start:end]))
        self._fail_soon(0.3)
        self._restart()

    async def _many(self) -> None:
        """More dirty files than are synced one by one."""
        assert self.process is not None
        log, ledger = self.process.logs[PLAIN], self.ledgers[PLAIN]
        for _ in range(18):
            self._write(PLAIN, log, ledger)
            log.roll()
        await self._save_points()

    def _short_lived_topic(self) -> None:
        assert self.process is not None
        self._serial += 1
        folder = self.process.folder.topic_folder("brief", str(self._serial))
        self.process.folder.create_partitions(folder, 1)
        self._fail_soon(0.1)
        self.process.folder.remove_topic(folder)
        self.removed_topics.add(folder.name)
        self._fail_soon(0.3)

    def _check_quarantine(self) -> None:
        """What was found damaged is kept for a person to look at."""
        for folder, piece in self.damaged:
            names = [name for name in self.disk.list_dir(folder) if ".damaged-" in name]
            if not any(piece in self.disk.content(folder / name) for name in names):
                raise Broken(f"damaged bytes were thrown away: {piece[:60]!r}")


def _frame_around(content: bytes, place: int) -> tuple[int, int]:
    start = 0
    while True:
        end = start + HEADER_SIZE + sum(LENGTHS.unpack_from(content, start + LENGTHS_AT))
        if end > place:
            return start, end
        start = end


def run_seed(seed: int, *, ignored: str | None = None) -> Workload:
    """One history. Raises ``Broken`` (with the seed) if a promise was not kept."""
    workload = Workload(seed, ignored=ignored)
    try:
        workload.live_and_crash()
    except Exception as error:
        raise Broken(f"seed {seed}: {error!r}") from error
    return workload
