"""What a power loss tore at the end of a journal is cut off; what is damaged anywhere else is not made up for.

Every record says up to where the log was on the disk when it was written. If records are missing and one behind them
knows them as durable, somebody was told of them, and the journal is corrupt. If none does, they and all that follow
were never durable, so nobody was told of any of them.

Nothing tells so of the last record, or of those in its round of fsync. But no torn write leaves a frame in its full
length and without a hole: one that is not valid all the same has been changed since, and the log has noted it as lost.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from goqueue.model.errors import CorruptData
from goqueue.model.logging import get_logger
from goqueue.storage.log.log import Log
from goqueue.storage.log.truncation import truncate_to
from goqueue.wire.decoding import decode_run

log = get_logger(__name__)

_READ_BYTES = 1 << 20
DURABLE_MARK = Struct(">Q")
"""The key of a record: up to where the log was durable when it was written."""


class EventsMissing(Exception):
    """The events at ``offset`` are not where they should be."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def corrupt(journal: Log, offset: int) -> CorruptData:
    return CorruptData(f"{journal.folder} has lost events near offset {offset}; restore it from a backup")


def cut_torn_tail(journal: Log, missing_at: int, durable_below: int, forget_point: Callable[[], None]) -> None:
    """Cut the log at ``missing_at`` if nothing from there on was durable, else raise ``CorruptData``.

    ``durable_below`` is what others vouch for: a snapshot, a recovery point. ``forget_point`` as in ``truncate_to``.
    """
    if missing_at < max(durable_below, _known_durable(journal, missing_at)) or journal.lost.covers(missing_at):
        raise corrupt(journal, missing_at)
    log.warning(
        "events that were written and not yet durable are cut off; nobody was told of them",
        folder=str(journal.folder),
        from_offset=missing_at,
        end_offset=journal.end_offset,
    )
    truncate_to(journal, missing_at, forget_point)


def _known_durable(journal: Log, offset: int) -> int:
    """The furthest durable offset that a record at or behind ``offset`` knows of."""
    known = 0
    while (found := journal.locate(offset, _READ_BYTES)) is not None:
        for message in decode_run(found.load())[0]:
            if message.key is not None and len(message.key) == DURABLE_MARK.size:
                known = max(known, *DURABLE_MARK.unpack(message.key))
        offset = found.next_offset
    return known
