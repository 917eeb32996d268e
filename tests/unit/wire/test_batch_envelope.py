"""A batch goes past protobuf, and protobuf would not know the difference."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from goqueue.wire import batch_envelope
from goqueue.wire.batch_envelope import FETCH_RESPONSE, PUBLISH_REQUEST
from goqueue.wire.proto import goqueue_pb2 as pb

REQUESTS = st.builds(
    pb.PublishRequest,
    correlation_id=st.integers(0, (1 << 64) - 1),
    topic=st.text(max_size=5),
    partition=st.integers(0, 300),
    transaction_id=st.sampled_from(["", "1-2-abc"]),
    begin=st.sampled_from([None, pb.Begin(timeout_ms=70_000, for_key="batch 7")]),
)
BATCHES = st.binary(max_size=300)


@given(REQUESTS, BATCHES, st.integers(0, 300))
def test_what_is_dumped_is_what_protobuf_reads(request: pb.PublishRequest, batch: bytes, cut: int) -> None:
    dumped = PUBLISH_REQUEST.dump(request, [batch[:cut], memoryview(batch)[cut:]])
    whole = pb.PublishRequest.FromString(dumped)
    assert whole.batch == batch
    whole.ClearField("batch")
    assert whole == request


@given(REQUESTS, BATCHES)
def test_what_protobuf_writes_is_what_is_loaded(request: pb.PublishRequest, batch: bytes) -> None:
    whole = pb.PublishRequest()
    whole.CopyFrom(request)
    whole.batch = batch
    loaded, found = PUBLISH_REQUEST.load(whole.SerializeToString())
    assert (loaded, bytes(found)) == (request, batch)


def test_the_batch_is_not_copied() -> None:
    data = pb.FetchResponse(batch=b"frames", next_offset=7).SerializeToString()
    response, batch = FETCH_RESPONSE.load(data)
    assert response == pb.FetchResponse(next_offset=7)
    assert batch.obj is data


def test_of_several_batches_the_last_counts_as_protobuf_has_it() -> None:
    twice = (
        pb.PublishRequest(batch=b"one", topic="t").SerializeToString()
        + pb.PublishRequest(batch=b"two").SerializeToString()
    )
    request, batch = PUBLISH_REQUEST.load(twice)
    assert (request, bytes(batch)) == (pb.PublishRequest(topic="t"), b"two")


@given(st.binary(max_size=60))
def test_any_bytes_are_taken_or_refused_as_protobuf_does(data: bytes) -> None:
    try:
        whole = pb.PublishRequest.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            PUBLISH_REQUEST.load(data)
        return
    request, batch = PUBLISH_REQUEST.load(data)
    assert bytes(batch) == whole.batch
    whole.ClearField("batch")
    assert request == whole


@pytest.mark.parametrize(
    "data",
    [bytes.fromhex("aa8080808000 00"), bytes.fromhex("2a818080808000 41"), bytes.fromhex("2a8180808010 41")],
    ids=["a long tag", "a long length", "a length beyond 32 bits"],
)
def test_longer_numbers_than_protobuf_takes_are_refused_as_it_does(data: bytes) -> None:
    with pytest.raises(DecodeError):
        pb.PublishRequest.FromString(data)
    with pytest.raises(DecodeError):
        PUBLISH_REQUEST.load(data)


def test_a_message_of_very_many_fields_is_left_to_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here every field would cost a turn of Python, while everybody waits."""
    many = pb.PublishRequest(batch=b"frames").SerializeToString() + b"\x18\x07" * 100_000
    read: list[int] = []
    real = batch_envelope._read_varint
    monkeypatch.setattr(batch_envelope, "_read_varint", lambda data, at, most: read.append(at) or real(data, at, most))
    request, batch = PUBLISH_REQUEST.load(many)
    assert (request.partition, bytes(batch)) == (7, b"frames")
    assert len(read) < 100
