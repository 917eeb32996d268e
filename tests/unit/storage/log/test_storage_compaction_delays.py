"""Rule 19: compaction and delayed messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from doubles.lane_messages import check_all_lanes, named
from doubles.messages import START_NS, OpenLog, Ticking, read_run
from doubles.pinned import Pinned

from goqueue.model.message import HIDDEN, Priority
from goqueue.storage.log.compaction import compact
from goqueue.storage.log.compaction_choice import CompactionRules
from goqueue.storage.log.log import Log
from goqueue.wire.batch import join_frames
from goqueue.wire.frame import Flag, encode_frame

HOUR_MS = 3_600_000
Pending = Callable[[int], bool]


@pytest.fixture
def log(reopen: OpenLog) -> Log:
    return reopen(segment_bytes=1 << 20)


def put(log: Log, key: bytes, value: bytes = b"v", flags: int = 0, headers: bytes = b"") -> int:
    return log.append(join_frames([encode_frame(key, value, headers, START_NS, Priority.NORMAL, flags)], START_NS))


def delayed(log: Log, key: bytes, value: bytes = b"v", flags: int = 0) -> int:
    return put(log, key, value, flags | Flag.DELAYED)


def fired(log: Log, key: bytes, original: int, value: bytes = b"v", flags: int = 0) -> int:
    return put(log, key, value, flags | Flag.FIRED, named(original))


def cancelled(log: Log, original: int) -> int:
    return put(log, b"", b"", Flag.CONTROL, named(original))


def run(log: Log, is_pending: Pending, *, tombstones_ms: int = HOUR_MS) -> list[int]:
    """A whole pass over everything; which offsets are left of what it saw."""
    log.roll()
    for step in compact(log, CompactionRules(log.end_offset, tombstones_ms, 1_000, is_pending)):
        if step is not None:
            step()
    lanes: dict[int, int] = {}
    while (found := read_run(log, max(lanes, default=log.start_offset - 1) + 1, 1 << 20)) is not None:
        for header in found.columns():
            hidden = header["flags"] & (Flag.DELAYED | Flag.CONTROL)
            lanes[int(header["offset"])] = HIDDEN if hidden else int(header["priority"])
    check_all_lanes(log, lanes)
    return sorted(lanes)


def never(offset: int) -> bool:
    return False


def always(offset: int) -> bool:
    return True


def test_rule_19_a_delayed_message_is_no_version_of_its_key(log: Log) -> None:
    first = put(log, b"k")
    original = delayed(log, b"k")
    assert run(log, always) == [first, original]
    later = put(log, b"k")
    assert run(log, always) == [original, later]


def test_rule_19_a_delayed_message_stays_as_long_as_it_is_pending(log: Log) -> None:
    one, two = delayed(log, b"k"), delayed(log, b"k")
    put(log, b"k")
    assert run(log, lambda offset: offset == two) == [two, 2]
    put(log, b"x")
    assert run(log, never) == [2, 3]
    assert one == 0


def test_rule_19_a_delayed_tombstone_stays_as_long_as_it_is_pending(log: Log, clock: Ticking) -> None:
    original = delayed(log, b"k", b"", Flag.TOMBSTONE)
    clock.now_ns += 10**15
    assert run(log, always, tombstones_ms=0) == [original]
    put(log, b"x")
    assert run(log, never, tombstones_ms=0) == [1]


def test_rule_19_a_delivery_stays_until_its_original_is_gone(log: Log) -> None:
    original = delayed(log, b"k")
    delivery = fired(log, b"k", original)
    last = put(log, b"k")
    assert run(log, always) == [original, delivery, last]
    # The original goes in this pass, what tells of it in the next one.
    put(log, b"x")
    assert run(log, never) == [delivery, last, 3]
    put(log, b"x")
    assert run(log, never) == [last, 4]


def test_rule_19_a_delivery_that_nothing_supersedes_is_the_version_of_its_key(log: Log) -> None:
    first = put(log, b"k")
    original = delayed(log, b"k")
    delivery = fired(log, b"k", original)
    assert run(log, never) == [delivery]
    assert first == 0
    put(log, b"x")
    assert run(log, never) == [delivery, 3]


def test_rule_19_a_cancel_stays_until_its_original_is_gone(log: Log) -> None:
    original = delayed(log, b"k")
    cancel = cancelled(log, original)
    other = put(log, b"", b"of something else", Flag.CONTROL)
    assert run(log, always) == [original, cancel, other]
    put(log, b"x")
    assert run(log, never) == [cancel, other, 3]
    put(log, b"x")
    assert run(log, never) == [other, 4]


def test_what_stands_in_for_refused_messages_goes_with_the_next_pass(log: Log) -> None:
    first = put(log, b"k")
    put(log, b"", b"", Flag.CONTROL)
    last = put(log, b"x")
    assert run(log, always) == [first, last]


def test_rule_19_a_tombstone_does_not_go_before_the_delivery_that_it_deletes(log: Log, clock: Ticking) -> None:
    original = delayed(log, b"k")
    delivery = fired(log, b"k", original)
    tombstone = put(log, b"k", b"", Flag.TOMBSTONE)
    clock.now_ns += 10**15
    assert run(log, always, tombstones_ms=0) == [original, delivery, tombstone]
    clock.now_ns += 10**15
    put(log, b"x")
    assert run(log, never, tombstones_ms=0) == [delivery, tombstone, 3]
    clock.now_ns += 10**15
    put(log, b"x")
    assert run(log, never, tombstones_ms=0) == [4]


def test_rule_19_an_original_in_a_file_below_the_start_is_still_there(reopen: OpenLog) -> None:
    log = reopen(segment_bytes=100)
    original = delayed(log, b"k")
    log.roll()
    delivery = fired(log, b"k", original)
    log.roll()
    last = put(log, b"k")
    log.start_offset = delivery
    Pinned(log, {original}).drop_below_start(log.start_offset)
    assert run(log, always) == [delivery, last]
    assert log.has(original)


def test_rule_19_many_deliveries_are_looked_up_in_many_steps(log: Log) -> None:
    originals = [delayed(log, b"k%d" % number) for number in range(200)]
    for original in originals:
        fired(log, b"k%d" % original, original)
    for original in originals:
        put(log, b"k%d" % original)
    log.roll()
    steps = list(compact(log, CompactionRules(log.end_offset, HOUR_MS, 1_000, always)))
    assert len([step for step in steps if step is None]) >= 8
    assert run(log, never) == list(range(200, 600))
    put(log, b"x")
    assert run(log, never) == list(range(400, 601))
