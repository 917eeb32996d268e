"""The page ``docs/benchmarks/index.md``: what was compared and how, what came out, and where GoQueue is behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.peers import markdown
from bench.peers.charts import Chart, draw_charts
from bench.peers.numerals import counted, ratio, significant, with_spread
from bench.peers.reasons import UNKNOWN, WHY_BEHIND
from bench.peers.results import Results
from bench.peers.summary import EARLIEST, RATE, RATED, WAITED, Asked, Standing, amounts_of, cpu_count, runs, standings
from bench.peers.work import ACK_EVERY, Amounts, Durability, Work

DATA = "peers.json"
PAGE = "index.md"
_ENOUGH_REPETITIONS = 3
_BUSY_LOAD = 1.0
_EARLY_MS = -1.0
_CURRENT = {"rabbitmq_quorum": "4.3", "rabbitmq_stream": "4.3", "redis": "8"}
"""In November 2026, of those that are often older where they come with the operating system."""
_TITLES = {
    Durability.FSYNC: "On the disk before the acknowledgement (fsync)",
    Durability.PAGE_CACHE: "In the page cache, the disk follows",
}


def write_pages(results: Results, into: Path) -> None:
    """Data, charts and page, all in ``into``. Written from what goes to the file: drawing that gives the same."""
    results = results.to_reduced()
    into.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results.to_json(), ensure_ascii=False, separators=(",", ":"))
    (into / DATA).write_text(text + "\n", encoding="utf-8")
    (into / PAGE).write_text(page(results, draw_charts(results, into)), encoding="utf-8")


def page(results: Results, charts: Sequence[Chart]) -> str:
    """The page in Markdown, with those charts."""
    return "\n\n".join(part for part in _parts(results, charts) if part) + "\n"


def _parts(results: Results, charts: Sequence[Chart]) -> Iterable[str]:
    yield "# Beside other systems"
    yield (
        f"GoQueue and what people would use instead, measured side by side in one run of `make bench-peers` on "
        f"{results.date}. This page, its charts and [its data]({DATA}) are written by that run. What we learnt from it "
        "is in the [notes](notes.md); how cost grows with what is stored is in [growth](growth.md)."
    )
    yield _warning(results)
    yield _score(results)
    yield "## What is compared, and how"
    yield _method(results)
    yield _subjects(results)
    yield _outdated(results)
    for durability in results.durabilities:
        yield f"## {_TITLES[durability]}"
        yield _absent(results, durability)
        yield from _figures(results, durability, [chart for chart in charts if chart.durability is durability])
    yield "## Where we are behind"
    yield from _behind(results)
    yield from _missing(results)
    yield from _remarks(results)
    yield from _repeat()


def _warning(results: Results) -> str:
    """What makes the figures of this run less than they should be."""
    problems = []
    if amounts_of(results) != Amounts():
        problems.append("it did little of everything")
    if results.repetitions < _ENOUGH_REPETITIONS:
        problems.append(f"it had {counted(results.repetitions, 'repetition')}")
    if float(str(results.machine.get("load_average_before", 0))) > _BUSY_LOAD * cpu_count(results):
        problems.append("the machine was busy with something else when it began")
    return f"**A trial, not to be believed**: {', and '.join(problems)}." if problems else ""


def _score(results: Results) -> str:
    compared = standings(results)
    if not compared:
        return "No other system was measured: there is nothing to compare with."
    ahead = sum(each.ratio >= 1 for each in compared)
    text = f"GoQueue is ahead of every other system in {ahead} of {len(compared)} comparisons"
    return text + (" and [behind](#where-we-are-behind) in the others." if ahead < len(compared) else ".")


def _method(results: Results) -> str:
    amounts = amounts_of(results)
    cpus = cpu_count(results)
    points = [
        "**Real servers**, of the versions below, started by the harness on loopback with their data in a temporary "
        "folder, one at a time. One node each: no replication anywhere.",
        "**Interleaved**: every system does all its work once, then every system again in the opposite order, in "
        f"{counted(results.repetitions, 'repetition')}. A machine that is slow for a minute is slow for all. Shown is "
        "the median; ± is half of what lies between the lowest and the highest repetition. Servers and clients warm "
        "up first.",
        "**Durability is paired**: fsync against fsync, page cache against page cache, never across. A system that has "
        "only one of the two is in only one of the tables.",
        "**One client process in Python**, with a client library of each system, used in the fastest way that we "
        "found for it: batches, pipelines, windows of acknowledgements; the remarks below tell more. It shares the "
        f"{cpus} processors with the server. With clients in other languages these figures would be others.",
        "**One partition**, stream or queue; messages without keys, of bytes by chance, not compressed.",
        f"**Batched publish**: {significant(amounts.publish_s)} s as fast as possible, every message acknowledged. "
        f"**Single awaited publish**: one at a time. **Backlog consumption**: what was published before, read as a log "
        f"from its beginning. **Queue round trip**: {amounts.queue_messages:,} messages published, then taken by a "
        f"worker, up to {ACK_EVERY} at a time, and each acknowledged.",
        f"**End-to-end latency**: {amounts.paced_rate:,} messages a second for {significant(amounts.paced_s)} s, from "
        "the instant that a message was *due* to be sent until the consumer has it. A system that holds up the sender "
        "is not spared the wait of what stands in line (coordinated omission). **Delayed delivery**: "
        f"{amounts.delayed_messages:,} messages at the same pace, each {amounts.delay_ms:,} ms late by request; shown "
        "is how much later than asked for they came.",
    ]
    return "\n".join(f"- {point}" for point in points) + f"\n\nThe machine: {_machine(results.machine)}."


def _machine(machine: dict[str, object]) -> str:
    known = {
        "processor": "{}",
        "cpus": "{} processors",
        "memory_gib": "{} GiB of memory",
        "system": "{}",
        "python": "Python {}",
        "file_system": "data on {}",
        "disk_fsync_ms": "a small append and its fsync take {} ms (median)",
        "load_average_before": "load before the run {}",
    }
    return ", ".join(text.format(machine[name]) for name, text in known.items() if name in machine)


def _subjects(results: Results) -> str:
    lines = []
    for subject in results.subjects:
        lines.append(f"- **{subject.name}** {subject.version}, by {subject.client}")
        lines += [f"    - {durability}: {setting}" for durability, setting in subject.settings.items()]
    return "\n".join(lines)


def _outdated(results: Results) -> str:
    """Who reads the figures of an old version should know that it is one."""
    old = [
        f"{subject.name} {subject.version.split()[0]} (current is {_CURRENT[subject.key]})"
        for subject in results.subjects
        if _major(subject.version) < _major(_CURRENT.get(subject.key, "0"))
    ]
    if not old:
        return ""
    return (
        f"**A major version behind what is current**: {', '.join(old)}. These are the versions that were to be had "
        "where this was measured; newer ones may do better, or worse. [The comparison](../comparison.md) judges the "
        "current ones."
    )


def _major(version: str) -> int:
    digits = version.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def _absent(results: Results, durability: Durability) -> str:
    here = results.measured(durability)
    names = [subject.name for subject in results.subjects if subject not in here]
    return f"Not here, because not measured under this durability: {', '.join(names)}." if names else ""


def _figures(results: Results, durability: Durability, charts: list[Chart]) -> Iterable[str]:
    done = {piece.work for piece in results.pieces if piece.durability is durability}
    if done & set(RATED):
        yield (
            "The best of each row is bold. The last column: how many times as good as the best of the others GoQueue "
            "is; above 1 it is ahead."
        )
        yield markdown.rates(results, durability)
        yield from (_picture(chart) for chart in charts if chart.name.startswith("throughput"))
    if done & set(WAITED):
        yield (
            "p50 and p99 are medians of the repetitions, max is the longest wait of all of them. The two ratios are of "
            "p50 and p99; above 1 GoQueue waits less."
        )
        yield markdown.waits(results, durability)
        yield from (_picture(chart) for chart in charts if chart.name.startswith("waits"))
    yield (
        "Processor time for each message, of the server and of the client, and the most memory that the server had. "
        "Clients that send at a pace spend theirs mostly on waiting for the right moment."
    )
    yield markdown.costs(results, durability)
    shares = markdown.left(results, durability)
    if shares:
        yield (
            f"Server and client share {cpu_count(results)} processors. What the server left of them to the client, "
            "whether it could use it or not:"
        )
        yield shares


def _picture(chart: Chart) -> str:
    return f"![{chart.title}]({chart.name}.svg)\n\n[The same as PNG]({chart.name}.png)"


def _behind(results: Results) -> Iterable[str]:
    compared = standings(results)
    behind = [each for each in compared if each.ratio < 1]
    if not behind:
        yield "Nowhere in this run." if compared else "Nobody knows: no other system was measured."
        return
    for work in Work:
        lines = [f"- {_sentence(each)}" for each in behind if each.asked.work is work]
        if lines:
            yield f"### {work.capitalize()}"
            yield "\n".join(lines)
            yield WHY_BEHIND.get(work, UNKNOWN)


def _sentence(found: Standing) -> str:
    unit = "messages/s" if found.measure is RATE else "ms"
    name = "" if found.measure is RATE else f" {found.measure.name}"
    noise = "; repetitions of the two overlap" if found.ours.overlaps(found.best) else ""
    return (
        f"{found.asked.durability}, {found.asked.size:,} B:{name} {with_spread(found.ours)} {unit} against "
        f"{with_spread(found.best)} of {found.best_peer.name} ({ratio(found.ratio)}{noise})"
    )


def _missing(results: Results) -> Iterable[str]:
    yield "## What is missing"
    lines = [f"- **{name}**: {why}" for name, why in results.missing.items()]
    for subject in results.subjects:
        for durability in results.durabilities:
            done = {
                piece.work for piece in results.pieces if (piece.system, piece.durability) == (subject.key, durability)
            }
            lacks = [str(work) for work in _works(results) if work not in done]
            if done and lacks:
                lines.append(f"- {subject.name}, {durability}: no {', no '.join(lacks)}")
    yield "\n".join(lines) if lines else "Nothing: every system was measured in everything."


def _works(results: Results) -> list[Work]:
    done = {piece.work for piece in results.pieces}
    return [work for work in Work if work in done]


def _remarks(results: Results) -> Iterable[str]:
    lines = [f"- {each.name}: {remark}" for each in results.subjects for remark in each.remarks]
    for subject in results.subjects:
        for durability in results.durabilities:
            for size in results.sizes:
                early = runs(results, subject.key, Asked(durability, Work.DELAY, size), EARLIEST)
                if early and min(early.values) < _EARLY_MS:
                    text = (
                        f"delivered delayed messages up to {significant(-min(early.values))} ms *before* they were due"
                    )
                    lines.append(f"- {subject.name} ({durability}, {size:,} B) {text}.")
    if lines:
        yield "## What to know about each"
        yield "\n".join(lines)


def _repeat() -> Iterable[str]:
    yield "## How to repeat it"
    yield "```bash\nmake bench-peers\n```"
    yield (
        "It gets the clients and what it can of the servers; a server that is not there is named with what to install. "
        "Leave the machine alone meanwhile. `.venv/bin/python -m bench.peers --help` tells how to measure less, and "
        f"how to draw this page again from `{DATA}`."
    )
