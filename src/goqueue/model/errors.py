"""Every error a caller can meet, in one tree and one table.

::

    GoQueueError
    ├── InvalidRequest           what was sent cannot be understood or is out of bounds
    │   ├── InvalidTopicName
    │   ├── InvalidGroupName
    │   ├── InvalidReceipt
    │   ├── ReservedTopicName
    │   ├── InvalidSettings
    │   ├── InvalidSchema / InvalidSubject / InvalidVersion / InvalidCompatibility / InvalidMode
    │   ├── InvalidMessage
    │   │   ├── InvalidFrame
    │   │   ├── SchemaViolation
    │   │   ├── MessageTooLarge
    │   │   └── TimestampOutOfRange
    │   ├── InvalidConfiguration
    │   └── BodyTooLarge
    ├── TopicNotFound
    ├── PartitionNotFound
    ├── DelayedNotFound
    ├── TraceNotFound
    ├── SubjectNotFound / VersionNotFound / SchemaNotFound
    ├── SubjectSoftDeleted / SubjectNotSoftDeleted / VersionSoftDeleted / VersionNotSoftDeleted
    ├── SubjectNotConfigured / ModeNotConfigured / SubjectReadOnly
    ├── IncompatibleSchema
    ├── SchemaIsReferenced
    ├── SchemaIdTaken
    ├── AmbiguousOffset
    ├── TooManyDelayed
    ├── TopicExists
    ├── GroupNotFound
    ├── GroupConflict
    ├── NoDeadLetterTopic
    ├── UnknownMember
    ├── MemberFenced
    ├── StaleGeneration
    ├── NotAssigned
    ├── StaleReceipt
    ├── UnknownProducer
    ├── ProducerFenced
    ├── OutOfOrderSequence / DuplicateSequence
    ├── TransactionNotFound
    ├── TransactionConflict
    ├── TransactionAborted
    ├── TooManyTransactions
    ├── TooManyDedupIds
    ├── OffsetOutOfRange
    ├── NotFound / MethodNotAllowed / UnsupportedMediaType / NotAcceptable / UnsupportedFeature
    ├── CrossOrigin / HostNotAllowed
    ├── RequestTimeout
    ├── Overloaded
    ├── ShuttingDown
    ├── BackupUnderway
    ├── DiskFull
    ├── StorageFailed
    ├── CorruptData
    ├── DataFolderLocked
    ├── DataFolderTooNew
    ├── LinkInDataFolder
    ├── ClientError              raised by a client, never sent by a broker
    │   ├── MissingDependency
    │   ├── BrokerUnavailable
    │   ├── WrongPort
    │   ├── DeliveryTimeout
    │   ├── BufferFull
    │   ├── NotAllStored
    │   └── ClientClosed
    ├── UnknownError
    └── InternalError

A class *is* the row of the table: its ``code`` is stable, and a code that is retired is never given to something else.
HTTP, gRPC and the error reference are made from these attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from goqueue.model.publish_result import Published


class GoQueueError(Exception):
    """The root. ``str(error)`` says what was wrong, where, and what would be right."""

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500
    grpc_status: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False
    remedy: ClassVar[str] = "This is a defect: please report it with the broker's log."
    registry_code: ClassVar[int] = 0
    """What clients of a schema registry know it as, if it is one of theirs."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InternalError(GoQueueError):
    """The broker met something it has no answer for."""


class InvalidRequest(GoQueueError):
    """A field is missing, of the wrong type or out of its bounds; nothing was changed."""

    code = "invalid_request"
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"
    remedy = "Correct the field that the message names."


class InvalidTopicName(InvalidRequest):
    """A topic's name has a character or a length that is not allowed."""

    code = "invalid_topic_name"
    remedy = "Use 1 to 200 ASCII letters, digits, '.', '_' or '-'."


class ReservedTopicName(InvalidRequest):
    """Names that begin with two underscores belong to the broker."""

    code = "reserved_topic_name"
    http_status = 403
    grpc_status = "PERMISSION_DENIED"
    remedy = "Choose a name that does not begin with '__'."


