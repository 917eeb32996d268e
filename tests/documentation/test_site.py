"""The documentation as a site: built as strictly as it is published, and complete without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
LOADING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "manifest", "modulepreload"}
LOADING = {
    *(("script", "src"), ("img", "src"), ("img", "srcset"), ("iframe", "src"), ("source", "src"), ("video", "src")),
    *(("audio", "src"), ("embed", "src"), ("object", "data"), ("use", "href"), ("input", "src")),
}


@dataclass
class Read(HTMLParser):
    """A page: what it loads, what it links to and what can be linked to on it."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    styles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.in_style = False

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.styles.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.in_style = self.in_style and tag != "style"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_style = tag == "style"
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        self.styles.append(given.get("style") or "")
        if tag == "link" and LOADING_LINKS & set((given.get("rel") or "").split()):
            self.loads.append(given.get("href") or "")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        self.loads += [value for name, value in attrs if (tag, name) in LOADING and value]


def run_mkdocs(project: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    ran = run_mkdocs(REPOSITORY, target)
    assert ran.returncode == 0, ran.stderr
    return target


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Read]:
    read = {}
    for file in sorted(site.rglob("*.html")):
        read[file] = Read()
        read[file].feed(file.read_text(encoding="utf-8"))
    return read


def is_elsewhere(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def target_of(site: Path, page: Path, url: str) -> Path:
    path = unquote(urlsplit(url).path)
    if not path:
        return page
    # Only the page for what is not found is told from the root: nobody knows where it is shown.
    found = site / path.lstrip("/") if path.startswith("/") else page.parent / path
    return (found / "index.html" if found.is_dir() else found).resolve()


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Read]) -> None:
    loaded = {(page.name, url) for page, read in pages.items() for url in read.loads if is_elsewhere(url)}
    assert loaded == set()
    styles = {file: file.read_text(encoding="utf-8") for file in site.rglob("*.css")}
    assert styles
    styles |= {page: " ".join(read.styles) for page, read in pages.items()}
    styles |= {file: file.read_text(encoding="utf-8") for file in site.rglob("*.svg")}
    named = {(file.name, url) for file, text in styles.items() for url in re.findall(r"url\([\"']?([^)\"']+)", text)}
    assert {(name, url) for name, url in named if is_elsewhere(url)} == set()
    assert [file.name for file, text in styles.items() if re.search(r"@import\s+[\"']|<image|<script", text)] == []


def test_everything_that_a_page_loads_or_links_to_is_there(site: Path, pages: dict[Path, Read]) -> None:
    missing = set()
    for page, read in pages.items():
        for url in {url for url in read.loads + read.links if not is_elsewhere(url) and not url.startswith("data:")}:
            target = target_of(site, page, url)
            fragment = unquote(urlsplit(url).fragment)
            there = pages[target].ids if target in pages else {fragment}
            if not target.is_file() or (fragment and fragment not in there | {"__top"}):
                missing.add((page.name, url))
    assert missing == set()


def test_every_page_of_the_documentation_is_in_the_menu() -> None:
    written = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert written == {page for page in _menu() if not page.startswith("project/")}


def test_files_beside_the_documentation_are_pages_where_they_are_linked_to(site: Path) -> None:
    assert "Keep a Changelog" in (site / "project" / "changelog.html").read_text(encoding="utf-8")
    proto = site / "source" / "src" / "goqueue" / "wire" / "proto" / "goqueue.proto.html"
    assert "PublishRequest" in proto.read_text(encoding="utf-8")
    assert 'href="../source/src/goqueue/wire/proto/goqueue.proto.html"' in (site / "reference" / "grpc.html").read_text(
        encoding="utf-8"
    )


def test_a_list_that_is_set_in_as_code_hosts_read_it_is_a_list(site: Path) -> None:
    for page in ("monitoring", "migration"):
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        assert not re.search(r"^\d+\. ", text, re.MULTILINE), page
        assert re.search(r"<li>(?:(?!</li>).)*<pre", text, re.DOTALL), f"{page}: its list has no code in it any more"


def test_the_search_knows_the_guides_and_reads_no_source(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert '"location":"groups.html' in index
    assert '"location":"source/' not in index


def test_what_is_broken_fails_the_build_and_is_named(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(REPOSITORY / "tools", project / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (project / name).write_text(f"# {name}\n")
    for name in ("index", "outside"):
        (project / "docs").mkdir(exist_ok=True)
        (project / "docs" / f"{name}.md").write_text(f"# {name}\n")
    shutil.copytree(DOCS / "pictures", project / "docs" / "pictures")
    settings = re.sub(r"^nav:.*", "", (REPOSITORY / "mkdocs.yml").read_text(), flags=re.MULTILINE | re.DOTALL)
    nav = "nav:\n- index.md\n- missing-from-docs.md\n"
    nav += "".join(f"- project/{name}.md\n" for name in ("readme", "changelog", "contributing"))
    (project / "mkdocs.yml").write_text(settings + nav)
    broken = ("no-page.md", "#no-heading", "../no-file.py", "project/readme.md#no-heading-there", "/absolute.md")
    (project / "docs" / "index.md").write_text("# Home\n\n" + "".join(f"[link]({target}) " for target in broken))
    ran = run_mkdocs(project, tmp_path / "site")
    assert ran.returncode == 1
    for target in (*broken, "outside.md", "missing-from-docs.md"):
        assert target in ran.stderr, ran.stderr


def test_the_pages_made_from_the_code_are_current() -> None:
    # Nothing on them may follow the order in which a set happens to be.
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "tools/make_reference.py", "--check"]
    ran = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("module", ["goqueue", "goqueue.spark", "goqueue.testing"])
def test_every_public_name_is_in_the_reference(module: str) -> None:
    reference = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    titles = set(re.findall(r"^### `(\w+)`$", reference, re.MULTILINE))
    assert set(import_module(module).__all__) - titles == set()


def _menu() -> set[str]:
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    return set(_named(settings["nav"]))


def _named(part: Any) -> list[str]:
    if isinstance(part, str):
        return [str(page.relative_to(DOCS)) for page in DOCS.glob(part)] if "*" in part else [part]
    inside = part.values() if isinstance(part, dict) else part
    return [page for one in inside for page in _named(one)]
