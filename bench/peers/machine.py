"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from bench.disk_probe import fsync_ms
from bench.figure import rounded
from bench.scratch import scratch_folder


def machine() -> dict[str, object]:
    """Processors are shared by the server and its one client: what the server takes, the client does not have."""
    with scratch_folder() as folder:
        disk_ms = fsync_ms(folder)
        file_system = _file_system(folder)
    return {
        "processor": _field("/proc/cpuinfo", "model name"),
        # Those that this process may use, not those that the machine has.
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": rounded(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3),
        "system": f"{platform.system()} {_major_minor(platform.release())}",
        "python": platform.python_version(),
        "file_system": file_system,
        "disk_fsync_ms": rounded(disk_ms),
        "load_average_before": rounded(os.getloadavg()[0]),
    }


def _major_minor(release: str) -> str:
    """The rest of the name of a kernel tells who built it, and for which machine."""
    return ".".join(release.split(".")[:2])


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"


def _file_system(folder: Path) -> str:
    """Of what kind the file system is that servers keep their data on."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    place = folder.resolve()
    over = [(len(point), kind) for _, point, kind, *_ in mounts if place.is_relative_to(point)]
    return max(over)[1] if over else "unknown"
