"""Writing to topics, exactly once.

Every attempt of a task writes transactions of its own and prepares them; the driver commits those of the attempts that
won, all or none, under a key that names the query and its micro-batch. Who comes first with a key wins, and the broker
aborts everything else that was written for it: so a task that is tried again, a micro-batch that is run again and a
query that is started again add nothing and lose nothing.
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
"""Of transactions, unless the option says otherwise. It matters only if a query is given up: else what a dead task has
left ends with the commit of its micro-batch."""
_PREPARED_AFTER = 1 / 3
"""After this part of its timeout a task prepares what it has written and goes on in another transaction. What is
prepared waits for an hour, and for longer while others still write for the same key."""
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_BUFFER_BYTES = 16 << 20


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one attempt of a task has prepared."""

    key: str
    transactions: tuple[str, ...]
    rows: int


class _Writer:
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        if options.topic is not None:
            # Here and now, in the driver: tasks would find out four times over.
            client_for(options.brokers).describe_topic(options.topic)
        self._options = options

    def _write(self, key: str, batches: Iterator[pa.RecordBatch]) -> Written:
        client = client_for(self._options.brokers)
        known = client.committed_under(key)
        if known is not None:
            if known.is_superseded:
                raise TransactionConflict(
                    f"a later micro-batch of this query was written already than this one ({key}): the checkpoint is "
                    "an older copy. Go on with the one that was used last, or begin anew with another"
                )
            return _passed_over(key, batches)
        attempt = Attempt(client, self._options, key)
        try:
            return attempt.write(batches)
        except (TransactionAborted, TransactionConflict):
            attempt.abort()
            if client.committed_under(key) is None:
                raise
            # Another attempt, or another run of the same batch, was faster.
            return _passed_over(key, batches, attempt.rows)
        except BaseException:
            attempt.abort()
            raise
        finally:
            attempt.close()

    def _commit(self, messages: list[Written]) -> None:
        ids = [each for message in messages for each in message.transactions]
        keys = {message.key for message in messages}
        if len(keys) > 1:
            raise InvalidRequest(f"tasks of one write tell of different batches: {', '.join(sorted(keys))}")
        if not keys:
            return
        # Also if there are no rows: what an earlier run of the same batch has left is aborted with this.
        committed = client_for(self._options.brokers).commit_many(key := keys.pop(), ids)
        rows = sum(message.rows for message in messages)
        if committed.messages != rows and not self._options.trust_committed:
            raise InvalidRequest(
                f"{committed.messages} messages were committed under {key} before, and this time there are {rows} "
                "rows: the checkpoint is an older copy, or the query does not give the same rows for the same input. "
                "Nothing was written now. If what was committed is right, set trustCommitted=true for one run (in a "
                "pipeline: goqueue pipeline run … --trust-committed)"
            )

    def _abort(self, messages: list[Written | None]) -> None:
        """Never harms what is committed: the broker refuses to abort that."""
        client = client_for(self._options.brokers)
        for message in messages:
            for transaction in message.transactions if message is not None else ():
                try:
                    client.abort_transaction(transaction)
                except GoQueueError as error:
                    log.debug("a transaction was not aborted", transaction=transaction, error=str(error))


def _passed_over(key: str, batches: Iterator[pa.RecordBatch], taken: int = 0) -> Written:
    """It is committed already. The rows are only counted."""
    return Written(key, (), taken + sum(batch.num_rows for batch in batches))


class Attempt:
    """One attempt of a task: writes, prepares, and begins anew while there is more."""

    def __init__(self, client: Client, options: SinkOptions, key: str) -> None:
        timeout_s = options.transaction_timeout_ms / 1_000 or _TIMEOUT_S
        self._prepare_after_s = timeout_s * _PREPARED_AFTER
        self._producer: Producer = client.producer(transaction_timeout=timeout_s, buffer_bytes=_BUFFER_BYTES)
        self._client = client
        self._key = key
        self._prepared: list[str] = []
        self._open: Transaction | None = None
        self._began_at = 0.0
        self.rows = 0
        """How many were taken."""
        self._partitions: dict[str, int] = {}
        self._encoder = Encoder(options.topic, self._partitions_of)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        for batch in batches:
            self.rows += batch.num_rows
            for parcel in self._encoder.encode(batch):
                self._transaction().send_frames(*parcel)
        self._prepare()
        return Written(self._key, tuple(self._prepared), self.rows)

    def abort(self) -> None:
        """What is open is aborted when the producer is closed."""
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
    """All rows of a DataFrame, or none. With the option ``commitKey`` only once, however often it is done."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._key = options.commit_key or f"spark/{secrets.token_hex(16)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write(self._key, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit([each for each in messages if isinstance(each, Written)])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort([each if isinstance(each, Written) else None for each in messages])
        if self._options.commit_key is None:
            # Nobody else knows this key: with it used up, tasks that are still at work are too late.
            client_for(self._options.brokers).commit_many(self._key, [])


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Micro-batch by micro-batch, each exactly once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = batch = None
        if context is not None:
            query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise InvalidRequest(
                "Spark does not tell this task which query and micro-batch it belongs to, so the sink cannot know what "
                "was written already; this version of Spark cannot be used for exactly-once writes"
            )
        # One series for each query and where it writes to: of a series the broker remembers the last for good.
        return self._write(f"spark/{query}/{self._options.topic or '*'}#{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._commit([each for each in messages if isinstance(each, Written)])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._abort([each if isinstance(each, Written) else None for each in messages])
