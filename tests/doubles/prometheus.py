"""Prometheus and promtool: those on the path, or Debian's, unpacked into a folder of our own.

Nothing is installed and root is not needed: ``apt-get download`` fetches the package, ``dpkg -x`` unpacks it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from behaviour.waiting import until

from goqueue.testing.ports import free_port

# Four steps at most, which have to fit into the time that a test may take.
_FETCH_WITHIN_S = 25.0
_START_WITHIN_S = 60.0
_PORTS_TRIED = 5
_TAKEN = "address already in use"


class NotAvailable(Exception):
    """There is no Prometheus here, and this is why."""


@dataclass(frozen=True)
class Tools:
    prometheus: Path
    promtool: Path

    def check(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run promtool; it ends with status 0 if it has nothing to complain about."""
        command = [self.promtool, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=_START_WITHIN_S, check=False)


@cache
def find_tools() -> Tools:
    on_path = shutil.which("prometheus"), shutil.which("promtool")
    if on_path[0] and on_path[1]:
        return Tools(Path(on_path[0]), Path(on_path[1]))
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goqueue-tests"
    unpacked = home / "prometheus"
    if not unpacked.exists():
        _fetch(home, unpacked)
    return Tools(unpacked / "usr/bin/prometheus", unpacked / "usr/bin/promtool")


def _fetch(home: Path, target: Path) -> None:
    """Debian's package, unpacked at ``target``. It is there whole or not at all, whoever else fetches it meanwhile."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NotAvailable("prometheus and promtool are not on the path, and there is no apt-get to fetch them with")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as name:
            folder = Path(name)
            _download(folder)
            (package,) = folder.glob("prometheus_*.deb")
            _run(["dpkg", "-x", package.name, "unpacked"], folder)
            try:
                (folder / "unpacked").rename(target)
            except OSError:
                if not target.exists():
                    raise
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error)
        raise NotAvailable(f"prometheus is not on the path, and fetching Debian's package failed: {told}") from error


def _download(folder: Path) -> None:
    try:
        _run(["apt-get", "download", "prometheus"], folder)
    except subprocess.CalledProcessError:
        # A machine that has never run "apt-get update" knows of no packages. Lists of our own need no root.
        lists = folder / "lists"
        (lists / "partial").mkdir(parents=True)
        own = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={folder / 'cache'}"]
        _run(["apt-get", *own, "update"], folder)
        _run(["apt-get", *own, "download", "prometheus"], folder)


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_FETCH_WITHIN_S)


class Prometheus:
    """One that runs, and what it answers."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=_START_WITHIN_S, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        try:
            return self._http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """The ``data`` of an answer of its API."""
        answer = self._http.get(f"/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", f"{path} {parameters}: {answer.get('error')}"
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return result

    def value(self, expression: str) -> float | None:
        """Of a query that has one result; ``None`` while it has none."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression}: {found}"
        return float(found[0]["value"][1]) if found else None


@contextmanager
def running_prometheus(tools: Tools, config: Path) -> Iterator[Prometheus]:
    """Its data and its log lie beside the configuration."""
    log = config.parent / "prometheus.log"
    # It does not tell which port it was given, so it cannot be asked to take any; this one may be taken by another.
    for _ in range(_PORTS_TRIED):
        port = free_port()
        process = _start(tools, config, port, log)
        client = Prometheus(f"http://127.0.0.1:{port}")
        try:
            until(lambda: client.is_ready() or process.poll() is not None, _START_WITHIN_S)  # noqa: B023
            if process.poll() is None:
                yield client
                return
        finally:
            client.close()
            process.kill()
            process.wait(_START_WITHIN_S)
        if _TAKEN not in log.read_text():
            break
    raise AssertionError(f"Prometheus ended with status {process.returncode}:\n{log.read_text()}")


def _start(tools: Tools, config: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    command = [
        tools.prometheus,
        f"--config.file={config}",
        f"--storage.tsdb.path={config.parent / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log.open("w") as stream:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
