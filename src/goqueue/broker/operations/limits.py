"""Limits on one request that hold whichever protocol it comes by."""

from __future__ import annotations

from goqueue.broker.dead_letters.redrive import MAX_AT_ONCE as MAX_REDRIVEN
from goqueue.broker.dead_letters.redrive import MAX_RATE as MAX_REDRIVE_RATE
from goqueue.broker.delays.delayed_messages import MAX_PAGE as MAX_DELAYED_PAGE
from goqueue.broker.groups.membership import MAX_CLIENT_ID
from goqueue.broker.groups.membership import MAX_TOPICS as MAX_TOPICS_OF_MEMBER
from goqueue.broker.partitions.partition import LATEST_DUE_NS
from goqueue.broker.partitions.read import UNBOUNDED
from goqueue.broker.queues.peek import MAX_LIMIT as MAX_PEEKED
from goqueue.broker.registry.schema_draft import MAX_EXTRA_BYTES, MAX_REFERENCES
from goqueue.broker.tracing.trace_search import MAX_LIMIT as MAX_TRACES
from goqueue.broker.tracing.trace_search import MAX_SLOWER_MS
from goqueue.broker.transactions.commit_keys import MAX_AT_ONCE as MAX_COMMITTED_TOGETHER
from goqueue.broker.transactions.commit_keys import MAX_KEY_LENGTH as MAX_COMMIT_KEY_LENGTH
from goqueue.broker.transactions.producer_fencing import MAX_NAME_LENGTH as MAX_TRANSACTIONAL_ID_LENGTH
from goqueue.delivery.dead_letters import MAX_REASON_LENGTH
from goqueue.delivery.receipts import MAX_RECEIPT_LENGTH
from goqueue.model.config import LimitsConfig
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.schemas.base import MAX_SCHEMA_BYTES

__all__ = [
    "LATEST_DUE_NS",
    "MAX_CLIENT_ID",
    "MAX_COMMITTED_TOGETHER",
    "MAX_COMMIT_KEY_LENGTH",
    "MAX_DELAYED_PAGE",
    "MAX_EXTRA_BYTES",
    "MAX_NAMED_LETTERS",
    "MAX_NAMED_PARTITIONS",
    "MAX_PEEKED",
    "MAX_REASON_LENGTH",
    "MAX_RECEIPT_LENGTH",
    "MAX_REDRIVEN",
    "MAX_REDRIVE_RATE",
    "MAX_REFERENCES",
    "MAX_SCHEMA_BYTES",
    "MAX_SETTLED_AT_ONCE",
    "MAX_SLOWER_MS",
    "MAX_TOPICS_OF_MEMBER",
    "MAX_TRACES",
    "MAX_TRANSACTIONAL_ID_LENGTH",
    "UNBOUNDED",
    "heartbeat_interval_ms",
    "too_many_polled",
]

MAX_SETTLED_AT_ONCE = 10_000
"""Receipts, leases or runs in one request; also the leases that a member says it holds."""
MAX_NAMED_PARTITIONS = 10_000
"""Partitions that one request names, to commit offsets, to reset them or to add them to a transaction."""
MAX_NAMED_LETTERS = 10_000
"""Dead letters that one request names."""
_HEARTBEAT_MS = 3_000
_HEARTBEATS_A_SESSION = 3


def too_many_polled(max_messages: int, limits: LimitsConfig) -> InvalidRequest:
    """The error for a poll, or a subscription, that asks for more messages at once than ``max_poll_messages``."""
    return InvalidRequest(
        f"max_messages is {shown(max_messages)}; limits.max_poll_messages allows at most {limits.max_poll_messages}"
    )


def heartbeat_interval_ms(session_timeout_ms: int) -> int:
    """How often a member is asked to send a heartbeat: often enough that two may be lost within a session timeout."""
    return min(_HEARTBEAT_MS, session_timeout_ms // _HEARTBEATS_A_SESSION)
