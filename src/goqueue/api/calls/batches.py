"""Batches of clients: the transactions that they belong to, and where they were stored."""

from __future__ import annotations

from goqueue.broker.operations import AppendedBatch, TransactionRef
from goqueue.model.errors import InvalidFrame
from goqueue.wire.batch import FrameRun
from goqueue.wire.producer_frames import stamp_of
from goqueue.wire.proto import goqueue_pb2 as pb

Named = pb.PublishRequest | pb.TransactionOfBatches | pb.AddAcksRequest | pb.AddOffsetsRequest | pb.TransactionRequest
"""What names a transaction, and may begin it."""


def transaction_ref(named: Named, producer_id: int, epoch: int) -> TransactionRef:
    begin_timeout_ms = named.begin.timeout_ms if named.HasField("begin") else None
    return TransactionRef(producer_id, epoch, named.transaction_id, begin_timeout_ms, named.begin.for_key)


def transaction_of_batch(named: pb.PublishRequest | pb.TransactionOfBatches, run: FrameRun) -> TransactionRef:
    """Of the producer whose stamp the batch has."""
    end = int(run.positions[1]) if len(run) > 1 else len(run.frames)
    stamp = stamp_of(bytes(run.frames[:end]))
    if stamp is None:
        raise InvalidFrame("a batch of a transaction must begin with its producer's stamp")
    return transaction_ref(named, stamp.producer_id, stamp.epoch)


def to_stored(batch: AppendedBatch) -> pb.Stored:
    return pb.Stored(
        first_offset=batch.first_offset,
        count=batch.count,
        deliver_at_ns=batch.due_times() if batch.may_be_delayed else (),
        duplicates=[
            pb.Duplicate(place=place, partition=first.partition, offset=first.offset)
            for place, first in batch.duplicates.items()
        ],
        incarnation=batch.incarnation,
    )
