"""The trace ids of all messages of a run: computed from where they lie, or as their producers named them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goqueue.spark.source.header_columns import HeaderTable
from goqueue.wire.internal_headers import DELAYED_OFFSET, TRACE
from goqueue.wire.trace_context import TRACEPARENT, derived_trace_ids, trace_id_of

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
"""The two digits of every byte."""
_LENGTH = 32
_LIKELY = np.frombuffer(b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00", np.uint8)
"""The shape that nearly every ``traceparent`` has; what has another is looked at on its own."""
_IS_HEX = np.isin(np.arange(256), _DIGITS)
_DASHES = [2, 35, 52]
_HEX = [each for each in range(3, len(_LIKELY)) if each not in _DASHES]
_TRACE = slice(3, 35)
_SPAN = slice(36, 52)


def trace_ids(topic: str, partition: int, offsets: NDArray[np.int64], headers: HeaderTable) -> pa.Array:
    """As ``wire.trace_context.trace_id_of`` says of each message."""
    text = _computed(topic, partition, offsets)
    for row in _name_from_parents(headers, text):
        named = trace_id_of(headers.of_row(row), topic, partition, int(offsets[row]))
        text[row] = np.frombuffer(named.encode(), np.uint8)
    ends = np.arange(0, (len(offsets) + 1) * _LENGTH, _LENGTH, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(offsets), [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _computed(topic: str, partition: int, offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    numbers = derived_trace_ids(topic, partition, offsets)
    return _PAIRS[numbers.astype(">u8").view(np.uint8)].view(np.uint8).reshape(len(offsets), _LENGTH)


def _name_from_parents(headers: HeaderTable, text: NDArray[np.uint8]) -> list[int]:
    """Write the ids that ordinary ``traceparent`` headers name; return the rows that need a closer look."""
    parents = headers.named(TRACEPARENT)
    rows = headers.row_of(parents)
    # Of several the first counts.
    rows, firsts = np.unique(rows, return_index=True)
    values = headers.values_of(parents[firsts], len(_LIKELY))
    if values is None:
        ordinary = np.zeros(len(rows), bool)
    else:
        ordinary = (
            (values[:, :2] == _LIKELY[:2]).all(axis=1)
            & (values[:, _DASHES] == ord("-")).all(axis=1)
            & _IS_HEX[values[:, _HEX]].all(axis=1)
            & (values[:, _TRACE] != ord("0")).any(axis=1)
            & (values[:, _SPAN] != ord("0")).any(axis=1)
        )
        text[rows[ordinary]] = values[ordinary, _TRACE]
    others = np.concatenate([headers.row_of(headers.named(name)) for name in (TRACE, DELAYED_OFFSET)])
    closer = np.union1d(rows[~ordinary], np.setdiff1d(others, rows[ordinary]))
    found: list[int] = closer.tolist()
    return found
