"""Hints for the command line: a command to run, where the broker's own remedy names an HTTP path."""

from __future__ import annotations

from goqueue.model.errors import (
    AmbiguousOffset,
    BrokerUnavailable,
    DelayedNotFound,
    DeliveryTimeout,
    GoQueueError,
    GroupConflict,
    GroupNotFound,
    MethodNotAllowed,
    NotFound,
    OffsetOutOfRange,
    PartitionNotFound,
    SchemaIsReferenced,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    TopicNotFound,
    TraceNotFound,
    TransactionConflict,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)

_MAY_BE_OLDER = "Its version may be older than this command's: compare 'goqueue version' with 'goqueue stats'."
_DELETE_SOFTLY = "Delete it without --permanent first."
_DELETE_FOR_GOOD = "Delete it with --permanent to delete it for good."
REMEDIES: dict[type[GoQueueError], str] = {
    TopicNotFound: "'goqueue topic list' shows those that there are; 'goqueue topic create NAME' makes one.",
    PartitionNotFound: "Partitions are numbered from 0; 'goqueue topic describe NAME' shows those that there are.",
    OffsetOutOfRange: "'goqueue topic describe NAME' shows where each partition begins and ends.",
    GroupNotFound: "'goqueue group list' shows those that there are; a group is made when its first member joins.",
    GroupConflict: "'goqueue group describe NAME' shows how it is set and who is in it.",
    DelayedNotFound: "'goqueue delay list TOPIC' shows what waits; what was delivered has another offset.",
    AmbiguousOffset: "Say which one is meant: --partition N.",
    TraceNotFound: (
        "'goqueue trace' lists the latest; trace.retention_ms and trace.retention_bytes decide how long they are kept."
    ),
    SubjectNotFound: (
        "'goqueue schema list' lists them; a subject is made when the first schema is registered under it."
    ),
    VersionNotFound: "'goqueue schema list SUBJECT' lists them.",
    SubjectNotSoftDeleted: _DELETE_SOFTLY,
    VersionNotSoftDeleted: _DELETE_SOFTLY,
    SubjectSoftDeleted: _DELETE_FOR_GOOD,
    VersionSoftDeleted: _DELETE_FOR_GOOD,
    SchemaIsReferenced: "Delete those first; 'goqueue schema show --id N' shows one.",
    TransactionConflict: "See its state with 'goqueue txn show ID', and let it end first.",
    DeliveryTimeout: "Check that the broker runs; if it is only slow, wait longer with --timeout TIME.",
    NotFound: _MAY_BE_OLDER,
    MethodNotAllowed: _MAY_BE_OLDER,
}


def is_silence(error: GoQueueError) -> bool:
    """Whether the error means that no broker answered. A broker that refused has answered."""
    return isinstance(error, BrokerUnavailable | DeliveryTimeout)


def code_and_remedy(error: GoQueueError) -> tuple[str, str]:
    """The code of an error, and its hint for the command line, or its own remedy where there is none.

    If a deadline passed because a broker kept refusing, those of the refusal: it is what has to be fixed.
    """
    why = error.__cause__
    if isinstance(error, DeliveryTimeout) and isinstance(why, GoQueueError) and not is_silence(why):
        return code_and_remedy(why)
    return error.code, REMEDIES.get(type(error), error.remedy)
