"""What a start takes up from the journal of transactions: what was decided is carried out, what is prepared is kept,
and everything else is aborted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.broker.transactions.open_transactions import OpenTransaction, OpenTransactions, State, Touch
from goqueue.coordination.transaction_records import TransactionRecord
from goqueue.coordination.transactions import Transactions
from goqueue.model.ids import TopicId
from goqueue.model.logging import get_logger

log = get_logger(__name__)

TopicById = Callable[[TopicId], Topic | None]
_MOST_NAMED = 5
"""How many transactions one line of the log names."""


async def recover(
    known: Transactions,
    open_transactions: OpenTransactions,
    groups: GroupService,
    ends: TransactionCompletion,
    topics: Iterable[Topic],
    topic_by_id: TopicById,
) -> None:
    """``known`` is what the journal knows; what is prepared is open when this returns."""
    # All of them are looked at before anything is written.
    decided = [_decided(each, topic_by_id, ends) for each in known.decided.values()]
    for transaction, marked in decided:
        await ends.carry_out(transaction, is_commit=True, marked=marked)
    for record in known.prepared.values():
        transaction = _prepared(record, topic_by_id)
        open_transactions.add(transaction)
        for offset in transaction.offsets.values():
            groups.stream_commits.expect(offset, transaction.holder)
    kept = {(partition, each.producer_id) for each in open_transactions.all() for partition in each.touched}
    unknown = ends.abort_unknown(topics, kept)
    ends.thaw_others(lambda: {each.holder for each in open_transactions.all()})
    if unknown or open_transactions:
        log.info(
            "transactions taken up",
            aborted=len(unknown),
            aborted_of=[known.name_of(each) or each for each in sorted(unknown)[:_MOST_NAMED]],
            prepared=len(open_transactions),
            prepared_ids=[each.transaction_id for each in open_transactions.all()[:_MOST_NAMED]],
        )


def _decided(
    record: TransactionRecord, topic_by_id: TopicById, ends: TransactionCompletion
) -> tuple[OpenTransaction, list[Touch]]:
    """A transaction that was decided, and where it has its marker already."""
    transaction = _as_journaled(record)
    marked: list[Touch] = []
    for touch in _touches(record, topic_by_id):
        records = touch.partition.producers.state.open_of(record.producer_id)
        if records is None or records.first >= touch.end:
            # What is open there, if anything, is the producer's next transaction.
            marked.append(touch)
        else:
            transaction.touched[touch.partition] = touch
            ends.cut_off(touch, record.producer_id)
    return transaction, marked


def _prepared(record: TransactionRecord, topic_by_id: TopicById) -> OpenTransaction:
    transaction = _as_journaled(record)
    transaction.state = State.PREPARED
    transaction.touched = {touch.partition: touch for touch in _touches(record, topic_by_id)}
    return transaction


def _as_journaled(record: TransactionRecord) -> OpenTransaction:
    """But for where it has written."""
    return OpenTransaction(
        record.transaction_id,
        record.producer_id,
        record.epoch,
        record.name,
        record.started_ns,
        record.deadline_ns,
        acks=list(record.acks),
        offsets={each.queue: each for each in record.offsets},
        messages=record.messages,
        for_key=record.for_key,
    )


def _touches(record: TransactionRecord, topic_by_id: TopicById) -> Iterator[Touch]:
    """Where it has written, in topics that are still there."""
    for touched in record.touched:
        topic = topic_by_id(touched.topic_id)
        if topic is None:
            continue
        partition = topic.partitions[touched.partition]
        if partition.log.end_offset < touched.end:
            log.error(
                "a partition has lost records of a transaction that was made safe",
                transaction=record.transaction_id,
                topic=topic.name,
                partition=touched.partition,
            )
        yield Touch(topic, touched.partition, partition, touched.first, touched.end)
