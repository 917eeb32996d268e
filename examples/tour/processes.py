"""The processes of the tour: started, killed, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from examples.tour.stage import NotSo
from goqueue.testing.ports import free_port

ROOT = Path(__file__).parents[2]
START_WITHIN_S = 60.0
END_WITHIN_S = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Processes:
    """A temporary folder, and everything that was started; both are gone after ``clear_up``."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="goqueue-tour-"))
        self._running: list[subprocess.Popen[str]] = []
        self._is_starting = False
        self._signalled = False

    def start(
        self, module: str, *arguments: str, log: str, cwd: Path = ROOT, variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Run a Python module; ``log`` names the file in the folder that gets its standard error.

        Each is a session of its own: Ctrl-C reaches the tour alone, which then ends the others in good order.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_")}
        environment |= {"TMPDIR": str(self.folder), "SPARK_LOCAL_DIRS": str(self.folder)}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
        environment |= variables or {}
        self._is_starting = True
        try:
            with (self.folder / log).open("a") as errors:
                process = subprocess.Popen(
                    [sys.executable, "-m", module, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=cwd,
                    env=environment,
                    start_new_session=True,
                )
            self._running.append(process)
        finally:
            self._is_starting = False
        if self._signalled:
            self._end_at_once()
        return process

    def stop(self, *processes: subprocess.Popen[str]) -> list[tuple[int, str]]:
        """SIGTERM to each, then as ``ended`` tells."""
        for process in processes:
            process.terminate()
        return [self.ended(process) for process in processes]

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait until it has; its exit status, and what it has printed. Killed if that takes too long."""
        try:
            told, _ = process.communicate(timeout=END_WITHIN_S)
        except subprocess.TimeoutExpired:
            told = ""
        self.kill(process)
        return process.returncode, told

    def kill(self, process: subprocess.Popen[str]) -> None:
        """kill -9, of all that it has started, too."""
        for pid in [process.pid, *_session(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                # One that ended by itself may have been waited for, and its number be another's by now.
                if pid != process.pid or process.poll() is None:
                    os.kill(pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if process in self._running:
            self._running.remove(process)

    def clear_up(self) -> None:
        """Doing it twice does no harm."""
        for process in list(self._running):
            self.kill(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def clear_up_on_signals(self) -> None:
        """Ctrl-C, SIGTERM and a closed terminal end the tour at once: nothing waits for a broker that is gone."""
        for each in _SIGNALS:
            signal.signal(each, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        if self._is_starting:
            # A process that nobody has noted yet would be left behind; ``start`` looks at this in a moment.
            self._signalled = True
        else:
            self._end_at_once()

    def _end_at_once(self) -> NoReturn:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        self.clear_up()
        os.write(2, b"\nThe tour was interrupted; nothing is left behind.\n")
        os._exit(130)


class Broker:
    """``goqueue serve`` on a folder; listens when it is made. After ``kill``, ``start`` brings it back as it was."""

    def __init__(self, processes: Processes) -> None:
        self.folder = processes.folder / "data"
        self.http_port, self.grpc_port = free_port(), free_port()
        self._processes = processes
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def start(self) -> None:
        ports = ["--port", str(self.http_port), "--grpc-port", str(self.grpc_port)]
        log = self._processes.folder / "broker.log"
        began = log.stat().st_size if log.exists() else 0
        self.process = self._processes.start(
            "goqueue", "serve", "--data", str(self.folder), *ports, "--log-format", "json", log=log.name
        )
        with log.open() as lines:
            lines.seek(began)
            self.http_port, self.grpc_port = self._ports_told(lines)

    def kill(self) -> None:
        self._processes.kill(self.process)

    def stop(self) -> int:
        [(status, _)] = self._processes.stop(self.process)
        return status

    def _ports_told(self, lines: Iterator[str]) -> tuple[int, int]:
        seen: deque[str] = deque(maxlen=20)
        waited = threading.Event()
        for _ in range(int(START_WITHIN_S * 100)):
            for line in lines:
                seen.append(line)
                if '"listening"' in line:
                    told = json.loads(line)
                    return int(told["port"]), int(told["grpc_port"])
            if self.process.poll() is not None:
                break
            waited.wait(0.01)
        raise NotSo("the broker did not start:\n" + "".join(seen))


def _session(pid: int) -> list[int]:
    """Processes of the session that ``pid`` began: Spark's workers have process groups of their own."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            session = each.read_text().rpartition(")")[2].split()[3]
            if int(session) == pid:
                found.append(int(each.parent.name))
    return found
