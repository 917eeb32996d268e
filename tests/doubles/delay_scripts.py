"""Short lives of delayed messages on a disk that may lose power at any call; what was told of them must hold.

A script runs once. Before every call that changes the disk, what a power loss would leave now is put aside together
with what was told so far. Afterwards a broker is started on each of these disks; time goes on, and the power may go a
second time meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from behaviour.clock import MS, ManualClock

import goqueue.storage.log.group_commit
from doubles.delay_ledger import TOPIC, Shown, Told, at_rest, shown_by
from doubles.group_scripts import CONFIG as GROUP_CONFIG
from doubles.inline import InlineExecutor
from doubles.ledger import Broken
from doubles.power_loss import PowerLossDisk
from goqueue.broker.broker import Broker
from goqueue.broker.partitions.partition_delays import FILE_NAME
from goqueue.delivery.delay_index import PendingDelays
from goqueue.delivery.wheel import TICK_NS
from goqueue.model.publish_result import Published
from goqueue.model.publishing import NewMessage
from goqueue.storage.files.atomic import read_checked
from goqueue.storage.log.log import Log
from goqueue.wire.batch import join_frames, parse_batch
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_frame, encode_headers

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
TICK_MS = TICK_NS // MS
CONFIG = replace(GROUP_CONFIG, storage=replace(GROUP_CONFIG.storage, compaction_min_dirty_ratio=0.01))

Script = Callable[["Stage"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a delayed message waits."""

    value: bytes
    offset: int


