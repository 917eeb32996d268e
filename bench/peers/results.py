"""What a run found: plain data that goes to JSON and comes back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from bench.figure import rounded
from bench.peers.work import Durability, Work

SHARES: tuple[float, ...] = (
    *(number / 50 for number in range(45)),
    *(number / 200 for number in range(180, 198)),
    *(number / 1_000 for number in range(990, 1_000)),
    0.9995,
    1.0,
)
"""Of the waits of a piece of work, these quantiles are kept: close together where few messages wait long."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of work, done once. ``waits_ms`` are all of them, or the quantiles of ``SHARES`` if ``reduced``."""

    system: str
    durability: Durability
    work: Work
    size: int
    repetition: int
    messages: int
    seconds: float
    client_cpu_s: float
    server_cpu_s: float
    server_peak_bytes: int
    waits_ms: list[float] = field(default_factory=list)
    reduced: bool = False

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    def wait_ms(self, share: float) -> float:
        """So long, or less, did this share of the messages wait. There must have been some."""
        if self.reduced:
            return float(np.interp(share, SHARES, self.waits_ms))
        return float(np.quantile(self.waits_ms, share))

    def to_reduced(self) -> Piece:
        """The same in little room: tens of thousands of waits become less than a hundred."""
        if self.reduced or not self.waits_ms:
            return self
        waits = [rounded(float(wait)) for wait in np.quantile(self.waits_ms, SHARES)]
        return replace(self, waits_ms=waits, reduced=True)


@dataclass(frozen=True, slots=True)
class Subject:
    """One system as it was measured."""

    key: str
    name: str
    client: str
    version: str
    settings: dict[str, str]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """A whole run. ``missing`` says of each system that was not measured, or not to its end, why."""

    date: str
    machine: dict[str, object]
    subjects: list[Subject]
    pieces: list[Piece]
    missing: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """``shares`` is for readers of the file: what the waits of a reduced piece are quantiles of."""
        return {**asdict(self), "shares": list(SHARES)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Results:
        if tuple(data.get("shares", SHARES)) != SHARES:
            raise ValueError("the waits in this file are other quantiles than those of today: measure again")
        pieces = [
            Piece(**{**piece, "durability": Durability(piece["durability"]), "work": Work(piece["work"])})
            for piece in data["pieces"]
        ]
        subjects = [Subject(**{**subject, "remarks": tuple(subject["remarks"])}) for subject in data["subjects"]]
        return Results(data["date"], data["machine"], subjects, pieces, data["missing"])

    def to_reduced(self) -> Results:
        """The same with every piece reduced."""
        return replace(self, pieces=[piece.to_reduced() for piece in self.pieces])

    def of(self, system: str, durability: Durability, work: Work, size: int) -> list[Piece]:
        """The repetitions of one piece of work; empty if it was not done."""
        asked = (system, durability, work, size)
        return [each for each in self.pieces if (each.system, each.durability, each.work, each.size) == asked]

    @property
    def durabilities(self) -> list[Durability]:
        return [each for each in Durability if any(piece.durability is each for piece in self.pieces)]

    @property
    def sizes(self) -> list[int]:
        return sorted({piece.size for piece in self.pieces})

    @property
    def repetitions(self) -> int:
        return max((piece.repetition + 1 for piece in self.pieces), default=0)

    def measured(self, durability: Durability) -> list[Subject]:
        """The systems that have figures under this durability."""
        with_figures = {piece.system for piece in self.pieces if piece.durability is durability}
        return [subject for subject in self.subjects if subject.key in with_figures]
