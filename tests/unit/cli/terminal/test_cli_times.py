"""Durations and instants of options."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
import typer

from goqueue.cli.terminal.times import duration_ms, instant_ns, since_ns


def test_durations_are_told_with_their_limits() -> None:
    assert duration_ms("--delay", "1h30m") == 5_400_000
    with pytest.raises(typer.BadParameter, match="not a duration") as refused:
        duration_ms("--delay", "5")
    assert refused.value.param_hint == "--delay"
    with pytest.raises(typer.BadParameter, match="at most 3650d"):
        duration_ms("--delay", "3651d")
    with pytest.raises(typer.BadParameter, match="100ms to 1d"):
        duration_ms("--wait", "99ms", least_ms=100, most_ms=86_400_000)


def test_an_instant_without_a_zone_is_of_this_machine() -> None:
    assert instant_ns("--from", "2026-01-31T12:00:00.5+01:00") == 1_769_857_200_500_000_000
    local = int(datetime(2026, 1, 31, 12).timestamp()) * 10**9
    assert instant_ns("--from", "2026-01-31 12:00") == instant_ns("--from", "2026-01-31T12:00:00") == local
    with pytest.raises(typer.BadParameter, match="not an instant") as refused:
        instant_ns("--from", "yesterday")
    assert refused.value.param_hint == "--from"


def test_since_counts_from_now() -> None:
    before = time.time_ns()
    assert before - 600 * 10**9 <= since_ns("--since", "10m") <= time.time_ns() - 600 * 10**9