class InvalidSettings(InvalidRequest):
    """A topic's setting is unknown, of the wrong type, out of bounds, or cannot be changed."""

    code = "invalid_settings"
    remedy = "See the topic settings in the configuration reference."


class InvalidConfiguration(InvalidRequest):
    """The configuration of a broker or a client has problems; all of them are listed."""

    code = "invalid_configuration"
    remedy = "Correct every line that the message names, then start again."


class InvalidMessage(InvalidRequest):
    """One message of a publish cannot be stored."""

    code = "invalid_message"
    remedy = "Correct the message; the others of the same request are not affected in JSON."


class InvalidFrame(InvalidMessage):
    """Bytes that should be frames are not: layout, length, checksum, flags or a reserved header."""

    code = "invalid_frame"
    remedy = "Encode with the documented frame layout, and send the batch again whole."


class SchemaViolation(InvalidMessage):
    """A value does not fit the schema that its topic asks for."""

    code = "schema_violation"
    http_status = 422
    remedy = "Write what the schema says at the place that is named, or register a schema that allows it."
    misfits: Mapping[int, str] = MappingProxyType({})
    """Of a batch: which of its messages do not fit, and why; as many as are worth telling."""


class MessageTooLarge(InvalidMessage):
    """A key, a value or the headers are larger than allowed."""

    code = "message_too_large"
    http_status = 413
    remedy = "Make it smaller, or raise the topic's max_message_bytes."


class TimestampOutOfRange(InvalidMessage):
    """A message's timestamp lies too far ahead of the broker's clock, or before 1970."""

    code = "timestamp_out_of_range"
    remedy = "Set the producer's clock, or raise the topic's max_timestamp_ahead_ms."


class BodyTooLarge(InvalidRequest):
    """A request's body is larger than the server takes."""

    code = "body_too_large"
    http_status = 413
    remedy = "Send fewer messages at once, or raise http.max_body_bytes."


class TopicNotFound(GoQueueError):
    """There is no topic of that name."""

    code = "topic_not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    remedy = "Create it: POST /topics, or create_topic of a client."


class PartitionNotFound(GoQueueError):
    """The topic has fewer partitions than that."""

    code = "partition_not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    remedy = "Partitions are numbered from 0; GET /topics/{name} tells how many there are."


class InvalidSchema(InvalidRequest):
    """A schema that cannot be understood, or is larger than schemas may be."""

    code = "invalid_schema"
    http_status = 422
    registry_code = 42201
    remedy = "The message says where in the schema; check it with the format's own tools."


class SubjectNotFound(GoQueueError):
    """No schema is registered under this subject."""

    code = "subject_not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    registry_code = 40401
    remedy = "GET /subjects lists them; a subject is made when the first schema is registered under it."


class VersionNotFound(GoQueueError):
    """The subject has no such version."""

    code = "version_not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    registry_code = 40402
    remedy = "GET /subjects/{subject}/versions lists them."


class SchemaNotFound(GoQueueError):
    """There is no such schema."""

    code = "schema_not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    registry_code = 40403
    remedy = "Ids are given when a schema is registered, and are never used again."


class SubjectSoftDeleted(GoQueueError):
    """The subject is deleted already."""

    code = "subject_soft_deleted"
    http_status = 404
    grpc_status = "NOT_FOUND"
    registry_code = 40404
    remedy = "Delete it with permanent=true to delete it for good."


class SubjectNotSoftDeleted(GoQueueError):
    """A subject is to be deleted for good that is in use."""

    code = "subject_not_soft_deleted"
    http_status = 404
    grpc_status = "FAILED_PRECONDITION"
    registry_code = 40405
    remedy = "Delete it without permanent=true first."


class VersionSoftDeleted(GoQueueError):
    """The version is deleted already."""

    code = "version_soft_deleted"
    http_status = 404
    grpc_status = "NOT_FOUND"
    registry_code = 40406
    remedy = "Delete it with permanent=true to delete it for good."


class VersionNotSoftDeleted(GoQueueError):
    """A version is to be deleted for good that is in use."""

    code = "version_not_soft_deleted"
    http_status = 404
    grpc_status = "FAILED_PRECONDITION"
    registry_code = 40407
    remedy = "Delete it without permanent=true first."


