"""Formats the output of ``goqueue bench``: configuration, throughput and latency of each stage."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from goqueue.cli.commands.bench.bench_stage import SHARES, Stage, Timings
from goqueue.cli.terminal import figure_words
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.tables import table
from goqueue.observe.logs import escape

_BAR_WIDTH = 40


def result_lines(facts: dict[str, Any], stages: list[Stage]) -> Iterator[Line]:
    """``facts`` is the configuration, with the names used in JSON."""
    yield from _configuration_lines(facts)
    yield []
    rows = [
        [
            stage.name if stage.is_done else f"{stage.name} (stopped)",
            f"{stage.messages:,}",
            f"{stage.took_s:.2f} s",
            figure_words.count(stage.messages_per_s),
            f"{stage.bytes_per_s / 1e6:.2f}",
        ]
        for stage in stages
    ]
    yield from table(["stage", "messages", "took", "messages/s", "MB/s"], rows)
    for stage in stages:
        for what, times in stage.times.items():
            if times.count:
                yield []
                yield [(f"{stage.name}: ", "bold"), (what, "")]
                yield from _timing_lines(times)
        for remark in stage.remarks:
            yield [(remark, "dim")]


def _configuration_lines(facts: dict[str, Any]) -> Iterator[Line]:
    topic = escape(facts["topic"]) + (" (temporary)" if facts["temporary_topic"] else "")
    yield [(f"{escape(facts['server'])}, version {escape(facts['version'])}, topic {topic}", "bold")]
    pace = f"batches of {facts['batch']:,}, as fast as it goes"
    if facts["rate"] is not None:
        pace = f"{facts['rate']:,.0f} messages a second, each sent by itself, linger {facts['linger_ms']} ms"
    yield [
        (
            f"{facts['partitions']} partitions, fsync {facts['fsync']}, {facts['size_bytes']} bytes a message, "
            f"{facts['producers']} producers, {pace}",
            "",
        )
    ]
    if facts["shares_machine"]:
        yield [("The client runs on the broker's machine and takes processor time from it.", "yellow")]
    yield [("The client is one Python process: what it reaches may be its own limit, not the broker's.", "dim")]


def _timing_lines(times: Timings) -> Iterator[Line]:
    percentiles = [f"{name} {figure_words.seconds(times.quantile(share))}" for name, share in SHARES.items()]
    yield [("  " + "   ".join([*percentiles, f"max {figure_words.seconds(times.longest_s)}"]), "bold")]
    ranges = times.ranges()
    most = max(count for _, count in ranges)
    labels = [_label(bound, ranges[index - 1][0] if index else None) for index, (bound, _) in enumerate(ranges)]
    width = max(len(label) for label in labels)
    for label, (_, count) in zip(labels, ranges, strict=True):
        drawn = figure_words.bar(count / most, _BAR_WIDTH).ljust(_BAR_WIDTH)
        share = 100 * count / times.count
        yield [(f"  {label:>{width}}  ", "dim"), (drawn, "cyan"), (f"  {count:>11,}  {share:5.1f} %", "")]


def _label(bound: float, below: float | None) -> str:
    if math.isinf(bound):
        return f"over {_bound(below or 0.0)}"
    return f"up to {_bound(bound)}"


def _bound(seconds: float) -> str:
    """Format a bucket's bound, which is a round number."""
    if seconds < 0.000_999:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.0f} ms" if seconds < 0.999 else f"{seconds:.0f} s"
