from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from goqueue import DelayStats, Outgoing
from goqueue.client.admin.delays import to_delayed, to_reschedule
from goqueue.client.messages.outgoing_message import Encoder
from goqueue.client.messages.serializers import to_bytes
from goqueue.model.errors import InvalidRequest
from goqueue.model.message import Headers
from goqueue.wire.batch import join_frames, parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag
from goqueue.wire.proto import goqueue_pb2 as pb

SECOND_NS = 1_000_000_000
MOMENT = datetime(2040, 1, 1, tzinfo=UTC)
MOMENT_NS = 2_208_988_800 * SECOND_NS


def headers_of(message: Outgoing) -> tuple[bool, Headers]:
    """Whether its frame is delayed, and its headers."""
    frame, _ = Encoder(to_bytes, 2 << 20).encode(message)
    [decoded], _ = decode_run(parse_batch(join_frames([frame], 0).to_wire()))
    return bool(frame[3] & Flag.DELAYED), decoded.headers


@pytest.mark.parametrize(
    ("delay", "expected_ns"),
    [
        (timedelta(seconds=5), 5 * SECOND_NS),
        (timedelta(microseconds=1), 1_000),
        (timedelta(days=30_000), 30_000 * 86_400 * SECOND_NS),
        (5, 5 * SECOND_NS),
        (0.25, SECOND_NS // 4),
        (1e-12, 1),
    ],
)
def test_a_delay_is_the_last_header_and_leaves_it_to_the_broker_when_it_ends(
    delay: timedelta | float, expected_ns: int
) -> None:
    given = Outgoing(b"v", delay=delay, headers={"h": b"x"}, ttl=timedelta(seconds=1))
    assert headers_of(given) == (
        True,
        (("h", b"x"), ("goqueue-ttl-ms", b"1000"), due_header(expected_ns, relative=True)),
    )


@pytest.mark.parametrize("instant", [MOMENT, MOMENT_NS])
def test_an_instant_is_the_last_header(instant: datetime | int) -> None:
    assert headers_of(Outgoing(b"v", deliver_at=instant)) == (True, (due_header(MOMENT_NS),))


def test_an_instant_that_has_passed_by_this_clock_is_left_to_the_brokers() -> None:
    assert headers_of(Outgoing(b"v", deliver_at=1)) == (True, (due_header(1),))


@pytest.mark.parametrize(
    "message",
    [
        Outgoing(b"v", delay=0),
        Outgoing(b"v", delay=-5.5),
        Outgoing(b"v", delay=timedelta(seconds=-1)),
        Outgoing(b"v", delay=timedelta(0)),
        Outgoing(b"v", deliver_at=0),
        Outgoing(b"v", deliver_at=-7),
        Outgoing(b"v", deliver_at=datetime(1969, 1, 1, tzinfo=UTC)),
    ],
)
def test_what_need_not_wait_is_a_plain_frame(message: Outgoing) -> None:
    assert headers_of(message) == (False, ())


def test_the_largest_headers_of_a_delayed_message_are_those_that_the_broker_takes() -> None:
    fits = 65_435 - 2 - 26 - 5
    assert headers_of(Outgoing(b"v", delay=1, headers={"h": b"x" * fits}))[0]
    assert not headers_of(Outgoing(b"v", headers={"h": b"x" * (fits + 100)}))[0]


def test_a_request_to_move_a_message_says_when_in_one_way() -> None:
    assert to_reschedule("t", 1, 2, timedelta(microseconds=1_500), None).delay_ms == 2
    assert to_reschedule("t", 1, 2, 1.5, None).delay_ms == 1_500
    assert to_reschedule("t", 1, 2, -1, None).WhichOneof("when") == "delay_ms"
    assert to_reschedule("t", 1, 2, None, MOMENT).deliver_at_ns == MOMENT_NS
    assert to_reschedule("t", 1, 2, None, -5).deliver_at_ns == 0
    for both_or_none in ((None, None), (1, 1)):
        with pytest.raises(InvalidRequest, match="say when"):
            to_reschedule("t", 1, 2, *both_or_none)


def test_of_a_damaged_message_its_place_and_time_are_told() -> None:
    found = to_delayed(pb.DelayedMessage(topic="t", partition=1, offset=7, deliver_at_ns=MOMENT_NS))
    assert (found.damaged, found.partition, found.offset, found.deliver_at) == (True, 1, 7, MOMENT)
    assert (found.key, found.value, found.headers) == (None, None, ())


def test_counts_know_the_average_and_the_next() -> None:
    stats = DelayStats(1, 4, 0, 0, 0, 6 * SECOND_NS, MOMENT_NS)
    assert (stats.average_delay, stats.next_due) == (timedelta(seconds=1.5), MOMENT)
    nothing = DelayStats(0, 0, 0, 0, 0, 0, None)
    assert (nothing.average_delay, nothing.next_due) == (None, None)
