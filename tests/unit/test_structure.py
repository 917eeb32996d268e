"""The shape of the source: rooms that say what lives in them, short modules, and no import cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = SOURCE / "goqueue"
MOST_MODULES = 24
MOST_LINES = 400
FEWEST_WORDS = 5

TABLES = {"model/errors.py"}
"""One row after another: longer than a module of code may be."""
TOO_LONG: set[str] = set()
"""Modules that are still to be split. This list only gets shorter."""


def modules_in(folder: Path) -> list[Path]:
    """The modules of one folder, without its ``__init__`` and generated ones."""
    return [each for each in sorted(folder.glob("*.py")) if each.stem != "__init__" and "_pb2" not in each.stem]


FOLDERS = sorted({each.parent for each in PACKAGE.rglob("*.py")})
MODULES = [each for folder in FOLDERS for each in modules_in(folder)]


def in_package(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("folder", FOLDERS, ids=in_package)
def test_every_folder_says_in_a_sentence_what_lives_in_it(folder: Path) -> None:
    init = folder / "__init__.py"
    assert init.exists(), f"{in_package(folder)} has modules and no __init__.py"
    said = (ast.get_docstring(ast.parse(init.read_text())) or "").strip()
    sentence = said.partition("\n\n")[0]
    assert sentence.endswith((".", ":")), f"{in_package(init)} does not begin with a sentence: {sentence!r}"
    assert len(sentence.split()) >= FEWEST_WORDS, f"{in_package(init)} says too little: {sentence!r}"


@pytest.mark.parametrize("folder", FOLDERS, ids=in_package)
def test_no_folder_has_more_modules_than_a_reader_can_survey(folder: Path) -> None:
    assert len(modules_in(folder)) <= MOST_MODULES, f"{in_package(folder)} wants to be divided into rooms"


@pytest.mark.parametrize("folder", FOLDERS, ids=in_package)
def test_no_module_hides_a_public_name_of_its_package(folder: Path) -> None:
    """Once imported, a module is an attribute of its package, in place of what the package gives by that name."""
    tree = ast.parse((folder / "__init__.py").read_text())
    public = {
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets)
        for name in ast.literal_eval(node.value)
    }
    rooms = [each for each in FOLDERS if each.parent == folder]
    assert public & {each.stem for each in [*modules_in(folder), *rooms]} == set()


def test_no_module_is_longer_than_a_reader_can_keep_in_mind() -> None:
    long = {in_package(each) for each in MODULES if len(each.read_text().splitlines()) > MOST_LINES}
    assert sorted(long - TABLES - TOO_LONG) == [], f"split them: a module has {MOST_LINES} lines at most"


def test_the_list_of_modules_that_are_too_long_only_gets_shorter() -> None:
    long = {in_package(each) for each in MODULES if len(each.read_text().splitlines()) > MOST_LINES}
    assert sorted((TABLES | TOO_LONG) - long) == [], "they are short enough, moved or gone: take them off the list"


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert [" -> ".join(cycle) for cycle in cycles(imports_of(SOURCE))] == []


def test_an_import_within_a_function_or_for_types_alone_counts_as_one(tmp_path: Path) -> None:
    (tmp_path / "goqueue" / "room").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "low": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from goqueue.middle import Middle\n",
        "middle": "from goqueue import room\nclass Middle: ...\n",
        "room/__init__": "def made():\n    from goqueue.room.high import high\n    return high()\n",
        "room/high": "import goqueue.low\nfrom goqueue.room.alone import one\n",
        "room/alone": "from os import path\none = 1\n",
    }.items():
        (tmp_path / "goqueue" / f"{name}.py").write_text(text)
    found = cycles(imports_of(tmp_path))
    assert found == [
        ["goqueue.low", "goqueue.middle", "goqueue.room", "goqueue.room.high", "goqueue.low"],
    ]


def imports_of(source: Path) -> dict[str, set[str]]:
    """Which modules of ``goqueue`` each of them imports, anywhere in its file.

    A package stands for its ``__init__``. An import of a module in it is not counted as an import of the package.
    """
    files: dict[str, Path] = {}
    for path in sorted((source / "goqueue").rglob("*.py")):
        names = path.relative_to(source).with_suffix("").parts
        files[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def _imported(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                of_package = f"{node.module}.{alias.name}"
                if of_package in files:
                    yield of_package
                elif node.module in files:
                    yield node.module


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Import cycles, each as a path that ends where it begins; the list is empty only if there are none. Of cycles
    that share a module one is given: the others are seen once it is broken."""
    left = {module: set(others) for module, others in imports.items()}
    found: list[list[str]] = []
    while _remove_ends(left):
        path = [min(left)]
        while (following := min(left[path[-1]])) not in path:
            path.append(following)
        cycle = path[path.index(following) :]
        found.append([*cycle, following])
        _remove(left, set(cycle))
    return found


def _remove_ends(left: dict[str, set[str]]) -> bool:
    """Drop modules that import none of the others, until each of those that are left imports one. Whether any is."""
    while ends := {module for module, others in left.items() if not others}:
        _remove(left, ends)
    return bool(left)


def _remove(left: dict[str, set[str]], modules: set[str]) -> None:
    for module in modules:
        del left[module]
    for others in left.values():
        others -= modules
