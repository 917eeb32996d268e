"""Receipts: proof that a message was delivered to a group, checkable without remembering it.

``topic:partition:offset:deliveries:proof``. The proof carries the group and the lease, and a keyed hash over all that
a receipt must not be altered in. A *token* proves a whole lease in the same way, for clients that settle many
messages at once.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from goqueue.model.errors import InvalidReceipt
from goqueue.model.ids import QueueKey

MAX_RECEIPT_LENGTH = 1_024
_LEASE = Struct(">Q")
_HASH_BYTES = 12
_PARTS = 5
_WRONG = "it must be sent exactly as it was received"


class Receipt(NamedTuple):
    """What a receipt says, not yet proved."""

    topic: str
    partition: int
    offset: int
    deliveries: int
    group: str
    lease: int
    proof: bytes


class Seal:
    """Makes and proves receipts of one group on one partition.

    ``queue`` distinguishes the group and the topic from earlier ones of the same names.
    """

    def __init__(self, key: bytes, topic: str, partition: int, group: str, queue: QueueKey) -> None:
        self._keyed = blake2b(f"{queue}\0".encode(), key=key, digest_size=_HASH_BYTES)
        self._topic = topic
        self._partition = partition
        self._group = group.encode()

    def receipt(self, offset: int, count: int, lease: int) -> str:
        proof = _LEASE.pack(lease) + self._hash(offset, count, lease) + self._group
        return f"{self._topic}:{self._partition}:{offset}:{count}:{_packed(proof)}"

    def token(self, count: int, lease: int) -> bytes:
        return self._hash(-1, count, lease)

    def check(self, receipt: Receipt) -> None:
        if not compare_digest(receipt.proof, self._hash(receipt.offset, receipt.deliveries, receipt.lease)):
            raise InvalidReceipt(
                f"the receipt was not issued here, was altered, or its topic or group was made again since; {_WRONG}"
            )

    def check_token(self, token: bytes, count: int, lease: int) -> None:
        if not compare_digest(token, self.token(count, lease)):
            raise InvalidReceipt("the lease's token was not issued by this broker, or was altered")

    def _hash(self, offset: int, count: int, lease: int) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(b"%d %d %d" % (offset, count, lease))
        return keyed.digest()


def parse_receipt(text: str) -> Receipt:
    """What a receipt says. It may still be forged: that is ``Seal.check``."""
    if len(text) > MAX_RECEIPT_LENGTH:
        raise InvalidReceipt(f"a receipt has at most {MAX_RECEIPT_LENGTH} characters; this has {len(text)}")
    parts = text.split(":")
    if len(parts) != _PARTS:
        raise InvalidReceipt(f"a receipt has {_PARTS} parts, topic:partition:offset:deliveries:proof; {_WRONG}")
    topic, partition, offset, count, packed = parts
    try:
        for number in (partition, offset, count):
            if str(int(number)) != number:
                raise ValueError
        raw = urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        # The decoder passes over characters and bits that mean nothing.
        if _packed(raw) != packed:
            raise ValueError
        (lease,) = _LEASE.unpack_from(raw)
        group = raw[_LEASE.size + _HASH_BYTES :].decode()
        proof = raw[_LEASE.size : _LEASE.size + _HASH_BYTES]
        return Receipt(topic, int(partition), int(offset), int(count), group, lease, proof)
    except (ValueError, Base64Error, StructError):
        raise InvalidReceipt(f"the receipt cannot be read; {_WRONG}") from None


def _packed(proof: bytes) -> str:
    return urlsafe_b64encode(proof).decode().rstrip("=")
