"""Vectorized trace ids of all messages of a run: derived from topic, partition and offset, or set by producers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goqueue.spark.source.header_columns import HeaderTable
from goqueue.wire.internal_headers import DELAYED_OFFSET, TRACE
from goqueue.wire.trace_context import TRACEPARENT, derived_trace_ids, trace_id_of

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
"""The two hexadecimal digits of every byte."""
_ID_LENGTH = 32
_USUAL_TRACEPARENT = np.frombuffer(b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00", np.uint8)
"""The form of nearly every ``traceparent``; others are parsed one by one."""
_IS_HEX = np.isin(np.arange(256), _DIGITS)
_DASHES = [2, 35, 52]
_HEX = [each for each in range(3, len(_USUAL_TRACEPARENT)) if each not in _DASHES]
_TRACE = slice(3, 35)
_SPAN = slice(36, 52)


def trace_ids(topic: str, partition: int, offsets: NDArray[np.int64], headers: HeaderTable) -> pa.Array:
    """The trace id of each message, equal to ``wire.trace_context.trace_id_of`` for each."""
    text = _derived_ids(topic, partition, offsets)
    for row in _apply_traceparents(headers, text):
        indices_of = trace_id_of(headers.headers_of(row), topic, partition, int(offsets[row]))
        text[row] = np.frombuffer(indices_of.encode(), np.uint8)
    ends = np.arange(0, (len(offsets) + 1) * _ID_LENGTH, _ID_LENGTH, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(offsets), [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _derived_ids(topic: str, partition: int, offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    numbers = derived_trace_ids(topic, partition, offsets)
    return _HEX_PAIRS[numbers.astype(">u8").view(np.uint8)].view(np.uint8).reshape(len(offsets), _ID_LENGTH)


def _apply_traceparents(headers: HeaderTable, text: NDArray[np.uint8]) -> list[int]:
    """Set the ids from ``traceparent`` headers of the usual form; return the rows that must be parsed one by one."""
    parents = headers.indices_of(TRACEPARENT)
    rows = headers.rows_of(parents)
    # If a message has several, the first counts.
    rows, firsts = np.unique(rows, return_index=True)
    values = headers.fixed_size_values(parents[firsts], len(_USUAL_TRACEPARENT))
    if values is None:
        ordinary = np.zeros(len(rows), bool)
    else:
        ordinary = (
            (values[:, :2] == _USUAL_TRACEPARENT[:2]).all(axis=1)
            & (values[:, _DASHES] == ord("-")).all(axis=1)
            & _IS_HEX[values[:, _HEX]].all(axis=1)
            & (values[:, _TRACE] != ord("0")).any(axis=1)
            & (values[:, _SPAN] != ord("0")).any(axis=1)
        )
        text[rows[ordinary]] = values[ordinary, _TRACE]
    others = np.concatenate([headers.rows_of(headers.indices_of(name)) for name in (TRACE, DELAYED_OFFSET)])
    closer = np.union1d(rows[~ordinary], np.setdiff1d(others, rows[ordinary]))
    found: list[int] = closer.tolist()
    return found
