"""Repetitions brought together, and GoQueue beside the best of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench.peers.results import Piece, Results, Subject
from bench.peers.work import Amounts, Durability, Work

OURS = "goqueue"
RATED = (Work.PUBLISH, Work.BACKLOG, Work.QUEUE, Work.SINGLE)
"""Work that a system does as fast as it can."""
WAITED = (Work.SINGLE, Work.LATENCY, Work.DELAY)
"""Work of which every message's wait is known."""
_SHORTEST_MS = 0.001
"""Less is below what clocks tell, and a delayed message that came early is not better for it."""
_MICROSECONDS = 1e6
_MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Measure:
    """Something to compare systems by."""

    name: str
    more_is_better: bool
    of: Callable[[Piece], float]


RATE = Measure("messages/s", True, lambda piece: piece.rate)
P50 = Measure("p50", False, lambda piece: max(piece.wait_ms(0.5), _SHORTEST_MS))
P99 = Measure("p99", False, lambda piece: max(piece.wait_ms(0.99), _SHORTEST_MS))
WORST = Measure("max", False, lambda piece: piece.wait_ms(1.0))
EARLIEST = Measure("min", False, lambda piece: piece.wait_ms(0.0))
SERVER_US = Measure("server µs", False, lambda piece: piece.server_cpu_s * _MICROSECONDS / piece.messages)
CLIENT_US = Measure("client µs", False, lambda piece: piece.client_cpu_s * _MICROSECONDS / piece.messages)
PEAK_MB = Measure("peak MB", False, lambda piece: piece.server_peak_bytes / _MEGABYTE)


@dataclass(frozen=True, slots=True)
class Runs:
    """One measure of one piece of work over all repetitions."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def half_range(self) -> float:
        """Half of what lies between the lowest and the highest: the ± of the tables."""
        return (max(self.values) - min(self.values)) / 2

    def overlaps(self, other: Runs) -> bool:
        """Whether a repetition of one could as well have been one of the other."""
        return min(self.values) <= max(other.values) and min(other.values) <= max(self.values)


@dataclass(frozen=True, slots=True)
class Asked:
    """A piece of work without who does it."""

    durability: Durability
    work: Work
    size: int


@dataclass(frozen=True, slots=True)
class Standing:
    """GoQueue and the best of the others in one measure. ``ratio`` is above 1 where GoQueue is ahead."""

    asked: Asked
    measure: Measure
    ours: Runs
    best_peer: Subject
    best: Runs

    @property
    def ratio(self) -> float:
        ours, best = self.ours.median, self.best.median
        return ours / best if self.measure.more_is_better else best / ours


def runs(results: Results, system: str, asked: Asked, measure: Measure) -> Runs | None:
    """Nothing if the system did not do that."""
    values = tuple(measure.of(piece) for piece in results.of(system, asked.durability, asked.work, asked.size))
    return Runs(values) if values else None


def best_of(results: Results, systems: list[Subject], asked: Asked, measure: Measure) -> Subject | None:
    """Whose median is best, of those that did it."""
    found = [(subject, each) for subject in systems if (each := runs(results, subject.key, asked, measure))]
    if not found:
        return None
    pick = max if measure.more_is_better else min
    return pick(found, key=lambda pair: pair[1].median)[0]


def standing(results: Results, asked: Asked, measure: Measure) -> Standing | None:
    """Nothing if GoQueue or all others did not do that."""
    ours = runs(results, OURS, asked, measure)
    peer = best_of(results, [each for each in results.subjects if each.key != OURS], asked, measure)
    best = peer and runs(results, peer.key, asked, measure)
    return Standing(asked, measure, ours, peer, best) if ours and peer and best else None


def standings(results: Results) -> list[Standing]:
    """Each piece of work that is compared: by its rate or, where waits are known, by these."""
    found = [
        standing(results, Asked(durability, work, size), measure)
        for work in Work
        for durability in results.durabilities
        for size in results.sizes
        for measure in ((P50, P99) if work in WAITED else (RATE,))
    ]
    return [each for each in found if each]


def left_to_client(results: Results, system: str, asked: Asked) -> float | None:
    """The share of all processors that the server did not use meanwhile."""
    cpus = cpu_count(results)
    shares = [
        1 - piece.server_cpu_s / (piece.seconds * cpus)
        for piece in results.of(system, asked.durability, asked.work, asked.size)
    ]
    return max(median(shares), 0.0) if shares else None


def cpu_count(results: Results) -> int:
    return int(str(results.machine["cpus"]))


def amounts_of(results: Results) -> Amounts:
    """How much was done of each piece of work."""
    given = results.machine["amounts"]
    return Amounts(**given) if isinstance(given, dict) else Amounts()
