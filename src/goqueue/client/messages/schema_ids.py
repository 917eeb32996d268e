"""Schema ids of the values in a batch, so that schemas can be loaded before the values are decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import numpy as np

from goqueue.client.connection.retries import Backoff
from goqueue.client.messages.serializers import Deserializer, SchemaReader
from goqueue.model.errors import CorruptData, GoQueueError
from goqueue.wire.batch import FrameRun
from goqueue.wire.compression import decompressed_start
from goqueue.wire.frame import HEADER_SIZE, Flag
from goqueue.wire.registry_framing import HEADER_BYTES, parse_schema_id

_TOMBSTONE, _COMPRESSED = np.uint8(Flag.TOMBSTONE), np.uint8(Flag.COMPRESSED)


def schema_ids(run: FrameRun) -> set[int]:
    """Schema ids at the start of the values. Damaged frames may add ids that are not needed."""
    columns = run.columns()
    starts = run.positions.astype(np.int64) + HEADER_SIZE + columns["key_length"]
    lengths = columns["value_length"].astype(np.int64)
    flags = columns["flags"]
    whole = starts + lengths <= run.ends()
    packed = (flags & _COMPRESSED != 0) & whole
    plain = whole & ~packed & (flags & _TOMBSTONE == 0) & (lengths >= HEADER_BYTES)
    found: set[int] = set()
    if plain.any():
        every_byte = np.frombuffer(run.frames, np.uint8)
        headers = every_byte[starts[plain][:, None] + np.arange(HEADER_BYTES)]
        framed = np.ascontiguousarray(headers[headers[:, 0] == 0][:, 1:])
        found.update(np.unique(framed.view(">u4")).tolist())
    for index in np.flatnonzero(packed).tolist():
        value = bytes(run.frames[starts[index] : starts[index] + lengths[index]])
        try:
            schema_id = parse_schema_id(decompressed_start(value, HEADER_BYTES))
        except CorruptData:
            # The error is raised to the reader that decodes this value.
            continue
        if schema_id is not None:
            found.add(schema_id)
    return found


async def load_schemas(
    deserializer: Deserializer | None, ids: Collection[int], backoff: Backoff, *, goes_on: Callable[[], bool]
) -> None:
    """Load the schemas, with retries as long as ``goes_on`` is true."""
    if not ids or not isinstance(deserializer, SchemaReader):
        return
    while True:
        try:
            await deserializer.learn(ids)
            return
        except GoQueueError as error:
            if not error.retriable or not goes_on():
                raise
            pause_s = backoff.next_s(error.retry_after_s)
        await asyncio.sleep(pause_s)