class Stage:
    """A broker with one topic of one partition, and what was told of it."""

    def __init__(self, rng: Random, outcomes: int, every: int = 1) -> None:
        self.rng = rng
        self.outcomes = outcomes
        self._every = every
        self._calls = 0
        self.clock = ManualClock()
        self.told = Told(self.clock.now_ns())
        self.disk = PowerLossDisk()
        self.left: list[tuple[PowerLossDisk, Told]] = []
        self._serial = 0
        self.broker: Broker

    def _put_aside(self) -> None:
        self._calls += 1
        if self._calls % self._every:
            return
        for _ in range(self.outcomes):
            self.left.append((self.disk.crash(self.rng), self.told.copy()))

    async def start(self) -> None:
        self.broker = Broker(CONFIG, files=self.disk, clock=self.clock)
        await self.broker.start()
        self.broker.clockwork.ring()
        await at_rest(self.broker)

    async def topic(self, **settings: object) -> None:
        """From here on the power may go."""
        await self.broker.create_topic(TOPIC, settings)
        self.told.lasting = settings.get("fsync", "always") == "always"
        self.disk.before_call = self._put_aside

    async def restart(self) -> None:
        await self.broker.close()
        self.disk.release_locks()
        await self.start()

    async def kill(self) -> None:
        """As a process ends that is killed: what is in the page cache stays."""
        before, self.disk.before_call = self.disk.before_call, lambda: None
        copy = self.disk.crash(_Keeping())
        with suppress(Exception):
            await self.broker.close()
        self.disk = copy
        self.disk.before_call = before
        await self.start()

    @property
    def log(self) -> Log:
        return self.broker.topic(TOPIC).partitions[0].log

    # Messages

    def _value(self, due_ns: int | None) -> bytes:
        self._serial += 1
        value = b"v%03d" % self._serial
        self.told.may_publish.add(value)
        if due_ns is not None:
            self.told.dues[value] = {due_ns}
        return value

    async def publish(self, *delays_ms: int, key: bytes | None = None) -> list[Place]:
        """Delayed by so much; 0 is not at all."""
        messages = []
        for delay_ms in delays_ms:
            due_ns = self.clock.now_ns() + delay_ms * MS
            messages.append(NewMessage(self._value(due_ns if delay_ms else None), key, deliver_at_ns=due_ns))
        outcomes = await self.broker.publish(TOPIC, messages)
        places = []
        for message, outcome in zip(messages, outcomes, strict=True):
            assert isinstance(outcome, Published), outcome
            places.append(Place(message.value or b"", outcome.offset))
        await self._answered({place.value for place in places})
        return places

    async def publish_frames(self, *delays_ms: int, key: bytes = b"") -> list[Place]:
        """The same as a client does it that encodes frames itself: some are due at a time, some in a while."""
        now_ns = self.clock.now_ns()
        frames, values = [], []
        for number, delay_ms in enumerate(delays_ms):
            values.append(self._value(now_ns + delay_ms * MS if delay_ms else None))
            relative = number % 2 == 1
            header = due_header(delay_ms * MS + (0 if relative else now_ns), relative=relative)
            headers = encode_headers((("mine", b"1"), header)) if delay_ms else b""
            frames.append(encode_frame(key, values[-1], headers, now_ns, flags=int(Flag.DELAYED) if delay_ms else 0))
        first = await self.broker.publish_frames(TOPIC, 0, parse_batch(join_frames(frames, now_ns).to_wire()))
        await self._answered(set(values))
        return [Place(value, first + number) for number, value in enumerate(values)]

    async def _answered(self, values: set[bytes]) -> None:
        if self.told.lasting:
            self.told.published |= values

    async def cancel(self, place: Place) -> None:
        self.told.may_cancel.add(place.value)
        await self.broker.delays.cancel(TOPIC, 0, place.offset)
        if self.told.lasting:
            self.told.cancelled.add(place.value)

    async def reschedule(self, place: Place, delay_ms: int) -> None:
        due_ns = self.clock.now_ns() + delay_ms * MS
        self.told.dues[place.value].add(due_ns)
        await self.broker.delays.reschedule(TOPIC, 0, place.offset, deliver_at_ns=due_ns)
        if self.told.lasting:
            self.told.dues[place.value] = {due_ns}

    async def sync(self) -> None:
        """As it happens every now and then: all that was answered so far is promised from now on."""
        told = self.told
        await self.broker._upkeep.sync_by_interval()
        told.published |= told.may_publish
        told.cancelled |= told.may_cancel

    # Time, and what a broker does by itself

    async def pass_time(self, milliseconds: int) -> Shown:
        self.clock.advance_ms(milliseconds)
        self.told.now_ns = self.clock.now_ns()
        self.broker.clockwork.ring()
        return await self.look()

    async def look(self) -> Shown:
        shown = await shown_by(self.broker)
        self.told.look(shown)
        return shown

    def roll(self) -> None:
        """What comes next lies in another segment."""
        self.log.roll()

    async def save(self) -> None:
        end, waiting = self.log.end_offset, len((await self.look()).waits)
        changes = self.broker.topic(TOPIC).partitions[0].delays.changes
        await self.broker.delays.save(everything=True)
        payload = read_checked(self.disk, self.log.folder / FILE_NAME)
        if changes and (payload is None or PendingDelays.load(payload)[0] < end):
            raise Broken(f"the file of delays was not written, and {waiting} wait")

    async def checkpoint(self) -> None:
        await self.broker._upkeep.checkpoint()

    async def expire(self) -> None:
        shown = await self.look()
        self.told.may_vanish |= set(shown.values)
        await self.broker._upkeep.expire()
        await self.broker._upkeep.checkpoint()

    async def compact(self) -> None:
        shown = await self.look()
        self.told.may_vanish |= set(shown.values[:-1])
        await self.broker._upkeep.compact()

    def segments(self) -> list[int]:
        return [segment.base for segment in self.log.segments]


class _Keeping(Random):
    """Of all that may survive, everything does."""

    def random(self) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return seq[-1]


# Scripts


async def become_visible(stage: Stage) -> None:
    await stage.topic()
    await stage.publish(SECOND_MS, 0, 3 * SECOND_MS)
    await stage.publish_frames(2 * SECOND_MS, 2 * SECOND_MS, 0)
    assert len((await stage.pass_time(SECOND_MS + TICK_MS)).seen) == 3
    await stage.publish(0, SECOND_MS)
    await stage.restart()
    assert len((await stage.look()).seen) == 4
    await stage.pass_time(SECOND_MS)
    await stage.restart()
    assert not (await stage.pass_time(SECOND_MS)).waits


async def cancel_and_reschedule(stage: Stage) -> None:
    await stage.topic()
    places = await stage.publish(*[SECOND_MS] * 4, HOUR_MS)
    places += await stage.publish_frames(SECOND_MS, SECOND_MS)
    await stage.cancel(places[0])
    await stage.cancel(places[5])
    await stage.reschedule(places[1], 2 * SECOND_MS)
    await stage.reschedule(places[2], SECOND_MS)
    await stage.reschedule(places[4], SECOND_MS)
    assert len((await stage.pass_time(SECOND_MS + TICK_MS)).seen) == 4
    await stage.restart()
    await stage.publish(0)
    await stage.cancel(places[1])
    await stage.pass_time(HOUR_MS)


