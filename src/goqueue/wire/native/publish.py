"""Heads of a publish request and of its answer.

Request::

    acks            1   0 all, 1 leader, 2 none
    flags           1   1: a transaction follows
    batches         2
    [transaction    its size in 4 bytes, then a ``TransactionOfBatches``]
    for each batch:
      partition     4
      size          4   of the batch in the payload, where they lie one behind the other in this order
      topic size    1   0: the same topic as the batch before
      topic

Answer, with an entry for each batch in their order::

    entries         2
    for each:
      kind          1   0 stored, 1 stored with more to tell, 2 refused
      kind 0: first offset 8, count of messages 4
      kind 1: size 4, then a ``Stored``
      kind 2: size 4, then an ``Error``
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from goqueue.model.errors import InvalidRequest

MAX_BATCHES = 4_096
_START = Struct(">BBH")
_SIZE = Struct(">I")
_BATCH = Struct(">IIB")
_COUNT = Struct(">H")
_STORED = Struct(">BqI")
_MORE = Struct(">BI")
_HAS_TRANSACTION = 1


class EntryKind(IntEnum):
    """What an entry of the answer says."""

    STORED = 0
    STORED_WITH_MORE = 1
    REFUSED = 2


class BatchTarget(NamedTuple):
    """Where a batch goes, and its bytes."""

    topic: str
    partition: int
    batch: memoryview


class PublishHead(NamedTuple):
    """A publish request."""

    acks: int
    transaction: bytes | None
    batches: list[BatchTarget]


class Entry(NamedTuple):
    """Of the answer. ``content`` is that of kinds 1 and 2; the offsets are those of kind 0."""

    kind: int
    first_offset: int
    messages: int
    content: bytes


def dump_publish(acks: int, batches: Sequence[tuple[bytes, int, int]], transaction: bytes | None = None) -> bytes:
    """``batches``: topic, partition and size of each; an empty topic is that of the batch before."""
    parts = [_START.pack(acks, 0 if transaction is None else _HAS_TRANSACTION, len(batches))]
    if transaction is not None:
        parts += (_SIZE.pack(len(transaction)), transaction)
    for topic, partition, size in batches:
        parts += (_BATCH.pack(partition, size, len(topic)), topic)
    return b"".join(parts)


def load_publish(head: memoryview, payload: memoryview) -> PublishHead:
    try:
        acks, flags, count = _START.unpack_from(head)
        at = _START.size
        transaction: bytes | None = None
        if flags & _HAS_TRANSACTION:
            (size,) = _SIZE.unpack_from(head, at)
            transaction = _part(head, at + _SIZE.size, size)
            at += _SIZE.size + size
        if not 1 <= count <= MAX_BATCHES:
            raise InvalidRequest(f"a publish request has {count} batches; 1 to {MAX_BATCHES} are allowed")
        batches, topic, start = [], "", 0
        for _ in range(count):
            partition, size, topic_size = _BATCH.unpack_from(head, at)
            at += _BATCH.size
            if topic_size:
                topic = str(_part(head, at, topic_size), "utf-8")
                at += topic_size
            batches.append(BatchTarget(topic, partition, payload[start : start + size]))
            start += size
    except (error, UnicodeDecodeError) as problem:
        raise InvalidRequest(f"the head of a publish request cannot be read: {problem}") from None
    if at != len(head) or start != len(payload):
        raise InvalidRequest(
            f"a publish request announces {at} bytes of head and {start} of payload; it has {len(head)} and "
            f"{len(payload)}"
        )
    return PublishHead(acks, transaction, batches)


def stored_entry(first_offset: int, count: int) -> bytes:
    return _STORED.pack(EntryKind.STORED, first_offset, count)


def more_entry(kind: EntryKind, content: bytes) -> bytes:
    """An entry of kind 1 or 2."""
    return _MORE.pack(kind, len(content)) + content


def dump_published(entries: Sequence[bytes]) -> bytes:
    return _COUNT.pack(len(entries)) + b"".join(entries)


def load_published(head: memoryview) -> list[Entry]:
    try:
        (count,) = _COUNT.unpack_from(head)
        at, entries = _COUNT.size, []
        for _ in range(count):
            kind = head[at]
            if kind == EntryKind.STORED:
                _, first, messages = _STORED.unpack_from(head, at)
                entries.append(Entry(kind, first, messages, b""))
                at += _STORED.size
            else:
                _, size = _MORE.unpack_from(head, at)
                entries.append(Entry(kind, -1, 0, _part(head, at + _MORE.size, size)))
                at += _MORE.size + size
    except (error, IndexError) as problem:
        raise InvalidRequest(f"the answer to a publish request cannot be read: {problem}") from None
    if at != len(head):
        raise InvalidRequest(f"the answer to a publish request has {len(head)} bytes, and announces {at}")
    return entries


def _part(head: memoryview, start: int, size: int) -> bytes:
    found = bytes(head[start : start + size])
    if len(found) != size:
        raise InvalidRequest(f"{size} bytes are announced at {start}, beyond the end of the head at {len(head)}")
    return found
