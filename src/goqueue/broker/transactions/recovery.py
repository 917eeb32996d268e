"""What coordinators take up from the journals of their shards when these are led: what was decided is carried out, what
is prepared is kept, and everything else is aborted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from goqueue.broker.groups.group_service import GroupService
from goqueue.broker.partitions.partition import Partition
from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.transactions.completion import TransactionCompletion
from goqueue.broker.transactions.coordinator import Coordinator
from goqueue.broker.transactions.coordinators import Coordinators
from goqueue.broker.transactions.open_transactions import OpenTransaction, State, Touch
from goqueue.coordination.transaction_records import Decided, TransactionRecord
from goqueue.model.errors import GoQueueError, StorageFailed
from goqueue.model.ids import TopicId
from goqueue.model.logging import get_logger

log = get_logger(__name__)

TopicById = Callable[[TopicId], Topic | None]
_MOST_NAMED = 5
"""How many transactions one line of the log names."""


async def recover(
    taken: Sequence[Coordinator],
    coordinators: Coordinators,
    is_committed: Callable[[TransactionRecord], bool | None],
    groups: GroupService,
    topics: RunningTopics,
) -> None:
    """``taken`` are coordinators of shards that are led from now on; what is prepared is open when this returns.

    ``is_committed`` tells of a prepared transaction whether it was committed under its key.
    """
    # All of them are looked at before anything is written.
    found = []
    for coordinator in taken:
        for record in list(coordinator.state.prepared.values()):
            outcome = is_committed(record)
            if not outcome or not _noted(coordinator, record):
                transaction = _prepared(record, topics, is_in_doubt=outcome is not False)
                coordinator.opened.add(transaction)
                for offset in transaction.offsets.values():
                    groups.stream_commits.expect(offset, transaction.holder)
        known = coordinator.state.decided.values()
        found += [(coordinator, *decided(each, topics.by_id.get, coordinator.completion)) for each in known]
    for coordinator, transaction, marked in found:
        await coordinator.completion.carry_out(transaction, is_commit=True, marked=marked)
    unknown = _abort_unknown({each.shard: each for each in taken}, coordinators, topics)
    prepared = [each for coordinator in taken for each in coordinator.opened.all()]
    if unknown or prepared:
        log.info(
            "transactions taken up",
            aborted=len(unknown),
            aborted_of=[coordinators.name_of(each) or each for each in sorted(unknown)[:_MOST_NAMED]],
            prepared=len(prepared),
            prepared_ids=[each.transaction_id for each in prepared[:_MOST_NAMED]],
        )


def _noted(coordinator: Coordinator, record: TransactionRecord) -> bool:
    """Note that a prepared transaction is committed, as its key says. If that cannot be written it stays in doubt."""
    try:
        coordinator.own.propose([Decided(record)])
    except StorageFailed:
        raise
    except GoQueueError as error:
        log.error("a committed transaction cannot be ended for now; readers wait", error=str(error))
        return False
    return True


def _abort_unknown(taken: Mapping[int, Coordinator], coordinators: Coordinators, topics: RunningTopics) -> set[int]:
    """Abort whatever producers of these shards have open in a partition, but for what is prepared, and what is
    committed and could not be ended for now; return whose that was."""
    kept: set[tuple[Partition, int]] = set()
    for coordinator in taken.values():
        kept |= coordinator.completion.unended
        kept |= {(partition, each.producer_id) for each in coordinator.opened.all() for partition in each.touched}
    shard_of = coordinators.ids.shard_of
    found: set[int] = set()
    for topic in topics.by_name.values():
        for number, partition in enumerate(topic.partitions):
            known = partition.producers.state.known
            for producer_id in [each for each, producer in known.items() if producer.open is not None]:
                own = taken.get(shard_of(producer_id))
                if own is not None and (partition, producer_id) not in kept:
                    found.add(producer_id)
                    touch = Touch(topic, number, partition, 0, 0)
                    own.completion.abort_here(touch, producer_id, known[producer_id].epoch)
    return found


def decided(
    record: TransactionRecord, topic_by_id: TopicById, ends: TransactionCompletion
) -> tuple[OpenTransaction, list[Touch]]:
    """A transaction that was decided, and where it has its marker already."""
    transaction = _as_journaled(record)
    transaction.touched, marked = _divided(record, topic_by_id)
    for touch in transaction.touched.values():
        ends.cut_off(touch, record.producer_id)
    return transaction, marked


def _divided(record: TransactionRecord, topic_by_id: TopicById) -> tuple[dict[Partition, Touch], list[Touch]]:
    """Where the marker of a transaction is missing, and where it is."""
    unmarked: dict[Partition, Touch] = {}
    marked: list[Touch] = []
    for touch in _touches(record, topic_by_id):
        records = touch.partition.producers.state.open_of(record.producer_id)
        if records is None or records.first >= touch.end:
            # What is open there, if anything, is the producer's next transaction.
            marked.append(touch)
        else:
            unmarked[touch.partition] = touch
    return unmarked, marked


def _prepared(record: TransactionRecord, topics: RunningTopics, *, is_in_doubt: bool) -> OpenTransaction:
    transaction = _as_journaled(record)
    transaction.state = State.PREPARED
    if is_in_doubt:
        # If it is committed, it may have some of its markers.
        transaction.is_in_doubt = True
        transaction.touched, _ = _divided(record, topics.by_id.get)
    else:
        transaction.touched = {touch.partition: touch for touch in _touches(record, topics.by_id.get)}
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
