"""A broker as users run it: a process that is reached over HTTP and gRPC."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.child import environment
from bench.scratch import scratch_folder

_COMMAND = (sys.executable, "-c", "from goqueue.cli.main import main; main()", "serve")
_POLL_S = 0.005
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_REQUEST_TIMEOUT_S = 30.0
_SHOWN_LOG_BYTES = 4_000
_USER_TIME, _SYSTEM_TIME = 11, 12
"""Where these stand in ``/proc/PID/stat`` behind the program's name."""


class BrokerDidNotStart(Exception):
    """It ended, or did not become ready in time. The text carries the end of its log."""


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A broker that is ready."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    grpc_port: int
    ready_after_s: float
    """From the start of the process to the first 200 of ``/readyz``."""

    @property
    def address(self) -> str:
        """Where its gRPC listens."""
        return f"{self.host}:{self.grpc_port}"

    def request(self, method: str, path: str, body: object = None) -> Any:
        """One request; the decoded answer. Anything but a 2xx raises."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_REQUEST_TIMEOUT_S)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"{method} {path} answered {answer.status}: {content[:500]!r}")
        return json.loads(content)

    def cpu_s(self) -> float:
        """The processor time that it has used so far, all threads together."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Ask it to stop and wait until it has."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        self.process.kill()
        self.process.wait(_STOP_TIMEOUT_S)


@contextmanager
def broker_process(data: Path, *options: str) -> Iterator[BrokerProcess]:
    """Start ``goqueue serve`` over ``data`` and wait until it is ready; it is gone when this ends."""
    with scratch_folder() as logs:
        log_path = logs / "broker.log"
        command = (*_COMMAND, "--data", str(data), "--port", "0", "--grpc-port", "0", "--log-format", "json", *options)
        started = time.perf_counter()
        with log_path.open("wb") as log:
            process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log)
        try:
            host, port, grpc_port = _wait_until_listening(process, log_path, started)
            _wait_until_ready(process, log_path, started, host, port)
            broker = BrokerProcess(process, host, port, grpc_port, time.perf_counter() - started)
            yield broker
            if process.poll() is None:
                broker.stop()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _wait_until_listening(process: subprocess.Popen[bytes], log_path: Path, started: float) -> tuple[str, int, int]:
    while True:
        for line in log_path.read_bytes().splitlines():
            if b'"listening"' in line and (address := _address(line)) is not None:
                return address
        _pause(process, log_path, started)


def _address(line: bytes) -> tuple[str, int, int] | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    if fields.get("event") != "listening":
        return None
    return str(fields["host"]), int(fields["port"]), int(fields["grpc_port"])


def _wait_until_ready(process: subprocess.Popen[bytes], log_path: Path, started: float, host: str, port: int) -> None:
    while True:
        connection = http.client.HTTPConnection(host, port, timeout=_REQUEST_TIMEOUT_S)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == http.client.OK:
                return
        except OSError:
            pass
        finally:
            connection.close()
        _pause(process, log_path, started)


def _pause(process: subprocess.Popen[bytes], log_path: Path, started: float) -> None:
    if process.poll() is not None:
        problem = f"the broker ended with status {process.returncode}"
    elif time.perf_counter() - started > _START_TIMEOUT_S:
        problem = f"the broker was not ready after {_START_TIMEOUT_S:.0f} s"
    else:
        time.sleep(_POLL_S)
        return
    raise BrokerDidNotStart(f"{problem}; its log ends with:\n{log_path.read_text()[-_SHOWN_LOG_BYTES:]}")
