"""Every way in which a client can lie about producers, transactions and dedup ids is refused."""

from __future__ import annotations

import time

import numpy as np
import pytest
from doubles.messages import START_NS

from goqueue.model.errors import InvalidFrame
from goqueue.wire.batch import CheckedBatch, FrameRun, join_frames, parse_batch
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, decode_headers, encode_frame, encode_headers
from goqueue.wire.internal_headers import (
    COPY_OF,
    DEDUP_ID,
    MAX_DEDUP_ID_BYTES,
    PRODUCER,
    RESERVED_PREFIX,
    ProducerStamp,
    encode_producer,
)
from goqueue.wire.producer_frames import as_plain, dedup_ids, stamp_of, stamped_places
from goqueue.wire.verify import FrameRules, verify_batch

PLAIN = FrameRules(100, START_NS)
IN_TRANSACTION = FrameRules(100, START_NS, in_transaction=True)
FLAGGED = int(Flag.TRANSACTIONAL)
DELAYED = int(Flag.DELAYED)


def stamp(producer_id: int = 1, epoch: int = 0, sequence: int = 0, count: int = 2) -> tuple[str, bytes]:
    return PRODUCER, encode_producer(ProducerStamp(producer_id, epoch, sequence, count))


def frame(*headers: tuple[str, bytes], flags: int = 0) -> bytes:
    return encode_frame(b"k", b"v", encode_headers(headers), START_NS, flags=flags)


def run_of(*frames: bytes) -> FrameRun:
    batch = join_frames(list(frames), START_NS)
    return parse_batch(FrameRun(memoryview(bytes(batch.frames)), batch.positions).to_wire())


def check(frames: list[bytes], rules: FrameRules) -> CheckedBatch:
    return verify_batch(run_of(*frames), rules)


SECOND = frame()
LIES: dict[str, tuple[list[bytes], FrameRules]] = {
    "a negative id": ([frame(stamp(producer_id=-1)), SECOND], PLAIN),
    "a negative epoch": ([frame(stamp(epoch=-1)), SECOND], PLAIN),
    "the sequence of a marker": ([frame(stamp(sequence=-1)), SECOND], PLAIN),
    "more messages than there are": ([frame(stamp(count=3)), SECOND], PLAIN),
    "fewer messages than there are": ([frame(stamp(count=1)), SECOND], PLAIN),
    "no messages": ([frame(stamp(count=0)), SECOND], PLAIN),
    "a stamp on the second message": ([SECOND, frame(stamp())], PLAIN),
    "a stamp on both": ([frame(stamp()), frame(stamp())], PLAIN),
    "two stamps on one": ([frame(stamp(), stamp()), SECOND], PLAIN),
    "a stamp behind another header": ([frame(("a", b""), stamp()), SECOND], PLAIN),
    "a stamp that is too short": ([frame((PRODUCER, b"\x00" * 17)), SECOND], PLAIN),
    "a stamp that is too long": ([frame((PRODUCER, stamp()[1] + b"\x00")), SECOND], PLAIN),
    "a stamp that ends in the next header": ([frame((PRODUCER, b""), ("a", b"\x00" * 90)), SECOND], PLAIN),
    "an empty stamp": ([frame((PRODUCER, b"")), SECOND], PLAIN),
    "headers that end within the stamp": (
        [encode_frame(b"k", b"v", encode_headers((stamp(),))[:-1], START_NS), SECOND],
        PLAIN,
    ),
    "a marker": ([frame(stamp(sequence=-1, count=1), flags=FLAGGED | Flag.CONTROL | Flag.COMMIT)], IN_TRANSACTION),
    "a commit": ([frame(stamp(count=1), flags=FLAGGED | Flag.COMMIT)], IN_TRANSACTION),
    "a control record": ([frame(stamp(count=1), flags=FLAGGED | Flag.CONTROL)], IN_TRANSACTION),
    "a delivery": ([frame(stamp(count=1), flags=FLAGGED | Flag.FIRED)], IN_TRANSACTION),
    "the free flag": ([frame(stamp(count=1), flags=FLAGGED | 2)], IN_TRANSACTION),
    "a flag and no transaction": ([frame(stamp(), flags=FLAGGED), frame(flags=FLAGGED)], PLAIN),
    "a flag on the last only, and no transaction": ([frame(stamp()), frame(flags=FLAGGED)], PLAIN),
    "a transaction and no stamp": ([frame(flags=FLAGGED), frame(flags=FLAGGED)], IN_TRANSACTION),
    "a transaction and no flags": ([frame(stamp()), SECOND], IN_TRANSACTION),
    "a transaction and one flag": ([frame(stamp(), flags=FLAGGED), SECOND], IN_TRANSACTION),
    "a delay without a time": ([frame(stamp(count=1), flags=DELAYED)], PLAIN),
    "a time without a delay": ([frame(stamp(count=1), due_header(5))], PLAIN),
    "a time before the stamp": ([frame(due_header(5), stamp(count=1), flags=DELAYED)], PLAIN),
    "an empty dedup id": ([frame((DEDUP_ID, b"")), SECOND], PLAIN),
    "a long dedup id": ([frame((DEDUP_ID, b"x" * (MAX_DEDUP_ID_BYTES + 1))), SECOND], PLAIN),
    "two dedup ids": ([frame((DEDUP_ID, b"x"), (DEDUP_ID, b"x")), SECOND], PLAIN),
    "a header of copies": ([frame((COPY_OF, b"t/0/0")), SECOND], PLAIN),
    "a header that nobody knows": ([frame(stamp(), (RESERVED_PREFIX + "new", b"")), SECOND], PLAIN),
}


