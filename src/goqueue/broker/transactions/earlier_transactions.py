"""Folders of earlier versions: the one journal of transactions becomes a part of the journals of shards.

Ids of producers go to the metadata. All else is divided among the coordinators, and appended to the journals of their
shards as it is; a try that was interrupted may have left some of that there, which says the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from goqueue.broker.runtime import earlier_journals
from goqueue.broker.runtime.journal import Journal
from goqueue.broker.runtime.journal_kinds import EARLIER_TRANSACTIONS
from goqueue.broker.runtime.journals import Journals
from goqueue.broker.runtime.shard_placement import shard_of_commit_key, shard_of_transactional_id
from goqueue.coordination.catalog import Catalog
from goqueue.coordination.shard_state import ShardState
from goqueue.coordination.transaction_records import Adopted
from goqueue.coordination.transactions import Transactions
from goqueue.model.errors import CorruptData
from goqueue.model.logging import get_logger
from goqueue.storage.files.data_folder import DataFolder

log = get_logger(__name__)


async def convert_earlier_transactions(
    folder: DataFolder, journals: Journals, catalog: Journal[Catalog], shards: Mapping[int, Journal[ShardState]]
) -> None:
    """Before the shards are led. Does nothing to a folder that has been converted, or is of this version."""
    if earlier_journals.must_be_converted(folder, journals, EARLIER_TRANSACTIONS):
        earlier = journals.open(EARLIER_TRANSACTIONS).machine
        journals.close_shards(EARLIER_TRANSACTIONS)
        ids = earlier.converted_ids(shard_of_transactional_id)
        await catalog.submit(lambda _: [ids])
        states = {number: Transactions() for number in shards}
        earlier.divide(states.__getitem__, shard_of_transactional_id, shard_of_commit_key, catalog.machine.ids.shard_of)
        for number, journal in shards.items():
            state = states[number]
            journal.load()
            for part in state.parts():
                journal.propose([Adopted(part, msgspec.Raw(state.dump(part)))])
        await Journal.all_settled(list(shards.values()))
        earlier_journals.note_converted(folder, EARLIER_TRANSACTIONS)
        log.info(
            "the journal of transactions was converted: each transaction is in the journal of its shard now",
            transactional_ids=earlier.transactions.name_count(),
            prepared=len(earlier.transactions.prepared),
        )
    if earlier_journals.is_converted(folder, EARLIER_TRANSACTIONS):
        if catalog.machine.ids.is_empty:
            raise CorruptData("the ids of producers are missing in the metadata; restore the data folder from a backup")
        earlier_journals.remove_converted(folder, journals, EARLIER_TRANSACTIONS)
