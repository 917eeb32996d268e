"""Folders of earlier versions: groups with all of their queues, by name, become the states of shards.

The new states are written down as snapshots of journals that are still empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from goqueue.broker.partitions.running_topics import RunningTopics
from goqueue.broker.runtime import earlier_journals
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.journal_kinds import EARLIER_GROUPS, SHARD_STATE
from goqueue.broker.runtime.journals import Journals
from goqueue.broker.runtime.shard_placement import shard_of_group
from goqueue.coordination.shard_state import Converted, ShardState, part_of_group, part_of_queue
from goqueue.model.errors import CorruptData
from goqueue.model.logging import get_logger
from goqueue.storage.files.data_folder import DataFolder

log = get_logger(__name__)


async def convert_earlier_groups(
    folder: DataFolder, journals: Journals, topics: RunningTopics, shards: Mapping[int, Journal[ShardState]]
) -> None:
    """Before the shards are loaded. Does nothing to a folder that has been converted, or is of this version."""
    if earlier_journals.must_be_converted(folder, journals, EARLIER_GROUPS):
        states = {number: ShardState() for number in shards}
        opened = journals.open_shards(EARLIER_GROUPS)
        for journal in opened.values():
            journal.load()
            _divide(journal.machine, states, topics)
        journals.close_shards(EARLIER_GROUPS)
        for number, journal in shards.items():
            await journal.begin_with(list(_parts(states[number])), Converted())
        earlier_journals.note_converted(folder, EARLIER_GROUPS)
        log.info(
            "the journals of groups were converted: each partition's queues are in the journal of its shard now",
            groups=sum(len(state.by_name) for state in states.values()),
            queues=sum(len(state.by_key) for state in states.values()),
        )
    if earlier_journals.is_converted(folder, EARLIER_GROUPS):
        missing = [
            number for number in shards if not folder.files.exists(folder.snapshots / SHARD_STATE.snapshot_name(number))
        ]
        if missing:
            raise CorruptData(f"the snapshots of shards {missing} are missing; restore the data folder from a backup")
        earlier_journals.remove_converted(folder, journals, EARLIER_GROUPS)


def _divide(earlier: ShardState, states: Mapping[int, ShardState], topics: RunningTopics) -> None:
    """Each group goes to the shard of its name, each of its queues to the shard of its partition.

    Queues of topics and of groups that were deleted are left behind.
    """
    for name in earlier.names():
        _copy(earlier, states[shard_of_group(name)], part_of_group(name))
    for queue in earlier.queues():
        group, topic = earlier.by_name.get(queue.group), topics.by_id.get(queue.topic_id)
        if topic is not None and group is not None and group.state.identity == queue.group_id:
            _copy(earlier, states[topic.shards[queue.partition]], part_of_queue(queue.key))


def _copy(earlier: ShardState, state: ShardState, part: str) -> None:
    payload = earlier.dump(part)
    if payload is not None:
        state.restore(part, payload)


def _parts(state: ShardState) -> Iterator[tuple[str, bytes]]:
    for part in state.parts():
        payload = state.dump(part)
        if payload is not None:
            yield part, payload
