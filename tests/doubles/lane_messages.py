"""Messages of all lanes, and what a log must say of them, worked out the slow way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from doubles.messages import START_NS
from goqueue.model.message import HIDDEN, Priority
from goqueue.storage.log import lanes
from goqueue.storage.log.log import Log
from goqueue.wire.batch import CheckedBatch, join_frames
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.internal_headers import DELAYED_OFFSET

ALL_LANES = range(HIDDEN + 1)


def lane_frame(lane: int, value: bytes = b"", key: bytes = b"", hidden_as: Flag = Flag.CONTROL) -> bytes:
    """A frame that is counted in this lane."""
    priority, flags = (Priority.HIGH, hidden_as) if lane == HIDDEN else (lane, Flag(0))
    return encode_frame(key, value, b"", START_NS, priority, flags)


def lane_batch(batch_lanes: Sequence[int], size: int = 0) -> CheckedBatch:
    """Messages of these lanes with values of ``size`` bytes."""
    return join_frames([lane_frame(lane, b"x" * size) for lane in batch_lanes], START_NS)


def named(original: int) -> bytes:
    """Packed headers that name the original of a delayed message."""
    return encode_headers((("plain", b"1"), (DELAYED_OFFSET, b"%d" % original)))


def check_lanes(
    log: Log, model: Mapping[int, int], offset: int, limit: int, max_bytes: int = 1 << 20, max_messages: int = 1 << 30
) -> None:
    """Hold everything that can be asked about ``[offset, limit)`` against ``model``, the lane of each offset."""
    there = [each for each in sorted(model) if max(offset, log.start_offset) <= each < limit]
    seen = [each for each in there if model[each] != HIDDEN]
    assert lanes.visible(log, offset, limit) == len(seen)
    assert lanes.next_visible(log, offset, limit) == (seen[0] if seen else limit)
    for lane in ALL_LANES:
        wanted = [each for each in there if model[each] == lane]
        assert lanes.count(log, lane, offset, limit) == len(wanted), (lane, offset, limit)
        assert lanes.first(log, lane, offset, limit) == (wanted[0] if wanted else None)
        found = lanes.locate(log, lane, offset, max_bytes, max_messages, limit)
        if found is None:
            assert not wanted
            continue
        run = found.load()
        got = run.columns()["offset"].tolist()
        assert got == wanted[: len(got)]
        assert len(got) == len(found)
        assert len(got) == 1 or (len(run.frames) <= max_bytes and len(got) <= max_messages)
        assert found.next_offset == got[-1] + 1
    assert all(lane == Priority.NORMAL for each, lane in model.items() if each >= log.special_end)


def check_all_lanes(log: Log, model: Mapping[int, int]) -> None:
    """Every lane leads from message to message to all that it has."""
    check_lanes(log, model, 0, log.end_offset)
    for lane in ALL_LANES:
        served: list[int] = []
        offset = 0
        while (found := lanes.locate(log, lane, offset, 200, 5, log.end_offset)) is not None:
            served += found.load().columns()["offset"].tolist()
            offset = found.next_offset
        assert served == [each for each in sorted(model) if model[each] == lane and each >= log.start_offset]
