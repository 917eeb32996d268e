"""Suppression of Spark's own output. The JVM keeps the standard error that it inherits at its start."""

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
from goqueue.spark.pipelines.running.spark_errors import jvm_sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STANDARD_ERROR = 2
_MAX_BYTES = 4_000


@contextmanager
def capture_stderr() -> Iterator[None]:
    """Redirect standard error to a temporary file, for processes started in this context too.

    An exception is raised as ``SparkNotStarted`` with the first error line of that file.
    """
    sys.stderr.flush()
    saved_fd = os.dup(_STANDARD_ERROR)
    with tempfile.TemporaryFile() as stderr_file:
        os.dup2(stderr_file.fileno(), _STANDARD_ERROR)
        try:
            yield
        except GoQueueError:
            raise
        except Exception as error:
            size = stderr_file.seek(0, os.SEEK_END)
            stderr_file.seek(max(0, size - _MAX_BYTES))
            lines = [line for line in stderr_file.read().decode(errors="replace").splitlines() if line.strip()]
            cause = next(
                (line for line in lines if "Exception" in line or "Error" in line), lines[-1] if lines else error
            )
            raise SparkNotStarted(f"Spark does not start: {jvm_sentence(str(cause))}") from error
        finally:
            os.dup2(saved_fd, _STANDARD_ERROR)
            os.close(saved_fd)


def silence_py4j(spark: SparkSession) -> None:
    """Silence py4j, which prints a traceback per connection when Java is gone; the runner reports that instead."""
    logging.getLogger().addFilter(_is_not_py4j)
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Whether a record is not py4j's. Matched by path, because py4j logs these records to the root logger."""
    return "py4j" not in record.pathname
