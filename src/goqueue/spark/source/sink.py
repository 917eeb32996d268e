"""The sink: exactly-once writes to topics.

Each attempt of a task writes and prepares its own transactions; the driver commits those of the successful attempts
atomically, under an application key that names the query and its micro-batch. The first commit under a key wins, and
the broker aborts everything else written for it: so a retried task, a repeated micro-batch and a restarted query
neither duplicate nor lose messages.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from goqueue.client.sync import Client
from goqueue.client.sync_producer import Producer, Transaction
from goqueue.model.errors import GoQueueError, InvalidRequest, TransactionAborted, TransactionConflict
from goqueue.model.logging import get_logger
from goqueue.spark.source.clients import client_for
from goqueue.spark.source.options import SinkOptions
from goqueue.spark.source.outgoing_rows import Encoder, check_schema

log = get_logger(__name__)

_TIMEOUT_S = 600.0
"""Default of the option ``transactionTimeout``. It matters only for abandoned queries: otherwise the commit of the
micro-batch aborts the transactions that a dead task left open."""
_PREPARE_AFTER_FRACTION = 1 / 3
"""After this fraction of the timeout a task prepares its transaction and continues in a new one. Prepared transactions
have a timeout of an hour, extended while other tasks still write for the same key."""
_QUERY_ID_PROPERTY = "sql.streaming.queryId"
_BATCH_ID_PROPERTY = "streaming.sql.batchId"
_BUFFER_BYTES = 16 << 20


@dataclass(frozen=True)
class PreparedWrite(WriterCommitMessage):
    """Commit message of a task attempt: its prepared transactions, and the number of rows."""

    key: str
    transactions: tuple[str, ...]
    rows: int


class _Writer:
    """What batch and stream writers share: write and prepare in a task, commit or abort in the driver."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        if options.topic is not None:
            # Check that the topic exists here, in the driver: a missing topic would fail four attempts of a task.
            client_for(options.brokers).describe_topic(options.topic)
        self._options = options

    def _write(self, key: str, batches: Iterator[pa.RecordBatch]) -> PreparedWrite:
        client = client_for(self._options.brokers)
        known = client.committed_under(key)
        if known is not None:
            if known.is_superseded:
                raise TransactionConflict(
                    f"a later micro-batch of this query was written already than this one ({key}): the checkpoint is "
                    "an older copy. Go on with the one that was used last, or begin anew with another"
                )
            return _skip_committed(key, batches)
        attempt = Attempt(client, self._options, key)
        try:
            return attempt.write(batches)
        except (TransactionAborted, TransactionConflict):
            attempt.abort()
            if client.committed_under(key) is None:
                raise
            # Another attempt, or another run of the same micro-batch, has committed first.
            return _skip_committed(key, batches, attempt.rows)
        except BaseException:
            attempt.abort()
            raise
        finally:
            attempt.close()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803
        prepared = [each for each in messages if isinstance(each, PreparedWrite)]
        ids = [each for message in prepared for each in message.transactions]
        keys = {message.key for message in prepared}
        if len(keys) > 1:
            raise InvalidRequest(f"tasks of one write tell of different batches: {', '.join(sorted(keys))}")
        if not keys:
            return
        # Commit even without rows: this aborts what an earlier run of the same micro-batch left behind.
        committed = client_for(self._options.brokers).commit_many(key := keys.pop(), ids)
        rows = sum(message.rows for message in prepared)
        if committed.messages != rows and not self._options.trust_committed:
            raise InvalidRequest(
                f"{committed.messages} messages were committed under {key} before, and this time there are {rows} "
                "rows: the checkpoint is an older copy, or the query does not give the same rows for the same input. "
                "Nothing was written now. If what was committed is right, set trustCommitted=true for one run (in a "
                "pipeline: goqueue pipeline run … --trust-committed)"
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803
        """Abort prepared transactions. Safe after a commit: the broker refuses to abort committed ones."""
        client = client_for(self._options.brokers)
        for message in messages:
            for transaction in message.transactions if isinstance(message, PreparedWrite) else ():
                try:
                    client.abort_transaction(transaction)
                except GoQueueError as error:
                    log.debug("a transaction was not aborted", transaction=transaction, error=str(error))


def _skip_committed(key: str, batches: Iterator[pa.RecordBatch], already_read: int = 0) -> PreparedWrite:
    """The commit message of a batch that is committed already: rows are counted, nothing is written."""
    return PreparedWrite(key, (), already_read + sum(batch.num_rows for batch in batches))


class Attempt:
    """One attempt of a task: writes rows in a transaction, prepares it, and begins another while there are rows."""

    def __init__(self, client: Client, options: SinkOptions, key: str) -> None:
        timeout_s = options.transaction_timeout_ms / 1_000 or _TIMEOUT_S
        self._prepare_after_s = timeout_s * _PREPARE_AFTER_FRACTION
        self._producer: Producer = client.producer(transaction_timeout=timeout_s, buffer_bytes=_BUFFER_BYTES)
        self._client = client
        self._key = key
        self._prepared: list[str] = []
        self._open: Transaction | None = None
        self._began_at = 0.0
        self.rows = 0
        """Rows read from the input so far."""
        self._partitions: dict[str, int] = {}
        self._encoder = Encoder(options.topic, self._partitions_of)

    def write(self, batches: Iterator[pa.RecordBatch]) -> PreparedWrite:
        for batch in batches:
            self.rows += batch.num_rows
            for partition_batch in self._encoder.encode(batch):
                self._transaction().send_frames(*partition_batch)
        self._prepare()
        return PreparedWrite(self._key, tuple(self._prepared), self.rows)

    def abort(self) -> None:
        """Abort the prepared transactions; closing the producer aborts the open one."""
        for transaction in self._prepared:
            try:
                self._client.abort_transaction(transaction)
            except GoQueueError as error:
                log.warning("a transaction is left to its timeout", transaction=transaction, error=str(error))

    def close(self) -> None:
        self._producer.close()

    def _transaction(self) -> Transaction:
        now = time.monotonic()
        if self._open is not None and now > self._began_at + self._prepare_after_s:
            self._prepare()
        if self._open is None:
            self._open = self._producer.begin(for_key=self._key)
            self._began_at = now
        return self._open

    def _prepare(self) -> None:
        if self._open is not None:
            self._prepared.append(self._open.prepare())
            self._open = None

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(self._client.describe_topic(topic).partitions)
        return self._partitions[topic]


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes all rows of a DataFrame or none. With the option ``commitKey``, repeating the write adds nothing."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._key = options.commit_key or f"spark/{secrets.token_hex(16)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write(self._key, iterator)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803
        super().abort(messages)
        if self._options.commit_key is None:
            # The key is random and used by this write only: committing it empty makes tasks that still run fail.
            client_for(self._options.brokers).commit_many(self._key, [])


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes each micro-batch of a streaming query exactly once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = batch = None
        if context is not None:
            query, batch = context.getLocalProperty(_QUERY_ID_PROPERTY), context.getLocalProperty(_BATCH_ID_PROPERTY)
        if not query or not batch:
            raise InvalidRequest(
                "Spark does not tell this task which query and micro-batch it belongs to, so the sink cannot know what "
                "was written already; this version of Spark cannot be used for exactly-once writes"
            )
        # Keys have the form series#batch, with one series per query and target topic: the broker remembers the last
        # commit of each series for good.
        return self._write(f"spark/{query}/{self._options.topic or '*'}#{batch}", iterator)
