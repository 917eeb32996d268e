"""A system under test: how it is had, started, and watched."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.work import Durability, Work

_START_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.05
_SHOWN_LOG_BYTES = 3_000
_PARENT, _USER_TIME, _SYSTEM_TIME = 1, 11, 12
"""Where these stand in ``/proc/PID/stat`` behind the program's name."""


class Missing(Exception):
    """A system that cannot be had here. The text says what is missing and how to get it."""


class DidNotStart(Exception):
    """A server ended, or nobody answered in time. The text carries the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    process: subprocess.Popen[bytes]
    address: str
    version: str

    def peak_bytes(self) -> int:
        """The most memory that they had at a time since ``forget_peak``."""
        return sum(_status_bytes(pid, "VmHWM") for pid in family(self.process.pid))

    def forget_peak(self) -> None:
        for pid in family(self.process.pid):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


@dataclass(frozen=True, slots=True)
class System:
    """One way to run one system. ``settings`` say, for people, what differs from what it does by default."""

    key: str
    name: str
    client: str
    """The Python package that talks to it."""
    durabilities: frozenset[Durability]
    works: frozenset[Work]
    settings: dict[Durability, str]
    prepare: Callable[[], None]
    """Get what is needed, or raise ``Missing``. It may take minutes once, and no time after that."""
    start: Callable[[Path, Durability], AbstractContextManager[Server]]
    remarks: tuple[str, ...] = ()
    """What a reader of the figures has to know, such as what its acknowledgement of a queue means."""


def family(pid: int) -> list[int]:
    """A process and all that descends from it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and (fields := _stat(int(path.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(path.name))
    found = [pid]
    for each in found:
        found.extend(children.get(each, ()))
    return found


def cpu_s(pid: int) -> float:
    """The processor time of a process and of all that descends from it."""
    stats = [fields for each in family(pid) if (fields := _stat(each))]
    ticks = sum(int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME]) for fields in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _status_bytes(pid: int, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1_024 for line in lines if line.startswith(f"{field}:")), 0)


def program(name: str, remedy: str, *places: str) -> str:
    """Where a program is, or ``Missing``."""
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", *places)))
    if found is None:
        raise Missing(f"there is no {name} here: {remedy}")
    return found


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    answers: Callable[[], bool],
    *,
    environment: dict[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a process group of its own until the block is left, and wait first until it ``answers``."""
    log_path = folder / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.perf_counter() + _START_TIMEOUT_S
        while not answers():
            if process.poll() is not None:
                problem = f"ended with status {process.returncode}"
            elif time.perf_counter() > deadline:
                problem = f"did not answer within {_START_TIMEOUT_S:.0f} s"
            else:
                time.sleep(_POLL_S)
                continue
            end = log_path.read_text(errors="replace")[-_SHOWN_LOG_BYTES:]
            raise DidNotStart(f"{command[0]} {problem}; its log ends with:\n{end}")
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop, then make it; what it started goes with it."""
    members = family(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pid in members[1:]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def listens(port: int) -> bool:
    """Whether somebody accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
