"""A delayed message that comes alone is settled as it would be among others."""

from __future__ import annotations

import pytest
from doubles.messages import START_NS
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.wire.batch import FrameRun, check_layout, join_frames
from goqueue.wire.delayed import due_header, set_due_times, set_single_due_time
from goqueue.wire.frame import Flag, encode_frame, encode_headers

NOW = START_NS
LATEST = NOW + 10**18
DELAYED = int(Flag.DELAYED)


def delayed(due_ns: int, *, relative: bool, key: bytes = b"", value: bytes = b"v", own: bytes = b"") -> bytes:
    headers = (("mine", own), due_header(due_ns, relative=relative))
    return encode_frame(key, value, encode_headers(headers if own else headers[1:]), NOW, 2, DELAYED)


@settings(max_examples=60, deadline=None)
@given(
    st.booleans(),
    st.integers(1, 10**18),
    st.binary(max_size=5),
    st.binary(max_size=30),
    st.sampled_from([b"", b"x", b"goqueue-due-in", b"goqueue-due-at"]),
)
def test_what_lies_ahead_is_settled_as_among_others(
    relative: bool, ahead_ns: int, key: bytes, value: bytes, own: bytes
) -> None:
    frame = delayed(ahead_ns if relative else NOW + ahead_ns, relative=relative, key=key, value=value, own=own)
    alone, among = join_frames([frame], NOW), join_frames([frame], NOW)
    _, _, dues = set_due_times(among, NOW, LATEST)
    assert [set_single_due_time(alone, NOW, LATEST)] == dues.tolist() == [NOW + ahead_ns]
    assert alone.frames == among.frames
    run = FrameRun(memoryview(alone.frames), alone.positions)
    check_layout(run)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([encode_frame(b"", b"v", b"", NOW)], id="plain"),
        pytest.param([delayed(0, relative=True)], id="due at once"),
        pytest.param([delayed(NOW, relative=False)], id="due now"),
        pytest.param([delayed(NOW - 1, relative=False)], id="past"),
        pytest.param([delayed(LATEST + 1, relative=False)], id="too late"),
        pytest.param([delayed(10**18 + 1, relative=True)], id="too long"),
        pytest.param([delayed(5, relative=True)] * 2, id="two"),
    ],
)
def test_every_other_case_is_left_as_it_is(frames: list[bytes]) -> None:
    batch = join_frames(frames, NOW)
    before = bytes(batch.frames)
    assert set_single_due_time(batch, NOW, LATEST) is None
    assert batch.frames == before
