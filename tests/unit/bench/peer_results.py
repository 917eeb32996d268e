"""A made-up run of a comparison, small enough to know what must come out of it."""

from __future__ import annotations

from dataclasses import asdict

from bench.peers.results import Piece, Results, Subject
from bench.peers.work import Amounts, Durability, Work

RATES = {
    "goqueue": {Work.PUBLISH: 200_000, Work.QUEUE: 50_000, Work.SINGLE: 2_000, Work.DELAY: 1_000},
    "swift": {Work.PUBLISH: 400_000, Work.SINGLE: 4_000},
    "slow": {Work.PUBLISH: 100_000, Work.QUEUE: 10_000, Work.SINGLE: 1_000, Work.DELAY: 1_000},
}
NAMES = {"goqueue": "GoQueue", "swift": "Swift Log", "slow": "Slow | Queue"}
REPETITIONS = (0.9, 1.0, 1.2)
MISSING = {"Gone MQ": "there is no gonemq here: apt install gonemq"}


def results() -> Results:
    """``swift`` is twice as fast as GoQueue, has no queue and no delay, and knows no fsync."""
    subjects = [
        Subject(
            key,
            NAMES[key],
            f"{key}-client 1.0",
            "7.1",
            {str(each): f"sync={each.name}" for each in durabilities(key)},
            (f"{NAMES[key]} is made up.",),
        )
        for key in RATES
    ]
    pieces = [
        piece(key, durability, work, size, repetition, rate * factor)
        for repetition, factor in enumerate(REPETITIONS)
        for key, rates in RATES.items()
        for durability in durabilities(key)
        for work, rate in rates.items()
        for size in (100, 1_000)
    ]
    machine = {"processor": "Abacus", "cpus": 2, "load_average_before": 0.0, "amounts": asdict(Amounts())}
    return Results("2026-11-16", machine, subjects, pieces, dict(MISSING))


def durabilities(key: str) -> list[Durability]:
    return [Durability.PAGE_CACHE] if key == "swift" else list(Durability)


def piece(key: str, durability: Durability, work: Work, size: int, repetition: int, rate: float) -> Piece:
    """Waits go evenly from nothing to twice what one message takes on average."""
    waits = [2 * number / rate for number in range(1_001)] if work in (Work.SINGLE, Work.DELAY) else []
    return Piece(
        key,
        durability,
        work,
        size,
        repetition,
        messages=round(rate * 2),
        seconds=2.0,
        client_cpu_s=1.0,
        server_cpu_s=3.0,
        server_peak_bytes=50_000_000,
        waits_ms=waits,
    )
