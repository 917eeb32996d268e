"""Writes the Grafana dashboards in ``deploy/grafana``; ``--check`` only tells whether they are stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dashboards.consumers import consumers
from dashboards.delivery import delivery
from dashboards.overview import overview
from dashboards.storage import storage

TARGET = Path(__file__).parents[1] / "deploy" / "grafana"
DASHBOARDS = {"overview": overview, "consumers": consumers, "delivery": delivery, "storage": storage}


def main() -> int:
    checks = sys.argv[1:] == ["--check"]
    stale = []
    for name, make in DASHBOARDS.items():
        file = TARGET / f"{name}.json"
        text = json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
        if not checks:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            stale.append(file.name)
    if stale:
        sys.stderr.write(f"stale: {', '.join(stale)}; run make dashboards\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
