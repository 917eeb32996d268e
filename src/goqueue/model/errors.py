"""Every error that a caller can get, in one tree and one table.

::

    GoQueueError
    ├── InvalidRequest           what was sent cannot be understood or is out of bounds
    │   ├── InvalidTopicName / ReservedTopicName / InvalidGroupName / InvalidReceipt
    │   ├── InvalidSettings / InvalidConfiguration / BodyTooLarge
    │   ├── InvalidSchema / InvalidSubject / InvalidVersion / InvalidCompatibility / InvalidMode
    │   └── InvalidMessage
    │       └── InvalidFrame / SchemaViolation / MessageTooLarge / TimestampOutOfRange
    ├── TopicExists / TopicNotFound / PartitionNotFound / OffsetOutOfRange / TraceNotFound
    ├── DelayedNotFound / AmbiguousOffset / TooManyDelayed / TooManyDedupIds
    ├── SubjectNotFound / VersionNotFound / SchemaNotFound
    ├── SubjectSoftDeleted / SubjectNotSoftDeleted / VersionSoftDeleted / VersionNotSoftDeleted
    ├── SubjectNotConfigured / ModeNotConfigured / SubjectReadOnly
    ├── IncompatibleSchema / SchemaIsReferenced / SchemaIdTaken
    ├── GroupNotFound / GroupConflict / NoDeadLetterTopic
    ├── UnknownMember / MemberFenced / StaleGeneration / NotAssigned / StaleReceipt
    ├── UnknownProducer / ProducerFenced / OutOfOrderSequence / DuplicateSequence
    ├── TransactionNotFound / TransactionConflict / TransactionAborted / TooManyTransactions
    ├── NotFound / MethodNotAllowed / UnsupportedMediaType / NotAcceptable / UnsupportedFeature
    ├── CrossOrigin / HostNotAllowed / RequestTimeout
    ├── Overloaded / ShuttingDown / NotLeader / BackupUnderway
    ├── DiskFull / StorageFailed / CorruptData / DataFolderLocked / DataFolderTooNew / LinkInDataFolder
    ├── ClientError              raised by a client, never sent by a broker
    │   ├── MissingDependency / BrokerUnavailable / WrongPort / ClientClosed
    │   └── DeliveryTimeout / BufferFull / NotAllStored
    └── UnknownError / InternalError

A class is a row of the table: its arguments are its code and its status over HTTP, gRPC and the registry's protocol. An
argument that is left out is that of the base. A code never changes, and a retired one is never used again. The mappings
to HTTP and gRPC and the error reference are made from these rows.
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
    """The number that schema registries use for this error, or 0."""

    def __init_subclass__(
        cls,
        *,
        code: str | None = None,
        http: int | None = None,
        grpc: str | None = None,
        retriable: bool | None = None,
        registry: int | None = None,
    ) -> None:
        super().__init_subclass__()
        statuses = {"http_status": http, "grpc_status": grpc, "registry_code": registry}
        for name, value in {"code": code, "retriable": retriable, **statuses}.items():
            if value is not None:
                setattr(cls, name, value)

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InternalError(GoQueueError):
    """A defect: the broker ran into a state that it cannot handle."""


class InvalidRequest(GoQueueError, code="invalid_request", http=400, grpc="INVALID_ARGUMENT"):
    """A field is missing, has the wrong type or is out of bounds. Nothing was changed."""

    remedy = "Correct the field that the message names."


class InvalidTopicName(InvalidRequest, code="invalid_topic_name"):
    """The name of a topic has a character or a length that is not allowed."""

    remedy = "Use 1 to 200 ASCII letters, digits, '.', '_' or '-'."


class ReservedTopicName(InvalidRequest, code="reserved_topic_name", http=403, grpc="PERMISSION_DENIED"):
    """Names that begin with two underscores are reserved for the broker."""

    remedy = "Choose a name that does not begin with '__'."


class InvalidSettings(InvalidRequest, code="invalid_settings"):
    """A setting of a topic is unknown, has the wrong type, is out of bounds, or cannot be changed."""

    remedy = "See the topic settings in the configuration reference."


class InvalidConfiguration(InvalidRequest, code="invalid_configuration"):
    """The configuration of a broker or a client has problems. The message lists all of them."""

    remedy = "Correct every line that the message names, then start again."


class InvalidMessage(InvalidRequest, code="invalid_message"):
    """One message of a publish request cannot be stored."""

    remedy = "Correct the message. In a JSON request, the other messages are not affected."


class InvalidFrame(InvalidMessage, code="invalid_frame"):
    """The bytes are no valid frames: their layout, length, checksum, flags or a reserved header is wrong."""

    remedy = "Encode with the documented frame layout, and send the whole batch again."


class SchemaViolation(InvalidMessage, code="schema_violation", http=422):
    """A value does not match the schema that its topic requires."""

    remedy = "Correct the value at the path that the message names, or register a schema that allows it."
    misfits: Mapping[int, str] = MappingProxyType({})
    """In a batch: the messages that do not match, by index, with the reason. Not all of them if there are many."""


class MessageTooLarge(InvalidMessage, code="message_too_large", http=413):
    """A key, a value or the headers are larger than allowed."""

    remedy = "Make it smaller, or raise the topic's max_message_bytes."


class TimestampOutOfRange(InvalidMessage, code="timestamp_out_of_range"):
    """A message's timestamp lies too far ahead of the broker's clock, or before 1970."""

    remedy = "Set the producer's clock, or raise the topic's max_timestamp_ahead_ms."


class BodyTooLarge(InvalidRequest, code="body_too_large", http=413):
    """The body of a request is larger than the server accepts."""

    remedy = "Send fewer messages at once, or raise http.max_body_bytes."


class TopicNotFound(GoQueueError, code="topic_not_found", http=404, grpc="NOT_FOUND"):
    """There is no topic with this name."""

    remedy = "Create it with POST /topics, or with create_topic of a client."


class PartitionNotFound(GoQueueError, code="partition_not_found", http=404, grpc="NOT_FOUND"):
    """The topic has no partition with this number."""

    remedy = "Partitions are numbered from 0. GET /topics/{name} shows how many there are."


class InvalidSchema(InvalidRequest, code="invalid_schema", http=422, registry=42201):
    """A schema cannot be parsed, or is larger than schemas may be."""

    remedy = "The message says where the problem is in the schema. Check it with the tools of its format."


class SubjectNotFound(GoQueueError, code="subject_not_found", http=404, grpc="NOT_FOUND", registry=40401):
    """No schema is registered under this subject."""

    remedy = "GET /subjects lists the subjects. A subject is created when the first schema is registered under it."


class VersionNotFound(GoQueueError, code="version_not_found", http=404, grpc="NOT_FOUND", registry=40402):
    """The subject has no such version."""

    remedy = "GET /subjects/{subject}/versions lists the versions."


class SchemaNotFound(GoQueueError, code="schema_not_found", http=404, grpc="NOT_FOUND", registry=40403):
    """There is no schema with this id or text."""

    remedy = "A schema gets its id when it is registered. Ids are never reused."


class SubjectSoftDeleted(GoQueueError, code="subject_soft_deleted", http=404, grpc="NOT_FOUND", registry=40404):
    """The subject is already deleted."""

    remedy = "To delete it permanently, use permanent=true."


class SubjectNotSoftDeleted(
    GoQueueError, code="subject_not_soft_deleted", http=404, grpc="FAILED_PRECONDITION", registry=40405
):
    """A subject that is in use cannot be deleted permanently."""

    remedy = "Delete it without permanent=true first, then permanently."


class VersionSoftDeleted(GoQueueError, code="version_soft_deleted", http=404, grpc="NOT_FOUND", registry=40406):
    """The version is already deleted."""

    remedy = "To delete it permanently, use permanent=true."


class VersionNotSoftDeleted(
    GoQueueError, code="version_not_soft_deleted", http=404, grpc="FAILED_PRECONDITION", registry=40407
):
    """A version that is in use cannot be deleted permanently."""

    remedy = "Delete it without permanent=true first, then permanently."


class SubjectNotConfigured(GoQueueError, code="subject_not_configured", http=404, grpc="NOT_FOUND", registry=40408):
    """The subject has no compatibility level of its own."""

    remedy = "Ask with defaultToGlobal=true for the value in effect."


class ModeNotConfigured(GoQueueError, code="mode_not_configured", http=404, grpc="NOT_FOUND", registry=40409):
    """The subject has no mode of its own."""

    remedy = "Ask with defaultToGlobal=true for the value in effect."


class InvalidVersion(InvalidRequest, code="invalid_version", http=422, registry=42202):
    """The version or the id of a schema is not a number."""

    remedy = "Use a number from 1 on, or 'latest'."


class InvalidCompatibility(InvalidRequest, code="invalid_compatibility", http=422, registry=42203):
    """There is no such compatibility level."""

    remedy = "Use BACKWARD, FORWARD, FULL, one of these with _TRANSITIVE, or NONE."


class InvalidSubject(InvalidRequest, code="invalid_subject", http=422, registry=42208):
    """The name of a subject is empty, too long, or has characters that cannot be printed."""

    remedy = "Use 1 to 1,000 printable characters, such as {topic}-value."


class InvalidMode(InvalidRequest, code="invalid_mode", http=422, registry=42204):
    """There is no such mode."""

    remedy = "Use READWRITE, READONLY, READONLY_OVERRIDE or IMPORT."


class IncompatibleSchema(GoQueueError, code="incompatible_schema", http=409, grpc="FAILED_PRECONDITION", registry=409):
    """A schema is not compatible with the registered ones."""

    remedy = "Change the schema as the message says, or change the compatibility level of the subject."


class SubjectReadOnly(GoQueueError, code="subject_read_only", http=422, grpc="FAILED_PRECONDITION", registry=42205):
    """The mode of the subject does not allow the request."""

    remedy = "PUT /mode/{subject} changes the mode."


class SchemaIsReferenced(
    GoQueueError, code="schema_is_referenced", http=422, grpc="FAILED_PRECONDITION", registry=42206
):
    """A schema cannot be deleted while other schemas refer to it."""

    remedy = "Delete the others first: GET /subjects/{subject}/versions/{version}/referencedby lists them."


class SchemaIdTaken(GoQueueError, code="schema_id_taken", http=422, grpc="ALREADY_EXISTS", registry=42205):
    """An imported id or version already belongs to another schema."""

    remedy = "Import into a registry in which the id is free."


class TraceNotFound(GoQueueError, code="trace_not_found", http=404, grpc="NOT_FOUND"):
    """There is no trace of this message."""

    remedy = (
        "GET /traces shows the latest ones. trace.retention_ms and trace.retention_bytes set how long they are kept."
    )


class DelayedNotFound(GoQueueError, code="delayed_not_found", http=404, grpc="NOT_FOUND"):
    """No delayed message waits at this offset."""

    remedy = "GET /topics/{name}/delayed lists waiting messages. A message that has fired has another offset."


class AmbiguousOffset(GoQueueError, code="ambiguous_offset", http=409, grpc="FAILED_PRECONDITION"):
    """Several partitions have a delayed message at this offset."""

    remedy = "Name the partition: ?partition=N."


class TooManyDelayed(GoQueueError, code="too_many_delayed", http=429, grpc="RESOURCE_EXHAUSTED"):
    """The limit on delayed messages is reached."""

    remedy = "Wait until some are due, or raise limits.max_delayed. Each takes about 50 bytes of memory."


class TopicExists(GoQueueError, code="topic_exists", http=409, grpc="ALREADY_EXISTS"):
    """A topic with this name already exists."""

    remedy = "Use it, choose another name, or delete it first."


class InvalidGroupName(InvalidRequest, code="invalid_group_name"):
    """The name of a group is empty, too long, or has characters that are not allowed."""

    remedy = "Use 1 to 200 ASCII letters, digits, '.', '_' and '-', not beginning with '__'."


class InvalidReceipt(InvalidRequest, code="invalid_receipt"):
    """A receipt cannot be read, was altered, or was never issued."""

    remedy = "Send the receipt_handle exactly as the poll returned it."


class GroupNotFound(GoQueueError, code="group_not_found", http=404, grpc="NOT_FOUND"):
    """There is no group with this name."""

    remedy = "A group is created by its first join, or by PUT /groups/{name}."


class GroupConflict(GoQueueError, code="group_conflict", http=409, grpc="FAILED_PRECONDITION"):
    """The group exists with other settings that cannot change, or it is in use."""

    remedy = "Join with the settings of the group, choose another group, or delete this one first."


class NoDeadLetterTopic(GoQueueError, code="no_dead_letter_topic", http=409, grpc="FAILED_PRECONDITION"):
    """A message cannot be dead-lettered: the dead-letter topic does not exist and cannot be created."""

    remedy = "Correct the limit or the dead_letter_topic that the message names. Until then nothing changes."


class UnknownMember(GoQueueError, code="unknown_member", http=404, grpc="NOT_FOUND"):
    """The group has no such member: it never joined, left, or was silent for longer than its session timeout."""

    remedy = "Join again and use the member_id of the response. Send heartbeats more often than the session timeout."


class MemberFenced(GoQueueError, code="member_fenced", http=409, grpc="FAILED_PRECONDITION"):
    """Another process joined with the same instance_id, so this one must stop."""

    remedy = "Give every process its own instance_id. If this process was replaced, let it end."


class StaleGeneration(GoQueueError, code="stale_generation", http=409, grpc="FAILED_PRECONDITION"):
    """The group was rebalanced after the generation that the request names."""

    remedy = "Send a heartbeat, and continue with the generation and the partitions that it returns."


class NotAssigned(GoQueueError, code="not_assigned", http=409, grpc="FAILED_PRECONDITION"):
    """The partition is not, or no longer, assigned to the member."""

    remedy = "Commit only assigned partitions. The new owner of a partition continues at the committed offset."


class StaleReceipt(GoQueueError, code="stale_receipt", http=410, grpc="FAILED_PRECONDITION"):
    """The message was settled, delivered again, reset or removed since this receipt was issued."""

    remedy = "Drop the message: a newer receipt may exist. For slow work, extend the visibility timeout."


class UnknownProducer(GoQueueError, code="unknown_producer", http=404, grpc="NOT_FOUND"):
    """The broker never issued this producer id."""

    remedy = "Get an id first, with POST /producers/init or InitProducer."


class ProducerFenced(GoQueueError, code="producer_fenced", http=409, grpc="FAILED_PRECONDITION"):
    """Another producer with the same transactional id has taken over, with a later epoch."""

    remedy = "Stop this producer, since another one replaced it. To take over again, start with init."


class OutOfOrderSequence(GoQueueError, code="out_of_order_sequence", http=409, grpc="FAILED_PRECONDITION"):
    """A batch of a producer does not follow the one before: messages in between are missing."""

    remedy = "Send the missing messages first. If they are unknown, get a new producer id."


class DuplicateSequence(GoQueueError, code="duplicate_sequence", http=409, grpc="ALREADY_EXISTS"):
    """A batch of a producer was stored before, so long ago that its offset is no longer known."""

    remedy = "Nothing is lost: the messages are stored. Retry a batch before you send five others."


class TransactionNotFound(GoQueueError, code="transaction_not_found", http=404, grpc="NOT_FOUND"):
    """There is no such transaction."""

    remedy = (
        "See 'goqueue txn list' for the open ones. A transaction that ended long ago, or was open when its broker "
        "stopped, is no longer known."
    )


class TransactionConflict(GoQueueError, code="transaction_conflict", http=409, grpc="FAILED_PRECONDITION"):
    """The state of a transaction does not allow the request."""

    remedy = "'goqueue txn show ID' (GET /transactions/ID) shows its state. Let it end first."


class TransactionAborted(GoQueueError, code="transaction_aborted", http=409, grpc="ABORTED"):
    """A transaction was aborted: consumers never see its messages."""

    remedy = "Repeat its work in a new transaction. If it timed out, give it a longer timeout."


class TooManyTransactions(
    GoQueueError, code="too_many_transactions", http=429, grpc="RESOURCE_EXHAUSTED", retriable=True
):
    """The limit on open and prepared transactions is reached."""

    remedy = "Commit or abort some, or raise transactions.max_open."


class TooManyDedupIds(GoQueueError, code="too_many_dedup_ids", http=429, grpc="RESOURCE_EXHAUSTED", retriable=True):
    """The limit on remembered dedup ids is reached."""

    remedy = "Wait until some expire, lower dedup_window_ms of the topic, or raise limits.max_dedup_ids."


class OffsetOutOfRange(GoQueueError, code="offset_out_of_range", http=416, grpc="OUT_OF_RANGE"):
    """The message at this offset was removed by retention, or is not written yet."""

    remedy = "Read from an offset between the earliest and the latest that the message names."


class NotFound(GoQueueError, code="not_found", http=404, grpc="NOT_FOUND"):
    """There is no such path."""

    remedy = "GET /docs shows every path."


class MethodNotAllowed(GoQueueError, code="method_not_allowed", http=405, grpc="UNIMPLEMENTED"):
    """The path does not have this method."""

    remedy = "GET /docs shows the methods of every path."


class UnsupportedMediaType(GoQueueError, code="unsupported_media_type", http=415, grpc="INVALID_ARGUMENT"):
    """This path does not accept the content type of the body."""

    remedy = "Send the content type that the message names."


class NotAcceptable(GoQueueError, code="not_acceptable", http=406, grpc="INVALID_ARGUMENT"):
    """The client accepts none of the content types of the response."""

    remedy = "Send an Accept header with one of the content types that the message names."


class UnsupportedFeature(GoQueueError, code="unsupported_feature", http=501, grpc="UNIMPLEMENTED"):
    """This version does not support the request."""

    remedy = "The message says what to do instead."


class CrossOrigin(GoQueueError, code="cross_origin", http=403, grpc="PERMISSION_DENIED"):
    """A page of another site sent the request, through the browser of a visitor."""

    remedy = "Call the broker from a program, or serve the page from the address of the broker."


class HostNotAllowed(GoQueueError, code="host_not_allowed", http=403, grpc="PERMISSION_DENIED"):
    """The host that a request names is not known as one of the broker (protection from DNS rebinding)."""

    remedy = "Add this name of the broker to http.allowed_hosts, or use its address."


class RequestTimeout(GoQueueError, code="request_timeout", http=408, grpc="DEADLINE_EXCEEDED", retriable=True):
    """A client took too long to send its request."""

    remedy = "Send the request faster. For slow networks, raise http.header_timeout_ms or http.body_timeout_ms."


class Overloaded(GoQueueError, code="overloaded", http=503, grpc="RESOURCE_EXHAUSTED", retriable=True):
    """The limit on concurrent requests, connections or memory is reached."""

    remedy = "Wait for Retry-After, then send again. If it keeps happening, raise the limit that the message names."


class ShuttingDown(GoQueueError, code="shutting_down", http=503, grpc="UNAVAILABLE", retriable=True):
    """The broker is stopping and accepts no new requests."""

    remedy = "Send again when the broker is back."


class NotLeader(GoQueueError, code="not_leader", http=503, grpc="UNAVAILABLE", retriable=True):
    """The broker does not lead the shard of the group, of a partition or of the transaction at present."""

    remedy = "Send again: the shard is led again within seconds."


class BackupUnderway(GoQueueError, code="backup_underway", http=409, grpc="FAILED_PRECONDITION"):
    """Another backup of this broker is being read. Only one at a time is possible."""

    remedy = "Wait until it is done. If its reader has disconnected, it ends after a minute."


class DiskFull(GoQueueError, code="disk_full", http=507, grpc="RESOURCE_EXHAUSTED", retriable=True):
    """The disk has less free space than storage.min_free_bytes: publishing is refused, reading is possible."""

    remedy = "Free some space: delete topics, lower retention, or enlarge the disk. Then publishing resumes by itself."


class StorageFailed(GoQueueError, code="storage_failed", http=503, grpc="UNAVAILABLE"):
    """The disk reported an error during a write or an fsync. The partition accepts no more writes."""

    remedy = "Check the disk, then restart the broker. It recovers everything that is intact."


class CorruptData(GoQueueError, code="corrupt_data", grpc="DATA_LOSS"):
    """Stored bytes do not match their checksum."""

    remedy = "Restore the data folder from a backup. The log and /health name the partition and the offsets."


class DataFolderLocked(GoQueueError, code="data_folder_locked", http=503, grpc="UNAVAILABLE"):
    """Another broker is using this data folder."""

    remedy = "Stop the other broker, or give this one its own folder."


class DataFolderTooNew(GoQueueError, code="data_folder_too_new", grpc="FAILED_PRECONDITION"):
    """The data folder was written by a newer version."""

    remedy = "Run the version that wrote it, or a newer one."


class LinkInDataFolder(GoQueueError, OSError, code="link_in_data_folder", grpc="FAILED_PRECONDITION"):
    """A file in the data folder is a symbolic link, which is not followed. The data folder itself may be a link."""

    remedy = (
        "Replace the link by its target, or mount the target there. If you did not create it, check who may write to "
        "the folder."
    )

    @classmethod
    def at(cls, path: object) -> LinkInDataFolder:
        return cls(f"{path} is a link; links in a data folder are not followed")


class ClientError(GoQueueError, code="client_error", http=400, grpc="UNKNOWN"):
    """Raised by a client, never sent by a broker."""

    remedy = "The message says what to do."


class MissingDependency(ClientError, code="missing_dependency", http=501, grpc="FAILED_PRECONDITION"):
    """A package that a feature needs is not installed."""

    remedy = "Install the package that the message names."


class BrokerUnavailable(ClientError, code="broker_unavailable", http=503, grpc="UNAVAILABLE", retriable=True):
    """The broker could not be reached, or the connection was lost before the response."""

    remedy = "Check the address, and that the broker runs. Clients retry until their timeout."


class WrongPort(ClientError, code="wrong_port", grpc="UNAVAILABLE"):
    """The address given to a client is that of an HTTP port, not of a gRPC port. Nothing was sent."""

    remedy = "Use the address that the message names. GET /version shows the port as grpc_port."


class DeliveryTimeout(ClientError, code="delivery_timeout", http=504, grpc="DEADLINE_EXCEEDED", retriable=True):
    """A message was not acknowledged within the producer's delivery timeout. It may or may not be stored."""

    remedy = "Check the broker. If it is only slow, raise delivery_timeout_ms."


