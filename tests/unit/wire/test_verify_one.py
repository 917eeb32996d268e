"""A message that comes alone is judged without tables, and as it would be among others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import GoQueueError
from goqueue.wire import verify
from goqueue.wire.batch import CheckedBatch, FrameRun
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import with_stamp
from goqueue.wire.verify import FrameRules, verify_batch

STAMPS = st.sampled_from([None, ProducerStamp(3, 0, 17, 1), ProducerStamp(3, 0, 17, 2), ProducerStamp(-1, 0, 0, 1)])
HEADERS = st.sampled_from([(), (("city", b"Oslo"),), (("goqueue-x", b"1"),)])
RULES = st.builds(
    FrameRules,
    max_value_bytes=st.sampled_from([5, 100]),
    latest_timestamp_ns=st.sampled_from([0, 1_000]),
    needs_key=st.booleans(),
    in_transaction=st.booleans(),
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    moment = draw(st.sampled_from([-5, 0, 1_000, 1_001]))
    frame = encode_frame(
        draw(st.sampled_from([b"", b"key"])),
        draw(st.binary(max_size=10)),
        encode_headers(draw(HEADERS)),
        moment,
        draw(st.sampled_from([0, 2, 4, 5])),
        draw(st.sampled_from([0, 0, int(Flag.TOMBSTONE), int(Flag.TRANSACTIONAL), 2])),
    )
    stamp = draw(STAMPS)
    if stamp is not None and moment >= 0:
        frame = with_stamp(frame, stamp)
    if draw(st.booleans()):
        hurt = bytearray(frame)
        hurt[draw(st.integers(0, len(frame) - 1))] ^= draw(st.integers(1, 255))
        frame = bytes(hurt)
    return frame


def judged(frame: bytes, rules: FrameRules) -> tuple[object, ...]:
    try:
        found: CheckedBatch = verify_batch(FrameRun.of_one(frame), rules)
    except GoQueueError as error:
        return type(error), str(error)
    return (
        bytes(found.frames),
        found.positions.tolist(),
        found.max_timestamp_ns,
        found.lanes,
        found.producer,
        found.has_headers,
    )


@given(frames(), RULES)
def test_what_comes_alone_is_judged_as_among_others(frame: bytes, rules: FrameRules) -> None:
    alone = judged(frame, rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "_plain_one", lambda _run, _rules: None)
        assert judged(frame, rules) == alone


def test_a_plain_message_needs_no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "check_layout", lambda *_: pytest.fail("it was looked at closely"))
    frame = with_stamp(encode_frame(b"key", b"value", b"", 17), ProducerStamp(3, 0, 17, 1))
    assert verify_batch(FrameRun.of_one(frame), FrameRules(100, 1_000)).producer == ProducerStamp(3, 0, 17, 1)
