"""Nothing follows the appends to a partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from goqueue.model.producer_sequences import OpenRecords


class NoListeners:
    """No events and no timers."""

    def published(self, partition: object, first: int, count: int, at_ns: int) -> None:
        pass

    def delayed(self, partition: object, offsets: NDArray[np.int64], dues: NDArray[np.int64], at_ns: int) -> None:
        pass

    def fired(self, partition: object, originals: list[int], first_copy: int, at_ns: int) -> None:
        pass

    def delay_changed(self, partition: object, offset: int, due_ns: int | None, at_ns: int) -> None:
        pass

    def transaction_ended(
        self, partition: object, records: OpenRecords, at_ns: int, *, is_commit: bool, reason: str = ""
    ) -> None:
        pass

    def check_room(self, more: int) -> None:
        pass

    def added(self, partition: object, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        pass

    def held(self, partition: object, count: int) -> None:
        pass

    def set_due(self, partition: object, offsets: NDArray[np.int64], dues: NDArray[np.int64]) -> None:
        pass
