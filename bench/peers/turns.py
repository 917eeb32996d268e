"""Taking turns: every system does all its work once, then every system again, in the opposite order.

So a machine that is slow for a minute is slow for all. Only one server runs at a time.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bench.child import environment
from bench.peers.results import Piece, Subject
from bench.peers.system import Server, System
from bench.peers.work import Amounts, Durability, Work
from bench.report import note
from bench.scratch import scratch_folder

_CHILD_TIMEOUT_S = 300.0
_ORDER = (Work.PUBLISH, Work.BACKLOG, Work.SINGLE, Work.QUEUE, Work.LATENCY, Work.DELAY)
"""A backlog is what was published just before."""


class Turns:
    """``pieces`` and ``subjects`` grow as turns are taken."""

    def __init__(self, systems: Sequence[System], works: frozenset[Work], sizes: Sequence[int], amounts: Amounts):
        self._systems = systems
        self._works = works
        self._sizes = sizes
        self._amounts = amounts
        self.pieces: list[Piece] = []
        self.subjects: dict[str, Subject] = {}
        self.failed: dict[str, str] = {}

    def take(self, repetitions: int, durabilities: Sequence[Durability]) -> None:
        """A system that fails is left out from there on, and the others go on."""
        for repetition in range(repetitions):
            order = self._systems if repetition % 2 == 0 else self._systems[::-1]
            for durability in durabilities:
                for system in order:
                    if durability in system.durabilities and system.key not in self.failed:
                        note(f"repetition {repetition + 1} of {repetitions}, {durability}: {system.name}")
                        try:
                            self.pieces += self._turn(system, durability, repetition)
                        except Exception as error:
                            note(f"{system.name} failed: {error}")
                            self.failed[system.key] = str(error)

    def _turn(self, system: System, durability: Durability, repetition: int) -> Iterator[Piece]:
        with scratch_folder() as folder, system.start(folder, durability) as server:
            self.subjects[system.key] = Subject(
                system.key,
                system.name,
                f"{system.client} {importlib.metadata.version(system.client)}",
                server.version,
                {str(each): text for each, text in system.settings.items()},
                system.remarks,
            )
            # The first second of a server is not its best: code is compiled, files and buffers are made.
            self._child(system, server, durability, Work.PUBLISH, "warm-up", self._sizes[0])
            for size in self._sizes:
                yield from self._works_of(system, server, durability, repetition, size)

    def _works_of(
        self, system: System, server: Server, durability: Durability, repetition: int, size: int
    ) -> Iterator[Piece]:
        backlog = 0
        for work in _ORDER:
            if work not in self._works or work not in system.works:
                continue
            # What was written before must not burden what is measured now.
            os.sync()
            server.forget_peak()
            topic = f"bench-{size}" if work in (Work.PUBLISH, Work.BACKLOG) else f"bench-{size}-{work.name.lower()}"
            found = self._child(system, server, durability, work, topic, size, backlog)
            piece = Piece(
                system.key,
                durability,
                work,
                size,
                repetition,
                messages=found["messages"],
                seconds=found["seconds"],
                client_cpu_s=found["client_cpu_s"],
                server_cpu_s=found["server_cpu_s"],
                server_peak_bytes=server.peak_bytes(),
                waits_ms=found.get("waits_ms", []),
            )
            note(f"  {work}, {size} B: {piece.rate:,.0f} messages/s")
            if work is Work.PUBLISH:
                backlog = piece.messages
            yield piece

    def _child(
        self,
        system: System,
        server: Server,
        durability: Durability,
        work: Work,
        topic: str,
        size: int,
        backlog: int = 0,
    ) -> dict[str, Any]:
        command = [sys.executable, "-m", "bench.peers.child", system.key, server.address, durability, work, topic]
        command += [str(size), "--backlog", str(backlog), "--amounts", json.dumps(asdict(self._amounts))]
        command += ["--server", str(server.process.pid)]
        ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=_CHILD_TIMEOUT_S)
        if ended.returncode != 0:
            raise RuntimeError(f"{work} with messages of {size} bytes failed:\n{ended.stderr[-2_000:]}")
        answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return answer
