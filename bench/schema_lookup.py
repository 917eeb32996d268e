"""Looking schemas up by their ids over HTTP, as consumers do for every message that has one they do not know yet."""

from __future__ import annotations

import json

import msgspec

from bench.harness import Measured, broker_process, note, rounded, run_module, scratch_folder
from bench.load_generator import Load, Outcome
from bench.lookup_generator import LookupJob

_CONNECTIONS = 16
_SCHEMAS = 100
_FIELDS = 20
_LOAD = Load(connections=_CONNECTIONS, warm_up_s=1.0, rounds=5, round_s=2.0, parse_every=50)


def measure() -> Measured:
    """From a process that asks for one after the other on each connection."""
    with scratch_folder() as folder, broker_process(folder / "data") as broker:
        ids = [
            broker.request("POST", f"/subjects/s{number}/versions", {"schema": _schema(number)})["id"]
            for number in range(_SCHEMAS)
        ]
        job = LookupJob(broker.host, broker.port, ids, _LOAD)
        note(f"looking up over {_CONNECTIONS} connections for {_LOAD.warm_up_s + _LOAD.rounds * _LOAD.round_s:.0f} s")
        cpu_before = broker.cpu_s()
        outcome = msgspec.convert(run_module("bench.lookup_generator", msgspec.json.encode(job).decode()), Outcome)
        cpu_s = broker.cpu_s() - cpu_before
    middle = sorted(outcome.rounds, key=lambda each: each.p99_ms)[len(outcome.rounds) // 2]
    return Measured(
        [each.requests / each.seconds for each in outcome.rounds],
        {
            "p50": rounded(middle.p50_ms),
            "p99": rounded(middle.p99_ms),
            "connections": _CONNECTIONS,
            "schemas": _SCHEMAS,
            "schema_bytes": len(_schema(0)),
            "answers_parsed": outcome.parsed,
            "broker_cpu_us_per_lookup": rounded(cpu_s / outcome.acknowledged * 1e6),
            "generator_cpu_share": rounded(outcome.cpu_share),
        },
    )


def _schema(number: int) -> str:
    fields = [{"name": f"field_{place}", "type": ["null", "string"], "default": None} for place in range(_FIELDS)]
    return json.dumps({"type": "record", "name": f"Record{number}", "namespace": "bench", "fields": fields})
