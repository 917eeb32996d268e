"""A broker in a process of its own, as users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Unpack

from goqueue.client.async_client import AsyncClient
from goqueue.client.keywords import ClientOptions
from goqueue.client.sync import Client
from goqueue.model.errors import BrokerUnavailable
from goqueue.testing.ports import free_port

Protocol = Literal["grpc", "native"]
_START_WITHIN_S = 60.0
_STOP_WITHIN_S = 60.0
_KEPT_LINES = 1_000
_TAKEN = "cannot listen on"


class BrokerProcess:
    """Listens when the constructor returns, on free ports unless they are given. ``protocol``: that of its clients."""

    def __init__(
        self,
        data: Path | str,
        *,
        http_port: int = 0,
        grpc_port: int = 0,
        native_port: int = 0,
        protocol: Protocol = "grpc",
        settings: dict[str, object] | None = None,
    ) -> None:
        self.data = Path(data)
        self.protocol = protocol
        ports = (http_port, grpc_port, native_port)
        self._start(data, [port or free_port() for port in ports], settings or {})
        if not self.http_port and not all(ports) and any(_TAKEN in line for line in self.log):
            # Another program took it in between.
            self._start(data, ports, settings or {})
        if not self.http_port:
            raise BrokerUnavailable("the broker did not start:\n" + "\n".join(self.log))

    def _start(self, data: Path | str, ports: Sequence[int], settings: dict[str, object]) -> None:
        http_port, grpc_port, native_port = ports
        self.log: deque[str] = deque(maxlen=_KEPT_LINES)
        command = [sys.executable, "-m", "goqueue", "serve", "--data", str(data), "--log-format", "json"]
        command += ["--port", str(http_port), "--grpc-port", str(grpc_port)]
        command += ["--set=native.enabled=true", f"--set=native.port={native_port}"]
        command += [f"--set={name}={value}" for name, value in settings.items()]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env=environment
        )
        self._listening = threading.Event()
        self.http_port = self.grpc_port = self.native_port = 0
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if not self._listening.wait(_START_WITHIN_S) or not self.http_port:
            self.kill()

    @property
    def address(self) -> str:
        """For ``Client(...)``."""
        if self.protocol == "native":
            return f"goqueue://127.0.0.1:{self.native_port}"
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def url(self) -> str:
        """For HTTP."""
        return f"http://127.0.0.1:{self.http_port}"

    def client(self, **options: Unpack[ClientOptions]) -> Client:
        return Client(self.address, **options)

    def async_client(self, **options: Unpack[ClientOptions]) -> AsyncClient:
        return AsyncClient(self.address, **options)

    def stop(self) -> int:
        """As SIGTERM does; return the exit status. Killed if it does not end."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self._ended()

    def kill(self) -> None:
        """As kill -9 does."""
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        status = self.process.wait()
        self._reader.join()
        if self.process.stderr is not None:
            self.process.stderr.close()
        return status

    def _read_log(self) -> None:
        for line in self.process.stderr or ():
            self.log.append(line.rstrip())
            if not self._listening.is_set() and '"listening"' in line:
                event = json.loads(line)
                self.http_port, self.grpc_port = int(event["port"]), int(event["grpc_port"])
                self.native_port = int(event["native_port"])
                self._listening.set()
        self._listening.set()


@contextmanager
def running_broker(
    data: Path | str | None = None,
    *,
    http_port: int = 0,
    grpc_port: int = 0,
    native_port: int = 0,
    protocol: Protocol = "grpc",
    settings: dict[str, object] | None = None,
) -> Iterator[BrokerProcess]:
    """A broker on ``data``, or on a temporary folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="goqueue-test-") as folder:
        broker = BrokerProcess(
            data or folder,
            http_port=http_port,
            grpc_port=grpc_port,
            native_port=native_port,
            protocol=protocol,
            settings=settings,
        )
        try:
            yield broker
        finally:
            if broker.process.poll() is None:
                broker.stop()
            # Also of one that ended by itself.
            broker._ended()
