"""The whole tour, as ``make demo`` shows it: Spark reads through the crash, and its figures are what was sent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from goqueue.model.errors import MissingDependency
from goqueue.spark.startup.spark_session import check_java

ROOT = Path(__file__).parents[2]
CHECKS = 17
TWO_MINUTES_S = 120.0
NOT_ALONE = 4
"""Other tests may have most of the machine."""


@pytest.mark.timeout(600)
def test_the_whole_tour_takes_less_than_two_minutes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    try:
        check_java()
    except MissingDependency as error:
        pytest.skip(str(error))
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "examples.tour"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    seconds = time.monotonic() - began
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert sum("✓" in line for line in ran.stdout.splitlines()) == CHECKS
    assert "50 windows are in topic 'revenue', once each" in ran.stdout
    assert "revenue/hour └─" in ran.stdout
    assert "Left out" not in ran.stdout
    assert ran.stderr == ""
    assert seconds < TWO_MINUTES_S * NOT_ALONE
    assert list(tmp_path.iterdir()) == []
    assert running_in(tmp_path) == []


def running_in(folder: Path) -> list[str]:
    """What has this as its temporary folder, or one below it."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (each / "environ").read_bytes():
                found.append((each / "cmdline").read_text())
        except OSError:
            continue
    return found