@pytest.mark.parametrize("lie", LIES)
def test_rule_7_a_lie_is_refused_and_nothing_is_changed(lie: str) -> None:
    frames, rules = LIES[lie]
    run = run_of(*frames)
    before = bytes(run.frames)
    with pytest.raises(InvalidFrame):
        verify_batch(run, rules)
    assert bytes(run.frames) == before


@pytest.mark.parametrize(
    ("frames", "rules"),
    [
        ([frame(stamp(2**63 - 1, 2**15 - 1, 2**31 - 1)), SECOND], PLAIN),
        ([frame(stamp(), ("a", b"b")), frame(("a", b"b"))], PLAIN),
        ([frame(stamp(), flags=FLAGGED), frame(flags=FLAGGED)], IN_TRANSACTION),
        ([frame(stamp(), due_header(5), flags=FLAGGED | DELAYED), frame(flags=FLAGGED)], IN_TRANSACTION),
    ],
)
def test_the_truth_is_believed(frames: list[bytes], rules: FrameRules) -> None:
    found = check(frames, rules)
    assert found.producer == stamp_of(frames[0])
    run = FrameRun(memoryview(found.frames), found.positions)
    assert stamped_places(run, run.columns()) == [0]
    plain = as_plain(frames[0])
    assert stamp_of(plain) is None
    assert not plain[3] & Flag.TRANSACTIONAL
    headers_at = len(frames[0]) - int.from_bytes(frames[0][32:34])
    assert decode_headers(plain[headers_at:]) == decode_headers(frames[0][headers_at:])[1:]


def test_a_value_that_is_full_of_names_costs_no_more_than_another() -> None:
    """The headers of a message are looked at once, however often its value looks like an id."""
    headers = encode_headers(tuple((f"{number}", b"") for number in range(5_000)))
    full = encode_frame(b"", DEDUP_ID.encode() * 20_000, headers, START_NS)
    run = run_of(full)
    began = time.process_time()
    assert dedup_ids(run) == {}
    assert time.process_time() - began < 1
    with_id = encode_frame(b"", DEDUP_ID.encode(), encode_headers(((DEDUP_ID, b"x"),)), START_NS)
    assert dedup_ids(run_of(full, with_id, full, with_id)) == {1: b"x", 3: b"x"}


def test_a_message_that_the_broker_copied_has_no_dedup_id_of_its_own() -> None:
    assert dedup_ids(run_of(frame((DEDUP_ID, b"x")), frame((DEDUP_ID, b"y"), (COPY_OF, b"t/0/0")))) == {0: b"x"}


def test_lengths_that_are_damaged_lead_nowhere() -> None:
    broken = bytearray(frame(stamp(count=1)))
    broken[32:34] = b"\xff\xff"
    run = FrameRun(memoryview(bytes(broken)), np.zeros(1, np.uint32))
    assert stamped_places(run, run.columns()) == []