async def write_down_what_waits(stage: Stage) -> None:
    """Now and then, and go on from there after the process was killed."""
    await stage.topic()
    places = await stage.publish(SECOND_MS, 2 * SECOND_MS, 3 * SECOND_MS, HOUR_MS)
    await stage.save()
    await stage.cancel(places[2])
    await stage.pass_time(SECOND_MS + TICK_MS)
    await stage.kill()
    await stage.reschedule(places[3], 4 * SECOND_MS)
    await stage.save()
    await stage.pass_time(SECOND_MS)
    await stage.checkpoint()
    await stage.publish(SECOND_MS)
    await stage.save()
    await stage.kill()
    await stage.pass_time(HOUR_MS)


async def write_down_what_is_not_on_the_disk_yet(stage: Stage) -> None:
    """Under ``fsync: interval`` what was written last may be lost in part, and what the file tells with it."""
    await stage.topic(fsync="interval")
    places = await stage.publish(SECOND_MS, SECOND_MS, 2 * SECOND_MS, HOUR_MS)
    await stage.sync()
    await stage.pass_time(SECOND_MS + TICK_MS)
    await stage.cancel(places[3])
    await stage.publish(0, SECOND_MS)
    await stage.save()
    await stage.publish(0)
    await stage.pass_time(SECOND_MS)
    await stage.sync()
    await stage.publish(SECOND_MS)
    await stage.kill()
    await stage.pass_time(SECOND_MS)
    await stage.save()


async def expire_around_those_that_wait(stage: Stage) -> None:
    """The files of what waits are kept although the start moves past them, and those that tell of their end go."""
    await stage.topic(retention_ms=MINUTE_MS)
    await stage.publish(0)
    stage.roll()
    await stage.publish(2 * HOUR_MS, SECOND_MS, 2 * SECOND_MS, HOUR_MS)
    await stage.publish_frames(SECOND_MS, 0)
    stage.roll()
    places = await stage.publish(2 * HOUR_MS, SECOND_MS)
    await stage.cancel(places[0])
    await stage.pass_time(3 * SECOND_MS)
    stage.roll()
    await stage.publish(0)
    await stage.pass_time(2 * MINUTE_MS)
    await stage.expire()
    await stage.publish(0)
    await stage.kill()
    assert stage.log.start_offset > 8
    await stage.look()
    await stage.publish(SECOND_MS)
    await stage.pass_time(HOUR_MS)
    stage.roll()
    await stage.pass_time(2 * MINUTE_MS)
    await stage.expire()
    await stage.pass_time(HOUR_MS)
    await stage.expire()


async def expire_what_is_not_on_the_disk_yet(stage: Stage) -> None:
    """A file whose last message became visible goes only when that is on the disk."""
    await stage.topic(retention_ms=MINUTE_MS, fsync="interval")
    await stage.publish(SECOND_MS, 2 * MINUTE_MS)
    stage.roll()
    await stage.publish(0, HOUR_MS)
    await stage.sync()
    await stage.pass_time(2 * MINUTE_MS + TICK_MS)
    stage.roll()
    await stage.publish(0)
    await stage.expire()
    await stage.publish(0)
    await stage.sync()
    await stage.pass_time(2 * MINUTE_MS)
    await stage.expire()


async def expire_what_the_file_of_delays_still_names(stage: Stage) -> None:
    await stage.topic(retention_ms=MINUTE_MS)
    await stage.publish(SECOND_MS)
    await stage.save()
    stage.roll()
    await stage.pass_time(SECOND_MS + TICK_MS)
    stage.roll()
    await stage.pass_time(2 * MINUTE_MS)
    await stage.publish(0)
    await stage.expire()
    await stage.publish(SECOND_MS)


async def compact_around_those_that_wait(stage: Stage) -> None:
    """What tells of an end stays until the original is gone: else a start would take it for pending again."""
    await stage.topic(cleanup="compact", tombstone_retention_ms=0)
    places = await stage.publish(SECOND_MS, HOUR_MS, HOUR_MS, key=b"k")
    await stage.publish_frames(SECOND_MS, 2 * SECOND_MS, key=b"k")
    stage.roll()
    await stage.cancel(places[1])
    await stage.pass_time(SECOND_MS + TICK_MS)
    await stage.publish(0, key=b"k")
    stage.roll()
    await stage.compact()
    await stage.reschedule(places[2], 2 * SECOND_MS)
    await stage.pass_time(SECOND_MS)
    await stage.save()
    await stage.publish(0, key=b"k")
    stage.roll()
    await stage.compact()
    await stage.kill()
    await stage.pass_time(SECOND_MS)
    await stage.publish(0, key=b"k")
    stage.roll()
    await stage.compact()
    await stage.kill()


