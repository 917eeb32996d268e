from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from goqueue import ConsumerConfig, Outgoing, Reject, Retry
from goqueue.client.consumer.handler_result import MAX_REASON_LENGTH, order_for_outcome, to_ms
from goqueue.client.consumer.settler import ACK
from goqueue.client.messages.outgoing_message import Encoder
from goqueue.client.messages.serializers import to_bytes
from goqueue.model.errors import InvalidConfiguration, InvalidMessage, InvalidRequest
from goqueue.wire.frame import HEADER_SIZE, decode_headers
from goqueue.wire.proto import goqueue_pb2 as pb


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (None, ACK),
        (Reject("bad"), (pb.VERB_REJECT, None, "bad")),
        (Reject(), (pb.VERB_REJECT, None, "")),
        (Retry(), (pb.VERB_NACK, None, "")),
        (Retry(after=2, reason="busy"), (pb.VERB_NACK, 2_000, "busy")),
        (Retry(after=timedelta(minutes=1)), (pb.VERB_NACK, 60_000, "")),
        (ValueError("what"), (pb.VERB_NACK, None, "ValueError: what")),
        (ValueError(), (pb.VERB_NACK, None, "ValueError")),
        (ValueError("x" * 2_000), (pb.VERB_NACK, None, ("ValueError: " + "x" * 2_000)[:MAX_REASON_LENGTH])),
        (asyncio.CancelledError(), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_how_a_handler_ends_is_what_becomes_of_its_message(error: BaseException | None, verdict: object) -> None:
    assert order_for_outcome(error) == verdict


@pytest.mark.parametrize(("span", "ms"), [(0, 0), (0.0001, 1), (1.5, 1_500), (timedelta(microseconds=1_001), 2)])
def test_times_are_rounded_up(span: float | timedelta, ms: int) -> None:
    assert to_ms(span) == ms


@pytest.mark.parametrize("span", [-1, timedelta(days=1), timedelta(microseconds=-1_000)])
def test_times_that_no_broker_takes_are_refused(span: float | timedelta) -> None:
    with pytest.raises(InvalidRequest, match="allowed"):
        to_ms(span)


def test_a_time_to_live_is_a_header_beside_the_others() -> None:
    message = Outgoing(b"value", "k", {"a": "1"}, ttl=timedelta(seconds=1.5))
    frame, _ = Encoder(to_bytes, 1 << 20).encode(message)
    assert decode_headers(frame[HEADER_SIZE + 6 :]) == (("a", b"1"), ("goqueue-ttl-ms", b"1500"))
    frame, _ = Encoder(to_bytes, 1 << 20).encode(Outgoing(b"value", ttl=timedelta(microseconds=1)))
    assert decode_headers(frame[HEADER_SIZE + 5 :]) == (("goqueue-ttl-ms", b"1"),)


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1), timedelta(days=3_651)])
def test_a_time_to_live_has_its_bounds(ttl: timedelta) -> None:
    with pytest.raises(InvalidMessage, match="ttl"):
        Encoder(to_bytes, 1 << 20).encode(Outgoing(b"v", ttl=ttl))


def test_options_of_a_consumer_are_bounded() -> None:
    assert ConsumerConfig(max_lease_ms="2h").max_lease_ms == 7_200_000  # type: ignore[arg-type]
    with pytest.raises(InvalidConfiguration) as refusal:
        ConsumerConfig(max_in_flight=0, auto_commit_ms=0, prefetch_batches=0)
    for name in ("max_in_flight", "auto_commit_ms", "prefetch_batches"):
        assert name in str(refusal.value)