class SubjectNotConfigured(GoQueueError):
    """Nothing is set for this subject itself."""

    code = "subject_not_configured"
    http_status = 404
    grpc_status = "NOT_FOUND"
    registry_code = 40408
    remedy = "Ask with defaultToGlobal=true for what holds for it."


class ModeNotConfigured(GoQueueError):
    """No mode is set for this subject itself."""

    code = "mode_not_configured"
    http_status = 404
    grpc_status = "NOT_FOUND"
    registry_code = 40409
    remedy = "Ask with defaultToGlobal=true for what holds for it."


class InvalidVersion(InvalidRequest):
    """Something else than a number stands for a version or an id of a schema."""

    code = "invalid_version"
    http_status = 422
    registry_code = 42202
    remedy = "Use a number from 1 on, or 'latest'."


class InvalidCompatibility(InvalidRequest):
    """There is no such compatibility."""

    code = "invalid_compatibility"
    http_status = 422
    registry_code = 42203
    remedy = "Use BACKWARD, FORWARD, FULL, one of these with _TRANSITIVE, or NONE."


class InvalidSubject(InvalidRequest):
    """A subject's name is empty, too long, or has characters that cannot be printed."""

    code = "invalid_subject"
    http_status = 422
    registry_code = 42208
    remedy = "Use 1 to 1,000 printable characters, such as {topic}-value."


class InvalidMode(InvalidRequest):
    """There is no such mode."""

    code = "invalid_mode"
    http_status = 422
    registry_code = 42204
    remedy = "Use READWRITE, READONLY, READONLY_OVERRIDE or IMPORT."


class IncompatibleSchema(GoQueueError):
    """A schema does not fit to those that are registered."""

    code = "incompatible_schema"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    registry_code = 409
    remedy = "Change the schema as the message says, or the subject's compatibility."


class SubjectReadOnly(GoQueueError):
    """The subject's mode does not allow it."""

    code = "subject_read_only"
    http_status = 422
    grpc_status = "FAILED_PRECONDITION"
    registry_code = 42205
    remedy = "PUT /mode/{subject} changes the mode."


class SchemaIsReferenced(GoQueueError):
    """Other schemas refer to the one that is to be deleted."""

    code = "schema_is_referenced"
    http_status = 422
    grpc_status = "FAILED_PRECONDITION"
    registry_code = 42206
    remedy = "Delete those first; GET /subjects/{subject}/versions/{version}/referencedby lists them."


class SchemaIdTaken(GoQueueError):
    """An id or a version that is imported stands for another schema already."""

    code = "schema_id_taken"
    http_status = 422
    grpc_status = "ALREADY_EXISTS"
    registry_code = 42205
    remedy = "Import into a registry that does not have that id."


class TraceNotFound(GoQueueError):
    """Nothing is known of such a message."""

    code = "trace_not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    remedy = "GET /traces shows the latest; trace.retention_ms and trace.retention_bytes decide how long they are kept."


class DelayedNotFound(GoQueueError):
    """No delayed message waits there."""

    code = "delayed_not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    remedy = "GET /topics/{name}/delayed lists what waits; what was delivered has another offset now."


class AmbiguousOffset(GoQueueError):
    """Delayed messages wait at this offset in several partitions."""

    code = "ambiguous_offset"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Say which one is meant: ?partition=."


class TooManyDelayed(GoQueueError):
    """As many delayed messages wait as the broker allows."""

    code = "too_many_delayed"
    http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"
    remedy = "Wait until some are due, or raise limits.max_delayed; each takes about 50 bytes of memory."


class TopicExists(GoQueueError):
    """A topic of that name is already there."""

    code = "topic_exists"
    http_status = 409
    grpc_status = "ALREADY_EXISTS"
    remedy = "Use it, choose another name, or delete it first."


class InvalidGroupName(InvalidRequest):
    """A group's name is empty, too long, or has characters that are not allowed."""

    code = "invalid_group_name"
    remedy = "Use 1 to 200 ASCII letters, digits, '.', '_' and '-', not beginning with '__'."


