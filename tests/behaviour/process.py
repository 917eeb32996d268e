"""A broker as users run it: ``goqueue serve`` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from doubles.patience import PATIENCE_S, TooLate

from goqueue.model.config import Config

COMMAND = (sys.executable, "-c", "from goqueue.cli.main import main; main()", "serve")
SLOW_DISK = "an fsync round was slow"
# Any free port will do for the ways in that a test does not ask for.
ELSEWHERE = ("--set", "grpc.port=0") if "grpc" in Config.__dataclass_fields__ else ()


class DidNotStart(Exception):
    """The process ended before it listened; ``status`` and ``log`` tell why."""

    def __init__(self, status: int, log: str) -> None:
        super().__init__(f"the broker ended with status {status}:\n{log}")
        self.status = status
        self.log = log


class BrokerProcess:
    """Listens when the constructor returns. Its log lines are gathered as they come."""

    def __init__(self, data: Path, *options: str, port: int = 0) -> None:
        command = (
            *COMMAND,
            "--data",
            str(data),
            "--port",
            str(port),
            "--grpc-port",
            "0",
            "--log-format",
            "json",
            *options,
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_")}
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._ended = False
        self.data = data
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment)
        self._reader = threading.Thread(target=self._gather, daemon=True)
        self._reader.start()
        try:
            self.port = int(self.wait_for_event("listening")["port"])
        except TooLate:
            self.kill()
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False, **options)

    def events(self) -> list[dict[str, Any]]:
        """What it logged so far."""
        with self._changed:
            lines = list(self._lines)
        return [json.loads(line) for line in lines if line.startswith("{")]

    def complaints(self) -> list[dict[str, Any]]:
        """Warnings and errors but for those of a slow disk, which say nothing of the broker."""
        worse = [event for event in self.events() if event["level"] in {"warning", "error"}]
        return [event for event in worse if event["event"] != SLOW_DISK]

    def log(self) -> str:
        with self._changed:
            return "\n".join(self._lines)

    def wait_for_event(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while True:
                for line in self._lines:
                    if line.startswith("{") and (event := json.loads(line))["event"] == name:
                        return event
                if self._ended:
                    raise DidNotStart(self.process.wait(PATIENCE_S), "\n".join(self._lines))
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TooLate(f"no {name!r} in the broker's log:\n" + "\n".join(self._lines))

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Until it has ended and all of its log is here; its exit status."""
        status = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return status

    def stop(self) -> int:
        self.terminate()
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def _gather(self) -> None:
        stream = self.process.stderr
        assert stream is not None
        with stream:
            for line in stream:
                with self._changed:
                    self._lines.append(line.decode(errors="replace").rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@contextmanager
def broker_process(data: Path, *options: str, port: int = 0) -> Iterator[BrokerProcess]:
    """A running broker; killed at the end if nobody has stopped it."""
    broker = BrokerProcess(data, *options, port=port)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.kill()