class BufferFull(ClientError, code="buffer_full", http=429, grpc="RESOURCE_EXHAUSTED", retriable=True):
    """The buffer of the producer is full, and the producer is set not to wait."""

    remedy = "Send more slowly, or raise buffer_bytes."


class NotAllStored(ClientError, code="not_all_stored", http=422):
    """Some messages of a call could not be stored. ``outcomes`` has the result of each."""

    remedy = "Correct the messages whose outcome is an error, and send only those again."

    def __init__(
        self, message: str, outcomes: Sequence[Published | Exception] = (), *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.outcomes = outcomes
        """In the order of the messages: where each was stored, or why it was not."""

    @property
    def failures(self) -> dict[int, Exception]:
        """The errors of messages that were not stored, by their index in the call."""
        return {place: each for place, each in enumerate(self.outcomes) if isinstance(each, Exception)}


class ClientClosed(ClientError, code="client_closed", grpc="CANCELLED"):
    """The client was closed."""

    remedy = "Use a client only inside its with block."


class UnknownError(GoQueueError, code="unknown", http=500, grpc="UNKNOWN"):
    """The broker returned an error code that this version does not know."""

    remedy = "Use a client that is as new as the broker."


def error_from(code: str, message: str, retry_after_s: float | None = None) -> GoQueueError:
    """The error for a code that a broker sent."""
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
