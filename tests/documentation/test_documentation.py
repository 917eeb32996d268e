"""Every example in the documentation is run, and what it shows is what happens.

In a page, a ``bash`` block is run; a ``json`` or ``text`` block right behind it is what it prints, with ``…`` for
whatever varies. ``python`` blocks of a page are run together, in order. Both find a broker of their own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from goqueue.testing import BrokerProcess, running_broker

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *(f"docs/{name}.md" for name in ("client", "groups", "delays", "lanes", "http", "storage", "frames", "running")),
    *(f"docs/{name}.md" for name in ("traces", "metrics", "schemas", "transactions", "streams", "troubleshooting")),
    *(f"docs/{name}.md" for name in ("index", "cli", "cli-topics", "cli-messages", "cli-queues", "cli-watching")),
    *(f"docs/{name}.md" for name in ("backup", "doctor")),
]
_EXAMPLE_S, _PAGE_S = 120, 400
"""Some pages start twenty processes, one after the other: on a machine that is busy that takes its time."""
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    script: str
    shown: str | None


def blocks(page: str) -> Iterator[tuple[str, str, bool]]:
    """(language, content, whether it follows the block before without a word between)."""
    end = 0
    text = (ROOT / page).read_text()
    for match in _BLOCK.finditer(text):
        yield match[1], match[2], match.start() == end
        end = match.end()


def shell_examples(page: str) -> list[Example]:
    found: list[Example] = []
    for language, content, adjacent in blocks(page):
        if language == "bash":
            found.append(Example(content, None))
        elif language in {"json", "text"} and adjacent and found:
            found[-1] = Example(found[-1].script, content)
    return found


def matches(shown: str, printed: str) -> bool:
    pieces = [re.escape(piece) for piece in shown.strip().split("…")]
    return re.fullmatch(".*?".join(pieces), printed.strip(), re.DOTALL) is not None


@pytest.fixture
def fresh_broker() -> Iterator[BrokerProcess]:
    with running_broker() as broker:
        yield broker


@pytest.mark.timeout(_PAGE_S)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples use curl")
@pytest.mark.parametrize("page", [page for page in PAGES if shell_examples(page)])
def test_every_shell_example_prints_what_the_page_shows(page: str, fresh_broker: BrokerProcess, tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment["GOQUEUE_SERVER"] = fresh_broker.url
    environment["GOQUEUE_CONTEXTS"] = str(tmp_path / "contexts.json")
    here = tmp_path / "here"
    here.mkdir()
    for example in shell_examples(page):
        script = example.script.replace("localhost:8080", fresh_broker.url.removeprefix("http://"))
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            capture_output=True,
            text=True,
            env=environment,
            cwd=here,
            timeout=_EXAMPLE_S,
        )
        assert ran.returncode == 0, f"{example.script}\n{ran.stderr}"
        if example.shown is not None:
            assert matches(example.shown, ran.stdout), (
                f"{example.script}\nprinted:\n{ran.stdout}\nshown:\n{example.shown}"
            )


@pytest.mark.timeout(_PAGE_S)
@pytest.mark.parametrize("page", [page for page in PAGES if any(kind == "python" for kind, _, _ in blocks(page))])
def test_every_python_example_runs(page: str, fresh_broker: BrokerProcess) -> None:
    script = "\n".join(content for language, content, _ in blocks(page) if language == "python")
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        env=os.environ
        | {
            "GOQUEUE_URL": fresh_broker.url,
            "GOQUEUE_ADDRESS": fresh_broker.address,
            "GOQUEUE_NATIVE": f"127.0.0.1:{fresh_broker.native_port}",
        },
        timeout=_EXAMPLE_S,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.timeout(_PAGE_S)
@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/client.md", "docs/groups.md"])
def test_the_first_python_example_can_be_run_again(page: str, fresh_broker: BrokerProcess) -> None:
    """A newcomer runs it until it is understood."""
    script = next(content for language, content, _ in blocks(page) if language == "python")
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            capture_output=True,
            text=True,
            env=os.environ | {"GOQUEUE_URL": fresh_broker.url, "GOQUEUE_ADDRESS": fresh_broker.address},
            timeout=_EXAMPLE_S,
        )
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    "page", sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
)
def test_every_link_between_pages_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"]:
        for named in re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE):
            assert (named[0] or named[1]) in targets, f"{page} names make {named}"


def test_what_make_test_leaves_out_is_run_by_targets_that_stand_beside_it_wherever_it_is_described() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^(test[a-z-]*): .*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    left_out = set(re.findall(r"--ignore=(\S+)", recipes["test"]))
    others = {name: set(re.findall(r"\btests/\S+", recipe)) for name, recipe in recipes.items() if name != "test"}
    assert left_out == set().union(*others.values())
    described = {
        "Makefile": re.findall(r"^test:.*## (.*)", makefile, re.MULTILINE),
        "README.md": re.findall(r"^make test +# (.*)", (ROOT / "README.md").read_text(), re.MULTILINE),
        "CONTRIBUTING.md": re.findall(r"^make test +# (.*)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE),
    }
    for place, lines in described.items():
        assert len(lines) == 1, place
        assert "everything" not in lines[0], place
        assert all(re.search(rf"\b{name}\b", lines[0]) for name in others), place
