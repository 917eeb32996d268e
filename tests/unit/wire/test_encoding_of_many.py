"""Frames that are made many at a time are those that are made one by one."""

from __future__ import annotations

from doubles.runs import frames_of, run_of
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.message import Priority
from goqueue.wire.batch import parse_batch
from goqueue.wire.encoding import encode_values
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_batch, stamped_pieces

VALUES = st.lists(st.binary(max_size=40), min_size=1, max_size=50)
HEADERS = st.sampled_from([b"", encode_headers((("traceparent", b"00-1-2-01"),))])


@given(VALUES, HEADERS, st.sampled_from([0, int(Flag.TRANSACTIONAL)]), st.sampled_from(list(Priority)))
def test_many_values_become_the_frames_that_each_becomes(
    values: list[bytes], headers: bytes, flags: int, priority: Priority
) -> None:
    run = encode_values(values, headers, 1_700_000_000_000_000_001, int(priority), flags)
    assert frames_of(run) == [
        encode_frame(b"", value, headers, 1_700_000_000_000_000_001, int(priority), flags) for value in values
    ]


@given(st.lists(VALUES, min_size=1, max_size=4), HEADERS)
def test_runs_are_stamped_like_their_frames(values: list[list[bytes]], headers: bytes) -> None:
    runs = [run_of([encode_frame(b"", value, headers, 17) for value in some]) for some in values]
    frames = [frame for run in runs for frame in frames_of(run)]
    stamp = ProducerStamp(3, 1, 40, len(frames))
    wire = b"".join(stamped_pieces(runs, stamp))
    assert frames_of(parse_batch(wire)) == stamp_batch(frames, stamp)
    assert [frame for run in runs for frame in frames_of(run)] == frames
