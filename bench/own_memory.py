"""What the system says of this program's memory. Linux only."""

from __future__ import annotations

from pathlib import Path


def peak_bytes() -> int:
    """The high-water mark of this program. (``ru_maxrss`` would be that of whoever started it, if larger.)"""
    return _status_bytes("VmHWM")


def resident_bytes() -> int:
    return _status_bytes("VmRSS")


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1_024
    raise RuntimeError(f"/proc/self/status has no {field}")
