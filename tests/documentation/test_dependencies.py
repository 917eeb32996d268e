"""What docs/adr/0005-dependencies.md says of packages that come along unasked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

NEVER_LOADED = {"certifi", "fastavro", "h11", "httpcore", "httpx"}
_IMPORTED = re.compile(r"^import time:.*\|\s*([\w.]+)$")


def _imported_by_a_broker(data: Path) -> set[str]:
    """The packages that a broker has loaded when it has told its OpenAPI document."""
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "goqueue",
        "serve",
        "--data",
        str(data),
        "--log-format",
        "json",
    ]
    with subprocess.Popen([*command, "--port", "0", "--grpc-port", "0"], stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        lines: list[str] = []
        for line in broker.stderr:
            lines.append(line)
            if '"listening"' in line:
                port = json.loads(line)["port"]
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json") as answer:
                    assert answer.status == 200
                broker.terminate()
        assert broker.wait() == 0
    found = (_IMPORTED.match(line.rstrip()) for line in lines)
    return {each[1].partition(".")[0] for each in found if each}


def test_a_broker_loads_nothing_that_only_other_parts_need(tmp_path: Path) -> None:
    loaded = _imported_by_a_broker(tmp_path)
    assert {"goqueue", "uvicorn", "numpy", "grpc"} <= loaded
    assert not loaded & NEVER_LOADED