class InvalidReceipt(InvalidRequest):
    """A receipt cannot be read, was altered, or was never issued."""

    code = "invalid_receipt"
    remedy = "Send the receipt_handle exactly as a poll answered it."


class GroupNotFound(GoQueueError):
    """There is no group of that name."""

    code = "group_not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    remedy = "A group is made by its first join, or by PUT /groups/{name}."


class GroupConflict(GoQueueError):
    """The group exists and differs in something that is fixed, or is in use."""

    code = "group_conflict"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Join with the group's own settings, choose another group, or delete this one first."


class NoDeadLetterTopic(GoQueueError):
    """A message cannot become a dead letter: the topic for it is not there and cannot be made."""

    code = "no_dead_letter_topic"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Mend what the message names: a limit, or dead_letter_topic of the topic. Nothing has changed until then."


class UnknownMember(GoQueueError):
    """The group has no such member: it never joined, left, or was silent for longer than its session timeout."""

    code = "unknown_member"
    http_status = 404
    grpc_status = "NOT_FOUND"
    remedy = "Join again, and use the member_id of that answer. Send heartbeats more often than the session timeout."


class MemberFenced(GoQueueError):
    """Another process has joined with the same instance_id; this one has to stop."""

    code = "member_fenced"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Give every process an instance_id of its own; if this is an old one, let it end."


class StaleGeneration(GoQueueError):
    """The group was rebalanced since the generation that the request names."""

    code = "stale_generation"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Send a heartbeat and go on with the generation and the partitions that it answers."


class NotAssigned(GoQueueError):
    """The partition is not the member's, or not any more."""

    code = "not_assigned"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Commit only what is assigned to the member; the partition's new owner goes on from the committed offset."


class StaleReceipt(GoQueueError):
    """The message was settled, delivered again, reset or removed since this receipt was issued."""

    code = "stale_receipt"
    http_status = 410
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Let go of the message: whoever got it since has a newer receipt. Extend the visibility of slow work."


class UnknownProducer(GoQueueError):
    """This id was never given to a producer."""

    code = "unknown_producer"
    http_status = 404
    grpc_status = "NOT_FOUND"
    remedy = "Ask for an id first: POST /producers/init, or InitProducer."


class ProducerFenced(GoQueueError):
    """Another producer has taken over: it has the same transactional id and a later epoch."""

    code = "producer_fenced"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Stop this producer: another one runs in its place. To take over from that one, begin with init again."


class OutOfOrderSequence(GoQueueError):
    """A batch of a producer does not follow the one before: something between them is missing."""

    code = "out_of_order_sequence"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Send what is missing first. If that cannot be known, take a new producer id."


class DuplicateSequence(GoQueueError):
    """A batch of a producer was stored before, so long ago that its offset is not remembered."""

    code = "duplicate_sequence"
    http_status = 409
    grpc_status = "ALREADY_EXISTS"
    remedy = "Nothing is lost: the messages are stored. Retry a batch before sending five others."


class TransactionNotFound(GoQueueError):
    """There is no such transaction."""

    code = "transaction_not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    remedy = (
        "See 'goqueue txn list' for those that are open; a producer begins one first. One that ended long "
        "ago, or was open when its broker stopped, is not known."
    )


class TransactionConflict(GoQueueError):
    """A transaction is in a state that does not allow what was asked for."""

    code = "transaction_conflict"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "See its state with 'goqueue txn show ID' (GET /transactions/ID), and let it end first."


class TransactionAborted(GoQueueError):
    """A transaction was aborted: nothing of it is ever seen."""

    code = "transaction_aborted"
    http_status = 409
    grpc_status = "ABORTED"
    remedy = "Do its work again in a new transaction. If it took too long, give it a longer timeout."


class TooManyTransactions(GoQueueError):
    """As many transactions are open, or prepared, as the broker takes."""

    code = "too_many_transactions"
    http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"
    retriable = True
    remedy = "Commit or abort some, or raise transactions.max_open."


