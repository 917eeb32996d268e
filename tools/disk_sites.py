"""The places in the source that bring something to the disk, or wait until it is there, as a list that is checked in.

Whatever is told to anybody hangs on these lines, and a line that is gone is seen by nobody: the tests that take each
one out in turn (``tests/crash``) go by this list, not by the source. Without arguments the list is written anew;
``--check`` only tells what is not as it says.

A place is known by its module, its function, the call, and which of its kind it is in that function, so that it keeps
its name when lines move. Behind it stands what shows that it is needed: one of the suites, or a file of tests.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "goqueue"
LIST = ROOT / "tests" / "crash" / "disk_sites.txt"
SUITES = {"storage", "groups", "delays", "refusals", "schemas", "transactions"}
"""Each takes its own places out in turn: ``tests/crash/test_power_loss….py``."""
UNKNOWN = "?"
_BETWEEN = "  "
_SYNC = re.compile(r"_?sync(fs|_\w+)?")
_OF_THE_SYSTEM = re.compile(r"f(data)?sync")
_WAIT = re.compile(r"reached|durable|(all_)?settled|acknowledge|on_disk")
_WHEN_AWAITED = "acknowledged"
_WHERE_IS_WAITED = ("storage/", "broker/", "api/")
_WITHOUT_A_DISK = ("client/", "simulation/")
_PARSING = Lock()
_HEAD = """\
# Every place that brings something to the disk or waits for it: module, function, call, which one of its kind there,
# and what shows that it is needed: a suite of tests/crash that takes it out in turn, or a file of tests.
# `make disk-sites` writes this list anew; `make check` holds the source against it.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A site and the lines where it stands now."""

    site: str
    call: str
    first_line: int
    last_line: int


def places_in(module: str, text: str) -> list[Place]:
    """Of one module, in the order of the source."""
    finder = _Finder(module)
    finder.visit(ast.parse(text))
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, module: str) -> None:
        self._module = module
        self._inside: list[str] = []
        self._awaited: set[ast.AST] = set()
        self._seen: Counter[tuple[str, str]] = Counter()
        self.found: list[Place] = []

    def _visit_scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _visit_scope  # noqa: N815

    def visit_Await(self, node: ast.Await) -> None:
        self._awaited.add(node.value.func if isinstance(node.value, ast.Call) else node.value)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        is_system = isinstance(node.value, ast.Name) and node.value.id == "os"
        is_wait = _WAIT.fullmatch(node.attr) or (node.attr == _WHEN_AWAITED and node in self._awaited)
        if (
            _SYNC.fullmatch(node.attr)
            or (is_system and _OF_THE_SYSTEM.fullmatch(node.attr))
            or (is_wait and self._module.startswith(_WHERE_IS_WAITED))
        ):
            self._note(node, node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and _SYNC.fullmatch(node.func.id):
            self._note(node.func, node.func.id)
        self.generic_visit(node)

    def _note(self, node: ast.expr, name: str) -> None:
        is_awaited = node in self._awaited
        call = f"await {name}" if is_awaited else name
        function = ".".join(self._inside) or "(module)"
        self._seen[function, call] += 1
        site = _BETWEEN.join((self._module, function, call, str(self._seen[function, call])))
        self.found.append(Place(site, name, node.lineno, node.end_lineno or node.lineno))


@cache
def _places(module: str) -> list[Place]:
    # The threads of fsync ask as well, and Python 3.11 fails if two threads parse at once.
    with _PARSING:
        return places_in(module, (SOURCE / module).read_text())


@cache
def site_at(module: str, line: int, call: str) -> str:
    """The site of a call that stands at a line now. What is no site is named by its line."""
    fitting = [each for each in _places(module) if each.call == call and each.first_line <= line <= each.last_line]
    closest = min(fitting, key=lambda each: each.last_line - each.first_line, default=None)
    return f"{module}:{line}" if closest is None else closest.site


def in_source() -> list[str]:
    """Every site there is now."""
    modules = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    return [place.site for module in modules if not module.startswith(_WITHOUT_A_DISK) for place in _places(module)]


def listed(text: str | None = None) -> dict[str, str]:
    """What shows that a site is needed, by site."""
    lines = (LIST.read_text() if text is None else text).splitlines()
    parts = (line.rpartition(_BETWEEN) for line in lines if line and not line.startswith("#"))
    return {site: shown_by for site, _, shown_by in parts}


def shown_by(suite: str) -> list[str]:
    """The sites that a suite takes out in turn."""
    assert suite in SUITES
    return [site for site, shown in listed().items() if shown == suite]


def module_of(site: str) -> str:
    return site.partition(_BETWEEN)[0]


def complaints(known: Mapping[str, str], found: list[str]) -> Iterator[str]:
    name = LIST.relative_to(ROOT)
    for site in known.keys() - set(found):
        yield (
            f"{site}: is in {name} and not in the source. What was brought to the disk there, or waited for, no longer "
            "is: put it back. If it was moved or renamed, or nothing can break without it, run `make disk-sites`"
        )
    for site in found:
        if site not in known:
            yield (
                f"{site}: is in the source and not in {name}. Run `make disk-sites`, and have a test fail without it: "
                "the suite named behind it takes it out in turn, and must reach it"
            )
        elif known[site] not in SUITES and not (ROOT / known[site]).is_file():
            yield (
                f"{site}: what shows that it is needed? {known[site]!r} in {name} is none of the suites "
                f"({', '.join(sorted(SUITES))}) and no file of tests"
            )


def written_anew(known: Mapping[str, str], found: list[str]) -> str:
    """The list for these sites. What was known of one stays; a new one goes to the suite of its neighbours."""
    of_module = {module_of(site): shown for site, shown in known.items()}
    lines = [f"{site}{_BETWEEN}{known.get(site) or of_module.get(module_of(site), UNKNOWN)}\n" for site in found]
    return _HEAD + "".join(sorted(lines))


def main() -> int:
    known, found = listed() if LIST.exists() else {}, in_source()
    if sys.argv[1:] != ["--check"]:
        LIST.write_text(written_anew(known, found))
        known = listed()
    told = sorted(complaints(known, found))
    sys.stderr.write("".join(f"{each}\n" for each in told))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
