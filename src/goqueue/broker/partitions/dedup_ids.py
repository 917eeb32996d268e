"""Messages with a dedup id: the same id on a topic within its window answers with the first one's place.

The id is a header of the stored message, so what is remembered follows from the log. A digest of it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from goqueue.broker.partitions.partition_producers import DedupEntry, digest_of
from goqueue.model.errors import TooManyDedupIds

_NOTHING: dict[bytes, DedupEntry] = {}


class FirstOne(NamedTuple):
    """Where the message is that was stored with the same id."""

    partition: int
    offset: int


class Room:
    """How many ids all topics may remember together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0


class DedupIds:
    """Of one topic, the oldest first."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._partitions: dict[bytes, int] = {}
        self._entries: dict[int, dict[bytes, DedupEntry]] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def find(self, dedup_id: bytes, since_ns: int) -> FirstOne | None:
        """The message that was stored with the same id, if that was not before ``since_ns``."""
        digest = digest_of(dedup_id)
        partition = self._partitions.get(digest)
        if partition is None:
            return None
        entry = self._entries[partition][digest]
        if entry.at_ns >= since_ns:
            return FirstOne(partition, entry.offset)
        self._remove(digest)
        return None

    def check_room(self, more: int) -> None:
        if self._room.used + more > self._room.most:
            raise TooManyDedupIds(
                f"{self._room.used} dedup ids are remembered, and limits.max_dedup_ids is {self._room.most}",
                retry_after_s=1,
            )

    def add(self, dedup_id: bytes, partition: int, offset: int, now_ns: int) -> None:
        """A message was stored with an id that is not known."""
        self._add(DedupEntry(digest_of(dedup_id), offset, now_ns), partition)

    def _add(self, entry: DedupEntry, partition: int) -> None:
        self._room.used += 1
        self._partitions[entry.digest] = partition
        self._entries.setdefault(partition, {})[entry.digest] = entry

    def _remove(self, digest: bytes) -> None:
        del self._entries[self._partitions.pop(digest)][digest]
        self._room.used -= 1

    def restore(self, partition: int, loaded: Iterable[DedupEntry], found: Iterable[DedupEntry], now_ns: int) -> None:
        """After a start: what a partition's file tells, and what lies in its log behind it, in this order."""
        for each in chain(loaded, found):
            # If the clock has gone back, what came later must not be forgotten sooner.
            entry = each if each.at_ns <= now_ns else replace(each, at_ns=now_ns)
            before = self._partitions.get(entry.digest)
            if before is not None:
                known = self._entries[before][entry.digest]
                is_later = entry.offset > known.offset if before == partition else entry.at_ns > known.at_ns
                if not is_later:
                    continue
                # It was stored again because the one before was forgotten by then.
                self._remove(entry.digest)
            self._add(entry, partition)

    def cut(self, partition: int, end: int) -> None:
        """Forget what lay in a partition from an offset on. One that it had taken the place of was forgotten before."""
        entries = self._entries.get(partition, {})
        for entry in list(takewhile(lambda each: each.offset >= end, reversed(entries.values()))):
            self._remove(entry.digest)

    def expire(self, before_ns: int) -> None:
        """Forget what is older."""
        for entries in self._entries.values():
            gone = []
            for digest, entry in entries.items():
                if entry.at_ns >= before_ns:
                    break
                gone.append(digest)
            for digest in gone:
                del entries[digest], self._partitions[digest]
            self._room.used -= len(gone)

    def has_any(self, partition: int) -> bool:
        return bool(self._entries.get(partition))

    def of(self, partition: int) -> Iterable[DedupEntry]:
        return self._entries.get(partition, _NOTHING).values()

    def close(self) -> None:
        self._room.used -= len(self._partitions)
        self._partitions.clear()
        self._entries.clear()