class TooManyDedupIds(GoQueueError):
    """As many dedup ids are remembered as the broker takes."""

    code = "too_many_dedup_ids"
    http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"
    retriable = True
    remedy = "Wait until some expire, shorten dedup_window_ms of the topic, or raise limits.max_dedup_ids."


class OffsetOutOfRange(GoQueueError):
    """The offset was removed by retention or has not been written yet."""

    code = "offset_out_of_range"
    http_status = 416
    grpc_status = "OUT_OF_RANGE"
    remedy = "Read from an offset between the earliest and the latest that the message names."


class NotFound(GoQueueError):
    """No such path."""

    code = "not_found"
    http_status = 404
    grpc_status = "NOT_FOUND"
    remedy = "See GET /docs for every path."


class MethodNotAllowed(GoQueueError):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    http_status = 405
    grpc_status = "UNIMPLEMENTED"
    remedy = "See GET /docs for the methods of every path."


class UnsupportedMediaType(GoQueueError):
    """The body's content type is not one that this path takes."""

    code = "unsupported_media_type"
    http_status = 415
    grpc_status = "INVALID_ARGUMENT"
    remedy = "Send the content type that the message names."


class NotAcceptable(GoQueueError):
    """The client takes none of the content types that this path can answer with."""

    code = "not_acceptable"
    http_status = 406
    grpc_status = "INVALID_ARGUMENT"
    remedy = "Accept one of the content types that the message names."


class UnsupportedFeature(GoQueueError):
    """Other versions do what is asked for; this one does not."""

    code = "unsupported_feature"
    http_status = 501
    grpc_status = "UNIMPLEMENTED"
    remedy = "The message says what to do instead."


class CrossOrigin(GoQueueError):
    """A page of another site sent a request through a visitor's browser."""

    code = "cross_origin"
    http_status = 403
    grpc_status = "PERMISSION_DENIED"
    remedy = "Call the broker from a program, or serve the page from the broker's own address."


class HostNotAllowed(GoQueueError):
    """A request names a host that the broker does not know to be itself, as a page does that points its name here."""

    code = "host_not_allowed"
    http_status = 403
    grpc_status = "PERMISSION_DENIED"
    remedy = "Add the name under which you reach the broker to http.allowed_hosts, or use its address."


class RequestTimeout(GoQueueError):
    """A client took too long to send its request."""

    code = "request_timeout"
    http_status = 408
    grpc_status = "DEADLINE_EXCEEDED"
    retriable = True
    remedy = "Send the request at once; raise http.header_timeout_ms or http.body_timeout_ms for slow networks."


class Overloaded(GoQueueError):
    """More requests are being served at once than the server allows."""

    code = "overloaded"
    http_status = 503
    grpc_status = "RESOURCE_EXHAUSTED"
    retriable = True
    remedy = "Wait for Retry-After, then send again; raise the limit that the message names if it lasts."


class ShuttingDown(GoQueueError):
    """The broker is stopping and takes nothing new."""

    code = "shutting_down"
    http_status = 503
    grpc_status = "UNAVAILABLE"
    retriable = True
    remedy = "Send again when it is back."


class BackupUnderway(GoQueueError):
    """Somebody is reading a backup of this broker already; there is one at a time."""

    code = "backup_underway"
    http_status = 409
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Wait until it is done; one whose reader has gone is given up after a minute."


class DiskFull(GoQueueError):
    """There is less room on the disk than storage.min_free_bytes: publishing is refused, reading goes on."""

    code = "disk_full"
    http_status = 507
    grpc_status = "RESOURCE_EXHAUSTED"
    retriable = True
    remedy = "Make room (delete topics, lower retention, grow the disk); publishing resumes by itself."


class StorageFailed(GoQueueError):
    """The disk reported an error while data was being made durable; this partition takes no more writes."""

    code = "storage_failed"
    http_status = 503
    grpc_status = "UNAVAILABLE"
    remedy = "Check the disk, then restart the broker: it recovers what is whole."


class CorruptData(GoQueueError):
    """Stored bytes fail their checksum."""

    code = "corrupt_data"
    grpc_status = "DATA_LOSS"
    remedy = "Restore the data folder from a backup; the log and /health name the partition and the offsets."


