"""Spark without its chatter. The JVM writes to the standard error that it finds when it starts."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from goqueue.model.errors import GoQueueError
from goqueue.spark.pipelines.definitions.problems import SparkNotStarted
from goqueue.spark.pipelines.running.spark_errors import without_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STANDARD_ERROR = 2
_MOST_BYTES = 4_000


@contextmanager
def quiet_start() -> Iterator[None]:
    """What is started meanwhile writes its errors into a file that is gone with it; if it fails, they are told."""
    sys.stderr.flush()
    kept = os.dup(_STANDARD_ERROR)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), _STANDARD_ERROR)
        try:
            yield
        except GoQueueError:
            raise
        except Exception as error:
            size = said.seek(0, os.SEEK_END)
            said.seek(max(0, size - _MOST_BYTES))
            told = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
            why = next((line for line in told if "Exception" in line or "Error" in line), told[-1] if told else error)
            raise SparkNotStarted(f"Spark does not start: {without_java(str(why))}") from error
        finally:
            os.dup2(kept, _STANDARD_ERROR)
            os.close(kept)


def quiet_end(made: SparkSession) -> None:
    """If Java is gone, Python's half of Spark prints a traceback for each connection. Who runs it tells that."""
    logging.getLogger().addFilter(_is_not_of_the_bridge)
    made.sparkContext._accumulatorServer.handle_error = _say_nothing  # type: ignore[assignment, method-assign]


def _is_not_of_the_bridge(record: logging.LogRecord) -> bool:
    """It has no logger of its own for these."""
    return "py4j" not in record.pathname


def _say_nothing(_request: object, _address: object) -> None:
    return
