"""Writes the pages of ``docs/reference``; ``--check`` only tells which of them are stale."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from reference_pages.command_page import command_page
from reference_pages.grpc_page import grpc_page
from reference_pages.http_page import http_page
from reference_pages.python_page import python_page

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": command_page,
    "grpc.md": grpc_page,
    "http.md": http_page,
    "python.md": python_page,
}


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    if list(arguments) not in ([], ["--check"]):
        sys.stderr.write("usage: python tools/make_reference.py [--check]\n")
        return 2
    made = {folder / name: render() for name, render in PAGES.items()}
    if not arguments:
        folder.mkdir(parents=True, exist_ok=True)
        for page, text in made.items():
            page.write_text(text, encoding="utf-8", newline="\n")
        return 0
    stale = [page for page, text in made.items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    for page in stale:
        sys.stderr.write(f"docs/reference/{page.name} is stale; run: make docs\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
