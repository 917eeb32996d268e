"""Publishing over HTTP to a broker process, every message on the disk before its answer."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.harness import Measured, broker_process, fsync_ms, note, rounded, run_module, scratch_folder
from bench.load_generator import Job, Load, Outcome
from bench.workload import BATCH_MESSAGES, VALUE_BYTES

SINGLE = "http_publish_single"
SINGLE_P99 = "http_publish_single_p99"
_TOPIC = "bench"
_BATCH_CONNECTIONS = 4
_SINGLE_CONNECTIONS = 16
_WARM_UP_S = 2.0
_ROUNDS = 5
_ROUND_S = 3.0


def measure_batch() -> Measured:
    """Bodies of 1000 JSON messages."""
    outcome, details = _load(_BATCH_CONNECTIONS, BATCH_MESSAGES, parse_every=20)
    return Measured([each.requests * BATCH_MESSAGES / each.seconds for each in outcome.rounds], details)


def measure_single() -> dict[str, Measured]:
    """One message a request: how many in a second, and how long each takes."""
    outcome, details = _load(_SINGLE_CONNECTIONS, 1, parse_every=50)
    return {
        SINGLE: Measured([each.requests / each.seconds for each in outcome.rounds], details),
        SINGLE_P99: Measured([each.p99_ms for each in outcome.rounds], details),
    }


def _load(connections: int, messages_per_request: int, parse_every: int) -> tuple[Outcome, dict[str, object]]:
    with scratch_folder() as folder:
        before_ms = fsync_ms(folder)
        outcome, cpu_s = _run(folder, connections, messages_per_request, parse_every)
        disk_ms = [rounded(before_ms), rounded(fsync_ms(folder))]
    middle = sorted(outcome.rounds, key=lambda each: each.p99_ms)[len(outcome.rounds) // 2]
    return outcome, {
        "p50": rounded(middle.p50_ms),
        "p99": rounded(middle.p99_ms),
        "max": rounded(max(each.max_ms for each in outcome.rounds)),
        "connections": connections,
        "messages_per_request": messages_per_request,
        "value_bytes": VALUE_BYTES,
        "fsync": "always",
        "disk_fsync_ms": disk_ms,
        "messages": outcome.acknowledged,
        "answers_parsed": outcome.parsed,
        "broker_cpu_us_per_message": rounded(cpu_s / outcome.acknowledged * 1e6),
        "generator_cpu_share": rounded(outcome.cpu_share),
    }


def _run(folder: Path, connections: int, messages_per_request: int, parse_every: int) -> tuple[Outcome, float]:
    """What came of it, and the processor time that it cost the broker."""
    with broker_process(folder / "data", "--fsync", "always") as broker:
        broker.request("POST", "/topics", {"name": _TOPIC})
        job = Job(
            host=broker.host,
            port=broker.port,
            path=f"/topics/{_TOPIC}/messages",
            messages_per_request=messages_per_request,
            load=Load(connections, _WARM_UP_S, _ROUNDS, _ROUND_S, parse_every),
        )
        note(f"publishing over {connections} connections for {_WARM_UP_S + _ROUNDS * _ROUND_S:.0f} s")
        cpu_before = broker.cpu_s()
        outcome = msgspec.convert(run_module("bench.load_generator", msgspec.json.encode(job).decode()), Outcome)
        cpu_s = broker.cpu_s() - cpu_before
        stored = broker.request("GET", f"/topics/{_TOPIC}")["total_messages"]
        if stored != outcome.acknowledged:
            raise RuntimeError(f"{outcome.acknowledged} messages were acknowledged, the topic holds {stored}")
    return outcome, cpu_s