class DataFolderLocked(GoQueueError):
    """Another broker is using this data folder."""

    code = "data_folder_locked"
    http_status = 503
    grpc_status = "UNAVAILABLE"
    remedy = "Stop the other broker, or give this one a folder of its own."


class DataFolderTooNew(GoQueueError):
    """The data folder was written by a newer version."""

    code = "data_folder_too_new"
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Run the version that wrote it, or a newer one."


class LinkInDataFolder(GoQueueError, OSError):
    """Something inside of a data folder is a link; none is followed there. The data folder itself may be one."""

    code = "link_in_data_folder"
    grpc_status = "FAILED_PRECONDITION"
    remedy = (
        "Put what it leads to in its place, or mount it there; if it is not yours, see who may write to the folder."
    )

    @classmethod
    def at(cls, path: object) -> LinkInDataFolder:
        return cls(f"{path} is a link, and inside of a data folder none is followed")


class ClientError(GoQueueError):
    """Raised by a client, never sent by a broker."""

    code = "client_error"
    http_status = 400
    grpc_status = "UNKNOWN"
    remedy = "See the message."


class MissingDependency(ClientError):
    """Something that a feature needs is not installed."""

    code = "missing_dependency"
    http_status = 501
    grpc_status = "FAILED_PRECONDITION"
    remedy = "Install what the message names."


class BrokerUnavailable(ClientError):
    """No broker could be reached, or the connection broke before the answer came."""

    code = "broker_unavailable"
    http_status = 503
    grpc_status = "UNAVAILABLE"
    retriable = True
    remedy = "Check the address and that the broker runs; clients try again by themselves until their timeout."


class WrongPort(ClientError):
    """A client was given the address of a port that speaks HTTP, and not gRPC. Nothing was sent."""

    code = "wrong_port"
    grpc_status = "UNAVAILABLE"
    remedy = "Give the client the address that the message names; GET /version tells it as grpc_port."


class DeliveryTimeout(ClientError):
    """A message was not acknowledged within the producer's delivery timeout. It may or may not be stored."""

    code = "delivery_timeout"
    http_status = 504
    grpc_status = "DEADLINE_EXCEEDED"
    retriable = True
    remedy = "Check the broker; raise delivery_timeout_ms if it is only slow."


class BufferFull(ClientError):
    """The producer's memory is full and it was told not to wait."""

    code = "buffer_full"
    http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"
    retriable = True
    remedy = "Send more slowly, or raise buffer_bytes."


class NotAllStored(ClientError):
    """Of the messages of one call, some could not be stored. Its outcomes tell what became of each."""

    code = "not_all_stored"
    http_status = 422
    remedy = "Send again only those whose outcome is an error, once what it says is mended."

    def __init__(
        self, message: str, outcomes: Sequence[Published | Exception] = (), *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.outcomes = outcomes
        """In the order of the messages: where it is stored, or why it is not."""

    @property
    def failures(self) -> dict[int, Exception]:
        """What is not stored, by its place in the call, and why."""
        return {place: each for place, each in enumerate(self.outcomes) if isinstance(each, Exception)}


class ClientClosed(ClientError):
    """The client was closed."""

    code = "client_closed"
    grpc_status = "CANCELLED"
    remedy = "Use a client only inside its context."


class UnknownError(GoQueueError):
    """A broker answered with a code that this version does not know."""

    code = "unknown"
    http_status = 500
    grpc_status = "UNKNOWN"
    remedy = "Use a client that is as new as the broker."


def error_from(code: str, message: str, retry_after_s: float | None = None) -> GoQueueError:
    """The error that a broker named by its code."""
    for kind in error_table():
        if kind.code == code:
            return kind(message, retry_after_s=retry_after_s)
    return UnknownError(f"{code}: {message}", retry_after_s=retry_after_s)


def error_table() -> list[type[GoQueueError]]:
    """Every error class, sorted by code, each code once."""
    found: dict[str, type[GoQueueError]] = {}
    waiting = list(GoQueueError.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if "code" in vars(kind) or kind is InternalError:
            found[kind.code] = kind
    return [found[code] for code in sorted(found)]
