"""Work that needs a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent


def environment() -> dict[str, str]:
    """Ours without ``GOQUEUE_*``: a user's own configuration must not change what is measured."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_")}
    return kept | {"PYTHONPATH": os.pathsep.join((str(_ROOT), str(_ROOT / "src")))}


def run_module(module: str, *arguments: object, timeout_s: float = 120.0, status: int = 0) -> Any:
    """Run ``python -m module``, which must end with ``status``, and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != status:
        raise RuntimeError(f"{module} ended with status {done.returncode}; what it said is above")
    return json.loads(done.stdout)
