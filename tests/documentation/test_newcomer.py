"""Somebody new: a fresh copy of the project, nothing but the README, its commands in its order.

It makes an environment of its own, so it takes minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from goqueue.testing.ports import free_port

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_PATIENCE_S = 900


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every file that is or would be committed, and no other."""
    folder = tmp_path_factory.mktemp("newcomer") / "goqueue"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A shell in which nobody has set anything for GoQueue or for Python."""
    ours = ("GOQUEUE_", "PYTHON", "PYTEST_", "VIRTUAL_ENV", "MAKE", "SPARK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    venv = str(ROOT / ".venv" / "bin")
    kept["PATH"] = os.pathsep.join(each for each in kept["PATH"].split(os.pathsep) if each != venv)
    return kept | {"GOQUEUE_CONTEXTS": str(tmp_path_factory.mktemp("home") / "contexts.json")}


def blocks(language: str) -> list[str]:
    return [content for kind, content in _BLOCK.findall((ROOT / "README.md").read_text()) if kind == language]


def ran(command: list[str], project: Path, surroundings: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=project, env=surroundings, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def make_run(project: Path, surroundings: dict[str, str]) -> Iterator[tuple[int, int]]:
    """The README's own way to a broker, on other ports than its own: those may be in use here."""
    ports = free_port(), free_port()
    named = {"GOQUEUE_HTTP_PORT": str(ports[0]), "GOQUEUE_GRPC_PORT": str(ports[1])}
    broker = subprocess.Popen(["make", "run"], cwd=project, env=surroundings | named, start_new_session=True)
    try:
        wait_until_ready(broker, ports[0])
        yield ports
    finally:
        os.killpg(broker.pid, signal.SIGINT)
        broker.wait(timeout=60)


def wait_until_ready(broker: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        assert broker.poll() is None, "make run ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("make run serves nothing")


@pytest.mark.timeout(2 * _PATIENCE_S)
def test_the_readme_is_enough(project: Path, surroundings: dict[str, str]) -> None:
    offered = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    assert {"make demo", "make run", 'export PATH="$PWD/.venv/bin:$PATH"'} <= set(offered)
    before = {each.name for each in project.iterdir()}
    shown = ran(["make", "demo"], project, surroundings)
    assert "✓" in shown
    with make_run(project, surroundings) as (port, grpc_port):
        there = surroundings | {"GOQUEUE_SERVER": f"http://127.0.0.1:{port}"}
        there["PATH"] = f"{project}/.venv/bin{os.pathsep}{there['PATH']}"
        for script in blocks("bash"):
            local = script.replace("localhost:8080", f"127.0.0.1:{port}")
            ran(["bash", "-euo", "pipefail", "-c", local], project, there)
        for script in blocks("python"):
            python = [str(project / ".venv" / "bin" / "python"), "-c", script]
            ran(python, project, there | {"GOQUEUE_ADDRESS": f"127.0.0.1:{grpc_port}"})
    # Two things may be new: the environment, and the broker's messages.
    assert {each.name for each in project.iterdir()} - before == {".venv", "goqueue-data"}