async def compact_what_is_not_on_the_disk_yet(stage: Stage) -> None:
    """An original stays until what it became is on the disk."""
    await stage.topic(cleanup="compact", fsync="interval")
    places = await stage.publish(SECOND_MS, HOUR_MS, HOUR_MS, key=b"k")
    await stage.publish(0, key=b"j")
    stage.roll()
    await stage.sync()
    await stage.pass_time(SECOND_MS + TICK_MS)
    await stage.cancel(places[1])
    await stage.compact()
    await stage.publish(0, key=b"i")


async def become_visible_while_a_recovery_point_is_written(stage: Stage) -> None:
    """The point tells from where a start looks for those that wait; what lies behind that must not go."""
    await stage.topic(retention_ms=MINUTE_MS)
    await _let_one_come_between(stage)


async def become_visible_unsynced_while_a_recovery_point_is_written(stage: Stage) -> None:
    await stage.topic(retention_ms=MINUTE_MS, fsync="interval")
    await _let_one_come_between(stage)


async def _let_one_come_between(stage: Stage) -> None:
    await stage.publish(HOUR_MS, SECOND_MS)
    stage.roll()
    await stage.sync()
    await stage.pass_time(SECOND_MS + TICK_MS)
    stage.roll()
    await stage.publish(0)
    await stage.sync()
    await stage.pass_time(2 * MINUTE_MS)
    shown = await stage.look()
    stage.told.may_vanish |= set(shown.values)
    loop, file = asyncio.get_running_loop(), stage.broker.checkpoints._file
    save = file.save

    def then_pass_time(points: Any) -> None:
        save(points)
        file.save = save  # type: ignore[method-assign]
        asyncio.run_coroutine_threadsafe(stage.pass_time(HOUR_MS), loop).result(60)

    file.save = then_pass_time  # type: ignore[method-assign]
    await stage.broker._upkeep.expire()
    await stage.publish(0)


async def note_how_far_it_is_on_the_disk(stage: Stage) -> None:
    """Recovery points vouch for what was never waited for."""
    await stage.topic(fsync="interval", retention_ms=MINUTE_MS)
    await stage.publish(SECOND_MS, HOUR_MS)
    await stage.checkpoint()
    await stage.pass_time(SECOND_MS + TICK_MS)
    stage.roll()
    await stage.publish(0, MINUTE_MS)
    await stage.checkpoint()
    stage.roll()
    await stage.pass_time(2 * MINUTE_MS)
    await stage.expire()
    await stage.publish(0)


_BY_ITSELF = ("upkeep", "roll", "checkpoint")


async def do_as_chance_says(stage: Stage) -> None:
    rng = Random(stage.rng.random())
    cleanup = rng.choice(("delete", "compact"))
    fsync = rng.choice(("always", "always", "interval"))
    await stage.topic(cleanup=cleanup, fsync=fsync, retention_ms=MINUTE_MS, tombstone_retention_ms=0)
    places: list[Place] = []
    delays_ms = (0, 10, SECOND_MS, 2 * SECOND_MS, MINUTE_MS, HOUR_MS)
    for _ in range(25):
        waiting = {value for value, _ in (await stage.look()).waits}
        places = [place for place in places if place.value in waiting]
        chosen = [rng.choice(delays_ms) for _ in range(rng.randint(1, 4))]
        key = rng.choice((b"j", b"k"))
        match rng.choice(
            (*["publish"] * 2, *["time"] * 2, "frames", "cancel", "again", "save", "sync", *_BY_ITSELF, "kill", "stop")
        ):
            case "publish":
                places += await stage.publish(*chosen, key=key)
            case "frames":
                places += await stage.publish_frames(*chosen, key=key)
            case "cancel" if places:
                await stage.cancel(rng.choice(places))
            case "again" if places:
                await stage.reschedule(rng.choice(places), rng.choice(delays_ms[1:]))
            case "time":
                await stage.pass_time(rng.choice(delays_ms))
            case "save":
                await stage.save()
            case "sync":
                await stage.sync()
            case "upkeep":
                stage.roll()
                await (stage.compact() if cleanup == "compact" else stage.expire())
            case "checkpoint":
                await stage.checkpoint()
            case "roll":
                stage.roll()
            case "kill":
                await stage.kill()
            case "stop":
                await stage.restart()


