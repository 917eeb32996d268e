"""What a type checker says to a program that uses the client."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FACES = {
    "sync": ("Client", "", ""),
    "async": ("AsyncClient", "async ", "await "),
}
GOOD = """
from goqueue import {client}
from goqueue.client.keywords import ConsumerOptions


def handle(message: object) -> None: ...


{define}def main() -> None:
    client = {client}("localhost:9090", connect_timeout_ms=2_000, max_message_bytes="8MiB")
    {wait}client.create_topic("orders", partitions=6, retention_ms="7d", retention_bytes=None, cleanup="compact")
    {wait}client.change_topic("orders", max_retries=5, unset=["cleanup"])
    {wait}client.configure_group("mail", kind="shared", visibility_timeout_ms=None)
    client.producer(linger_ms=0, acks="leader", idempotent=False)
    shared: ConsumerOptions = {{"max_in_flight": 10, "max_lease_ms": "2h", "max_retries": 7}}
    client.consumer("mail", "orders", kind="shared", ordering="key", start="latest", **shared)
    {wait}client.worker(handle, group="mail", topics=["orders"], kind="shared", prefetch_batches=1)
    {wait}client.redrive("orders", rate=10, dry_run=True)
"""
BAD = """
from goqueue import {client}


def handle(message: object) -> None: ...


{define}def main() -> None:
    client = {client}("localhost:9090", conect_timeout_ms=2_000)
    {wait}client.create_topic("orders", partition=6)
    {wait}client.create_topic("orders", cleanup="compacted")
    {wait}client.change_topic("orders", partitions=5)
    {wait}client.configure_group("mail", kind="pool")
    client.producer(acks="one")
    client.producer(linger=0)
    client.consumer("mail", "orders", kind="pool")
    client.consumer("mail", "orders", max_inflight=1)
    client.consumer("mail", "orders", auto_commit="yes")
    {wait}client.worker(handle, group="mail", topics=["orders"], prefetch=1)
    {wait}client.redrive("orders", dry=True)
"""


def _complaints(folder: Path, text: str, face: str) -> list[int]:
    """The lines that mypy finds wrong; the configuration of this project is not the user's."""
    client, define, wait = FACES[face]
    program = folder / "program.py"
    program.write_text(text.format(client=client, define=define, wait=wait))
    # What it learns of the package is kept for the other tests of this file.
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={folder.parent / 'mypy'}"]
    done = subprocess.run([*command, str(program)], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^program\.py:(\d+): error:", done.stdout, re.MULTILINE)
    assert bool(found) == bool(done.returncode), done.stdout
    return sorted({int(line) for line in found})


@pytest.mark.parametrize("face", FACES)
def test_a_type_checker_takes_the_keywords_that_there_are(tmp_path: Path, face: str) -> None:
    assert _complaints(tmp_path, GOOD, face) == []


@pytest.mark.parametrize("face", FACES)
def test_a_type_checker_finds_every_keyword_and_value_that_is_wrong(tmp_path: Path, face: str) -> None:
    calls = [number for number, line in enumerate(BAD.splitlines(), 1) if "client." in line or " = {client}" in line]
    assert _complaints(tmp_path, BAD, face) == calls
