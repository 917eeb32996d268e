"""Errors of the broker with hints for the command line: a command where the broker's own hint names an HTTP path.

Code, status and meaning of an error stay the same; only its remedy is replaced.
"""

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
    SubjectNotFound,
    TopicNotFound,
    TraceNotFound,
    TransactionConflict,
    VersionNotFound,
)


class NoSuchTopic(TopicNotFound):
    remedy = "'goqueue topic list' shows those that there are; 'goqueue topic create NAME' makes one."


class NoSuchPartition(PartitionNotFound):
    remedy = "Partitions are numbered from 0; 'goqueue topic describe NAME' shows those that there are."


class NoSuchOffset(OffsetOutOfRange):
    remedy = "'goqueue topic describe NAME' shows where each partition begins and ends."


class NoSuchGroup(GroupNotFound):
    remedy = "'goqueue group list' shows those that there are; a group is made when its first member joins."


class GroupDiffers(GroupConflict):
    remedy = "'goqueue group describe NAME' shows how it is set and who is in it."


class NoSuchDelayedMessage(DelayedNotFound):
    remedy = "'goqueue delay list TOPIC' shows what waits; what was delivered has another offset."


class SeveralDelayedMessages(AmbiguousOffset):
    remedy = "Say which one is meant: --partition N."


class NoSuchTrace(TraceNotFound):
    remedy = (
        "'goqueue trace' lists the latest; trace.retention_ms and trace.retention_bytes decide how long they are kept."
    )


class NoSuchSubject(SubjectNotFound):
    remedy = "'goqueue schema list' lists them; a subject is made when the first schema is registered under it."


class NoSuchVersion(VersionNotFound):
    remedy = "'goqueue schema list SUBJECT' lists them."


class TransactionBusy(TransactionConflict):
    remedy = "See its state with 'goqueue txn show ID', and let it end first."


class NoAnswerInTime(DeliveryTimeout):
    remedy = "Check that the broker runs; if it is only slow, wait longer with --timeout TIME."


class UnknownPath(NotFound):
    remedy = "Its version may be older than this command's: compare 'goqueue version' with 'goqueue stats'."


class UnknownMethod(MethodNotAllowed):
    remedy = UnknownPath.remedy


_CLI_ERRORS: dict[type[GoQueueError], type[GoQueueError]] = {
    kind.__bases__[0]: kind
    for kind in (
        NoSuchTopic,
        NoSuchPartition,
        NoSuchOffset,
        NoSuchGroup,
        GroupDiffers,
        NoSuchDelayedMessage,
        SeveralDelayedMessages,
        NoSuchTrace,
        NoSuchSubject,
        NoSuchVersion,
        TransactionBusy,
        NoAnswerInTime,
        UnknownPath,
        UnknownMethod,
    )
}


def is_silence(error: GoQueueError) -> bool:
    """Whether the error means that no broker answered. A broker that refused has answered."""
    return isinstance(error, BrokerUnavailable | DeliveryTimeout)


def at_a_terminal(error: GoQueueError) -> GoQueueError:
    """The same error with a hint for the command line, where there is one; other errors are returned unchanged.

    If a deadline passed because a broker kept refusing, the refusal is returned: it is what has to be fixed.
    """
    why = error.__cause__
    if isinstance(error, DeliveryTimeout) and isinstance(why, GoQueueError) and not is_silence(why):
        return at_a_terminal(type(why)(str(error), retry_after_s=why.retry_after_s))
    kind = _CLI_ERRORS.get(type(error))
    return error if kind is None else kind(str(error), retry_after_s=error.retry_after_s)
