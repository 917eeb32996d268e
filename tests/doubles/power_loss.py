"""The simulated disk, with syncs named as in ``disk_sites.txt``."""

from __future__ import annotations

from types import FrameType

from doubles.wait_sites import site_of
from goqueue.simulation.disk import PowerLoss, SimulatedDisk, Site

__all__ = ["PowerLoss", "PowerLossDisk", "Site"]


class PowerLossDisk(SimulatedDisk):
    def site_of(self, frame: FrameType, call: str) -> Site:
        return site_of(frame, call)
