"""Batches as a client of the gRPC API sends and gets them."""

from __future__ import annotations

from goqueue.wire.batch import FrameRun, join_frames, parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import encode_frame
from goqueue.wire.proto import goqueue_pb2 as pb

NOW_NS = 1_700_000_000_000_000_000


def wire(*values: bytes, key: bytes = b"", timestamp_ns: int = NOW_NS, flags: int = 0, headers: bytes = b"") -> bytes:
    """The envelope of messages with these values."""
    return packed([encode_frame(key, value, headers, timestamp_ns, flags=flags) for value in values])


def packed(frames: list[bytes]) -> bytes:
    batch = join_frames(frames, 0)
    return FrameRun(memoryview(batch.frames), batch.positions).to_wire()


def publish(*values: bytes, topic: str = "t", partition: int = 0, number: int = 0, **more: int) -> pb.PublishRequest:
    acks = pb.Acks.ValueType(more.pop("acks", pb.ACKS_ALL))
    return pb.PublishRequest(
        topic=topic,
        partition=partition,
        correlation_id=number,
        acks=acks,
        batch=wire(*values, **more),  # type: ignore[arg-type]
    )


def values_of(response: pb.FetchResponse) -> list[bytes]:
    if not response.batch:
        return []
    return [message.value for message in decode_run(parse_batch(response.batch))[0]]
