"""Refuses writes before the disk is full, so that nothing is ever half written for want of room."""

from __future__ import annotations

from pathlib import Path

from goqueue.model.clock import NANOS_PER_MS, Clock
from goqueue.model.errors import DiskFull
from goqueue.model.logging import get_logger
from goqueue.storage.files.disk_errors import told
from goqueue.storage.files.files import Files

log = get_logger(__name__)

_LOOK_EVERY_NS = 100 * NANOS_PER_MS


class DiskGuard:
    """Looks at the disk at most every 100 ms, when someone wants to write or to know."""

    def __init__(self, files: Files, root: Path, min_free_bytes: int, clock: Clock) -> None:
        self._files = files
        self._root = root
        self.min_free_bytes = min_free_bytes
        self._clock = clock
        self._looked_at_ns: int | None = None
        self.free_bytes = 0
        self.full = False

    def check(self) -> None:
        """Raise ``DiskFull`` while there is less room than the watermark."""
        if self.is_full():
            raise DiskFull(
                f"the disk has {shown_size(self.free_bytes)} free, less than storage.min_free_bytes "
                f"({shown_size(self.min_free_bytes)}); publishing is refused until there is room",
                retry_after_s=1,
            )

    def is_full(self) -> bool:
        """Whether there is less room than the watermark."""
        now_ns = self._clock.monotonic_ns()
        if self._looked_at_ns is None or now_ns - self._looked_at_ns >= _LOOK_EVERY_NS:
            self.look()
        return self.full

    def look(self) -> int:
        """Look at the disk now; return how many bytes are free."""
        self._looked_at_ns = self._clock.monotonic_ns()
        try:
            self.free_bytes = self._files.free_bytes(self._root)
        except OSError as error:
            raise told(error, "looking at the data folder") from error
        full = self.free_bytes < self.min_free_bytes
        if full != self.full:
            self.full = full
            if full:
                log.error("disk is nearly full, publishing is refused", free_bytes=self.free_bytes)
            else:
                log.info("disk has room again, publishing goes on", free_bytes=self.free_bytes)
        return self.free_bytes


def shown_size(size_bytes: int) -> str:
    """As far as it is of interest how much room there is."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"
