"""What runs in a simulation takes time, randomness and threads from its ports, and nothing of what it does depends on
where objects lie or how names are hashed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import goqueue

SOURCE = Path(goqueue.__file__).parent
SIMULATED = ("broker", "coordination", "delivery", "observe", "storage", "wire", "model", "schemas")
REAL = {
    "time": {
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "process_time",
        "sleep",
        "time",
        "time_ns",
    },
    "datetime": {"now", "today", "utcnow"},
    "os": {"getpid", "urandom"},
    "uuid": {"uuid1", "uuid4"},
}
NEVER = {"multiprocessing", "random", "secrets", "threading", "uuid"}
SETS = {("asyncio", "wait"), ("asyncio", "as_completed")}
"""What comes back is a set, or in the order of one."""
ALLOWED = {
    "broker/checkup": "looks at the folder of a stopped broker",
    "broker/metrics/health.py": "tells how long the disk took to answer, and decides nothing by it",
    "broker/tracing/span_builder.py": "limits what is sent to exporters of spans, which are no part of a simulation",
    "model/clock.py": "is the port",
    "observe/bounded_calls.py": "is about exporters of spans",
    "observe/export_thread.py": "is about exporters of spans",
    "observe/jaeger.py": "is about exporters of spans",
    "observe/line_limit.py": "is about log lines",
    "observe/logs.py": "is about log lines",
    "observe/otlp.py": "is about exporters of spans",
    "observe/process.py": "tells of the process as the system sees it",
    "observe/trace_files.py": "locks what two threads use, and on one thread nothing waits for it",
    "storage/files/files.py": "is the port",
    "storage/log/group_commit.py": "waits in its thread for free descriptors, of which a simulated disk has enough",
    "storage/reader": "reads files without a broker",
}


def uses(text: str) -> Iterator[str]:
    """What of the real world a module uses, and sets whose order it may depend on."""
    tree = ast.parse(text)
    unused_results = {
        each.value.value for each in ast.walk(tree) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Await)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in NEVER)
        elif isinstance(node, ast.ImportFrom):
            names = {each.name for each in node.names}
            if node.module in NEVER and names - {"UUID"}:
                yield node.module or ""
            yield from (f"{node.module}.{name}" for name in names & REAL.get(node.module or "", set()))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in REAL.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node not in unused_results:
            owner = node.func.value
            if isinstance(owner, ast.Name) and (owner.id, node.func.attr) in SETS:
                yield f"{owner.id}.{node.func.attr}"


def found() -> dict[str, set[str]]:
    by_module = {
        path.relative_to(SOURCE).as_posix(): set(uses(path.read_text()))
        for package in SIMULATED
        for path in sorted((SOURCE / package).rglob("*.py"))
    }
    return {module: used for module, used in by_module.items() if used}


def test_the_real_world_is_used_only_where_it_does_not_matter_to_a_simulation() -> None:
    others = {module: used for module, used in found().items() if not module.startswith(tuple(ALLOWED))}
    assert others == {}


def test_nothing_is_allowed_that_is_not_used() -> None:
    modules = list(found())
    assert [each for each in ALLOWED if not any(module.startswith(each) for module in modules)] == []


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("import time\ntime.monotonic()", {"time.monotonic"}),
        ("from time import time_ns", {"time.time_ns"}),
        ("import random", {"random"}),
        ("from threading import Thread", {"threading"}),
        ("from uuid import UUID", set()),
        ("import os\nos.urandom(8)", {"os.urandom"}),
        ("async def f():\n    done, _ = await asyncio.wait(tasks)", {"asyncio.wait"}),
        ("async def f():\n    await asyncio.wait(tasks)", set()),
        ("asyncio.get_running_loop().time()", set()),
    ],
)
def test_uses_are_found(text: str, used: set[str]) -> None:
    assert set(uses(text)) == used