SCRIPTS: tuple[Script, ...] = (
    note_how_far_it_is_on_the_disk,
    write_down_what_is_not_on_the_disk_yet,
    become_visible,
    cancel_and_reschedule,
    write_down_what_waits,
    expire_around_those_that_wait,
    expire_what_is_not_on_the_disk_yet,
    expire_what_the_file_of_delays_still_names,
    compact_around_those_that_wait,
    compact_what_is_not_on_the_disk_yet,
    become_visible_while_a_recovery_point_is_written,
    become_visible_unsynced_while_a_recovery_point_is_written,
    do_as_chance_says,
)


def run_delay_script(script: Script, seed: int, *, outcomes: int = 1, every: int = 1) -> int:
    """Raises ``Broken`` if a crash at some call can break a promise. Returns how many crashes were tried.

    ``every``: of so many calls, only one is looked at.
    """
    before = goqueue.storage.log.group_commit.ThreadPoolExecutor
    goqueue.storage.log.group_commit.ThreadPoolExecutor = lambda *_, **__: InlineExecutor()  # type: ignore[assignment,misc]
    name = f"{script.__name__} with seed {seed}"
    try:
        stage = Stage(Random(seed), outcomes, every)
        asyncio.run(_play(stage, script, name))
        asyncio.run(_check_all(stage.left, stage.rng, name))
        return len(stage.left)
    finally:
        goqueue.storage.log.group_commit.ThreadPoolExecutor = before  # type: ignore[misc]


async def _play(stage: Stage, script: Script, name: str) -> None:
    try:
        await stage.start()
        await script(stage)
        await stage.look()
        await stage.broker.close()
    except Exception as error:
        raise Broken(f"{name}, without any crash: {error!r}") from error


async def _check_all(left: Iterable[tuple[PowerLossDisk, Told]], rng: Random, name: str) -> None:
    for place, (disk, told) in enumerate(left):
        try:
            second = _Second(rng)
            await _check(disk, told, second)
            if second.disk is not None and second.told is not None:
                await _check(second.disk, second.told, None)
        except Exception as error:
            raise Broken(f"{name}, crash {place} of {len(list(left))}: {error!r}") from error


class _Second:
    """One of the calls at which the power may go again, chosen among all of them."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._calls = 0
        self.disk: PowerLossDisk | None = None
        self.told: Told | None = None

    def watch(self, disk: PowerLossDisk, told: Told) -> None:
        def look() -> None:
            self._calls += 1
            if self._rng.random() < 1 / self._calls:
                self.disk, self.told = disk.crash(self._rng), told.copy()

        disk.before_call = look


async def _check(disk: PowerLossDisk, told: Told, second: _Second | None) -> None:
    """Start, see that all is as it was told; then let time pass, and see that all becomes visible."""
    if second is not None:
        second.watch(disk, told)
    clock = ManualClock(told.now_ns)
    broker = Broker(CONFIG, files=disk, clock=clock)
    await broker.start()
    try:
        if broker.damage():
            raise Broken(f"a power loss looks like damage: {broker.damage()}")
        broker.clockwork.ring()
        shown = await shown_by(broker)
        told.look(shown)
        if shown.waits:
            await _let_pass(broker, clock, told, shown)
    finally:
        with suppress(Exception):
            await broker.close()


async def _let_pass(broker: Broker, clock: ManualClock, told: Told, shown: Shown) -> None:
    dues = [due_ns for _, due_ns in shown.waits]
    for until_ns, seen in ((dues[0] - 1, 0), (dues[0] + TICK_NS, 1), (dues[-1] + TICK_NS, len(dues))):
        clock.advance_ms((until_ns - clock.now_ns()) // MS)
        told.now_ns = clock.now_ns()
        broker.clockwork.ring()
        now = await shown_by(broker)
        told.look(now)
        fresh = now.values[len(shown.seen) :]
        if not seen and fresh:
            raise Broken(f"{fresh} came before their time")
        if len(fresh) < seen:
            raise Broken(f"only {fresh} came of {shown.waits}")
    if fresh != [value for value, _ in shown.waits]:
        raise Broken(f"{fresh} came, and {shown.waits} were expected in that order")
