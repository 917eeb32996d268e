"""Rule 1: whatever is appended to a partition, what follows from its log is up to date in the step of the write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles.messages import START_NS, Ticking
from doubles.no_listeners import NoListeners
from doubles.power_loss import PowerLossDisk
from numpy.typing import NDArray

from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.partition_delays import PartitionDelays
from goqueue.broker.partitions.partition_producers import PartitionProducers
from goqueue.model.errors import GoQueueError, TooManyDelayed
from goqueue.model.producer_sequences import OpenRecords
from goqueue.model.topic_settings import FsyncPolicy
from goqueue.storage.log.group_commit import GroupCommit
from goqueue.storage.log.log import LogOptions
from goqueue.storage.log.open_files import OpenFiles
from goqueue.storage.log.recovery import open_log
from goqueue.wire.batch import CheckedBatch, join_frames
from goqueue.wire.delayed import due_header, fire
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import Marker, stamp_batch

ROOT = Path("/data")
LATER_NS = START_NS + 10**15


class Heard(NoListeners):
    """Everything that listeners are told, with what the partition knows at that moment."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.is_full = False

    def check_room(self, more: int) -> None:
        if self.is_full:
            raise TooManyDelayed("full")

    def published(self, partition: Partition, first: int, count: int, at_ns: int) -> None:  # type: ignore[override]
        assert partition.log.end_offset == first + count
        self.told.append(("published", first, count))

    def delayed(  # type: ignore[override]
        self, partition: Partition, offsets: NDArray[np.int64], dues: NDArray[np.int64], at_ns: int
    ) -> None:
        assert [partition.delays.pending.due(offset) for offset in offsets.tolist()] == dues.tolist()
        self.told.append(("delayed", offsets.tolist()))

    def added(self, partition: object, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        self.told.append(("added", offsets.tolist()))

    def held(self, partition: object, count: int) -> None:
        self.told.append(("held", count))

    def set_due(self, partition: object, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        self.told.append(("set_due", offsets.tolist(), dues.tolist()))

    def fired(  # type: ignore[override]
        self, partition: Partition, originals: list[int], first_copy: int, at_ns: int
    ) -> None:
        assert all(partition.delays.pending.due(offset) is None for offset in originals)
        self.told.append(("fired", originals, first_copy))

    def delay_changed(  # type: ignore[override]
        self, partition: Partition, offset: int, due_ns: int | None, at_ns: int
    ) -> None:
        assert partition.delays.pending.due(offset) == due_ns
        self.told.append(("delay_changed", offset, due_ns))

    def transaction_ended(
        self,
        partition: Partition,
        records: OpenRecords,
        at_ns: int,
        *,
        is_commit: bool,
        reason: str = "",  # type: ignore[override]
    ) -> None:
        assert partition.producers.first_open is None
        self.told.append(("transaction_ended", records.first, is_commit, reason))


def with_partition(work: Callable[[Partition, Heard], None], policy: FsyncPolicy = "always") -> None:
    """Do something, and hold what the partition knows afterwards against a replay of its log."""

    async def run() -> None:
        disk, heard = PowerLossDisk(), Heard()
        commits = GroupCommit(disk, ROOT)
        log = open_log(OpenFiles(disk, 100), ROOT / "a", LogOptions(64 << 10), Ticking())
        partition = Partition(log, commits, policy, "t/0", heard, heard)
        try:
            work(partition, heard)
            producers = PartitionProducers(log)
            producers.recover(disk, None, START_NS)
            delays = PartitionDelays(log, producers, lambda: commits.end(log))
            delays.recover(disk, None)
            assert waiting(delays) == waiting(partition.delays)
            assert len(delays) == len(partition.delays)
            assert producers.state.open_of(7) == partition.producers.state.open_of(7)
            assert producers.state.aborted.dump() == partition.producers.state.aborted.dump()
        finally:
            await commits.close()

    asyncio.run(run())


def waiting(delays: PartitionDelays) -> dict[int, int]:
    offsets, dues = delays.pending.entries()
    return dict(zip(offsets.tolist(), dues.tolist(), strict=True))


def plain(value: bytes = b"v", flags: int = 0) -> bytes:
    return encode_frame(b"", value, b"", START_NS, flags=flags)


def delayed(due_ns: int = LATER_NS, flags: int = 0) -> bytes:
    return encode_frame(b"", b"v", encode_headers((due_header(due_ns),)), START_NS, flags=int(Flag.DELAYED) | flags)


def batch(*frames: bytes) -> CheckedBatch:
    return join_frames(list(frames), START_NS)


def in_transaction(partition: Partition, *frames: bytes, sequence: int = 0) -> int:
    stamp = ProducerStamp(7, 0, sequence, len(frames))
    stamped = replace(join_frames(stamp_batch(list(frames), stamp), START_NS), producer=stamp)
    return partition.append(stamped, in_transaction=True)


TRANSACTIONAL = int(Flag.TRANSACTIONAL)


def test_messages_are_published_before_those_that_wait_are_delayed() -> None:
    def work(partition: Partition, heard: Heard) -> None:
        assert partition.append(batch(plain(), delayed(), plain())) == 0
        assert heard.told == [("published", 0, 3), ("delayed", [1]), ("added", [1])]

    with_partition(work)


def test_a_copy_from_another_partition_is_not_published() -> None:
    def work(partition: Partition, heard: Heard) -> None:
        partition.append(batch(plain()), is_new=False)
        partition.append(batch(delayed()), is_new=False)
        assert heard.told == [("delayed", [1]), ("added", [1])]

    with_partition(work)


def test_what_is_due_already_is_not_delayed() -> None:
    def work(partition: Partition, heard: Heard) -> None:
        partition.append(batch(delayed(START_NS - 1)))
        assert heard.told == [("published", 0, 1)]
        assert len(partition.delays) == 0

    with_partition(work)


def test_nothing_is_written_if_there_is_no_room_for_what_would_wait() -> None:
    def work(partition: Partition, heard: Heard) -> None:
        heard.is_full = True
        with pytest.raises(TooManyDelayed):
            partition.append(batch(plain(), delayed()))
        assert (partition.log.end_offset, heard.told) == (0, [])
        assert partition.append(batch(plain())) == 0

    with_partition(work)


def test_nothing_is_told_of_what_could_not_be_written() -> None:
    def work(partition: Partition, heard: Heard) -> None:
        partition.append(batch(delayed()))
        heard.told.clear()
        partition.log.fail("its disk")
        for append in (
            lambda: partition.append(batch(delayed())),
            lambda: partition.append_fired(batch(plain()), [0], LATER_NS),
            lambda: partition.append_cancel(0),
            lambda: partition.append_reschedule(0, LATER_NS + 1),
            lambda: partition.append_marker(Marker(7, 0, True)),
        ):
            with pytest.raises(GoQueueError):
                append()
        assert heard.told == []
        assert waiting(partition.delays) == {0: LATER_NS}

    with_partition(work)


def test_a_delayed_message_becomes_visible_is_put_off_or_cancelled() -> None:
    def work(partition: Partition, heard: Heard) -> None:
        partition.append(batch(delayed(), delayed(LATER_NS + 1), delayed(LATER_NS + 2)))
        heard.told.clear()
        copies, _ = fire([delayed(LATER_NS + 2), delayed()], [2, 0], LATER_NS)
        assert partition.append_fired(batch(*copies), [2, 0], LATER_NS) == 3
        assert partition.append_reschedule(1, LATER_NS + 9) == 6
        assert waiting(partition.delays) == {1: LATER_NS + 9}
        assert partition.append_cancel(1) == 7
        assert heard.told == [
            ("fired", [2, 0], 3),
            ("delay_changed", 1, LATER_NS + 9),
            ("set_due", [1], [LATER_NS + 9]),
            ("delay_changed", 1, None),
        ]

    with_partition(work)


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_a_transaction_has_delayed_waits_from_its_commit_on_or_never(is_commit: bool) -> None:
    def work(partition: Partition, heard: Heard) -> None:
        in_transaction(partition, plain(flags=TRANSACTIONAL), delayed(flags=TRANSACTIONAL))
        assert heard.told == [("published", 0, 2), ("held", 1)]
        assert (len(partition.delays), waiting(partition.delays), partition.producers.first_open) == (1, {}, 0)
        heard.told.clear()
        assert partition.append_marker(Marker(7, 0, is_commit), "a reason") == 3
        ended = ("transaction_ended", 0, is_commit, "a reason")
        waits = [("delayed", [1]), ("set_due", [1], [LATER_NS])] if is_commit else []
        assert heard.told == [ended, *waits]
        assert waiting(partition.delays) == ({1: LATER_NS} if is_commit else {})

    with_partition(work)


def test_an_open_transaction_is_known_when_its_batch_is_written() -> None:
    def work(partition: Partition, heard: Heard) -> None:
        in_transaction(partition, plain(flags=TRANSACTIONAL))
        in_transaction(partition, plain(flags=TRANSACTIONAL), plain(flags=TRANSACTIONAL), sequence=1)
        opened = partition.producers.state.open_of(7)
        assert opened is not None
        assert (opened.first, opened.end, partition.stable_end) == (0, 3, 0)

    with_partition(work, "interval")


@pytest.mark.parametrize(("policy", "wakes"), [("always", 0), ("interval", 5), ("never", 5)])
def test_readers_are_woken_by_the_write_unless_they_see_only_what_is_durable(policy: FsyncPolicy, wakes: int) -> None:
    def work(partition: Partition, heard: Heard) -> None:
        seen: list[int] = []
        partition.watch(lambda: seen.append(len(heard.told)))
        partition.append(batch(delayed(), delayed()))
        partition.append_reschedule(0, LATER_NS + 1)
        partition.append_fired(batch(*fire([delayed()], [0], LATER_NS)[0]), [0], LATER_NS)
        partition.append_cancel(1)
        partition.append(batch(plain()))
        assert len(seen) == wakes
        assert seen == sorted(seen)
        # Whatever the policy: what is stable may have moved without a write.
        partition.append_marker(Marker(7, 0, True))
        assert len(seen) == wakes + 1

    with_partition(work, policy)
