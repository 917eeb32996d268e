"""What the site needs beside ``docs``: pages for the files of the repository that the documentation links to.

The README, the changelog and the notes for contributors become pages of the site. Any other file that a page links to,
such as an example or the proto, becomes a page that shows its text. Links lead there; in the repository they stay links
to the files themselves.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, SubElement

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from site_lists import with_lists

ROOT = Path(__file__).parents[1]
DOCS = "docs/"
PROJECT = {"README.md": "readme.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
PROJECT_FOLDER = "project/"
SOURCE_FOLDER = "source/"

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_LANGUAGES = {".py": "python", ".proto": "protobuf", ".toml": "toml", ".json": "json", ".yml": "yaml", ".yaml": "yaml"}


def place_of(src_uri: str) -> str:
    """Where in the repository a page comes from."""
    for name, own in PROJECT.items():
        if src_uri == PROJECT_FOLDER + own:
            return name
    return DOCS + src_uri


def uri_of(place: str) -> str:
    """The page that shows a file of the repository."""
    if place.startswith(DOCS):
        return place.removeprefix(DOCS)
    return PROJECT_FOLDER + PROJECT[place] if place in PROJECT else f"{SOURCE_FOLDER}{place}.md"


def target_of(page: str, href: str) -> str | None:
    """The file of the repository that a link on a page leads to, whether it exists or not."""
    parts = urlsplit(href)
    if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
        return None
    place = posixpath.normpath(posixpath.join(posixpath.dirname(place_of(page)), parts.path))
    return None if place.startswith("..") else place


def with_patterns(nav: Any) -> Any:
    """The menu, where a pattern such as ``adr/*.md`` stands for every page that it fits to; a README comes first."""
    if isinstance(nav, list):
        return [with_patterns(entry) for entry in nav]
    if isinstance(nav, dict):
        return {title: with_patterns(entry) for title, entry in nav.items()}
    if "*" not in nav:
        return nav
    docs = ROOT / DOCS
    found = sorted(docs.glob(nav), key=lambda page: (page.name != "README.md", page.name))
    return [page.relative_to(docs).as_posix() for page in found]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = with_patterns(config.nav)
    config.markdown_extensions.append(_SiteMarkdown())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, own in PROJECT.items():
        files.append(File.generated(config, PROJECT_FOLDER + own, abs_src_path=str(ROOT / name)))
    pages = {page.src_uri: page.content_string for page in files.documentation_pages()}
    linked = {target_of(page, href) for page, text in pages.items() for href in _LINK.findall(text)}
    for place in sorted(filter(None, linked)):
        file = ROOT / place
        if not place.startswith(DOCS) and place not in PROJECT and file.is_file():
            shown = File.generated(config, uri_of(place), content=_source_page(place, file.read_text(encoding="utf-8")))
            shown.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(shown)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    _Outside.page = page.file.src_uri
    return with_lists(markdown)


def _source_page(place: str, text: str) -> str:
    fence = "`" * 5
    language = _LANGUAGES.get(posixpath.splitext(place)[1], "text")
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {posixpath.basename(place)}\n\n`{place}` in the repository.\n\n"
    return f"{head}{fence}{language}\n{text.rstrip()}\n{fence}\n"


class _Outside(Treeprocessor):
    """Lets links to files outside of ``docs`` lead to their pages, before links are checked."""

    page = ""

    def run(self, root: Element) -> None:
        for element in root.iter():
            for attribute in ("href", "src"):
                if href := element.get(attribute):
                    element.set(attribute, self._inside(href))

    def _inside(self, href: str) -> str:
        place = target_of(self.page, href)
        if place is None or (place.startswith(DOCS) and place_of(self.page).startswith(DOCS)):
            return href
        if not (ROOT / place).is_file():
            return href
        fragment = urlsplit(href).fragment
        # A line of a file, as code hosts name it, is nothing that a page has.
        kept = f"#{fragment}" if fragment and place.endswith(".md") else ""
        return posixpath.relpath(uri_of(place), posixpath.dirname(self.page) or ".") + kept


class _LongNames(Treeprocessor):
    """Lets a long name in a table go on in the next line behind its underscores, and nowhere else."""

    def run(self, root: Element) -> None:
        for cell in root.iter("td"):
            for name in cell.iter("code"):
                first, *others = re.split(r"(?<=[_/])(?=\w)", name.text or "")
                name.text = AtomicString(first)
                for other in others:
                    SubElement(name, "wbr").tail = AtomicString(other)


class _SiteMarkdown(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        # Behind the one that makes elements of inline text (20), ahead of the one that checks links (0).
        md.treeprocessors.register(_Outside(md), "links-outside", 2)
        md.treeprocessors.register(_LongNames(md), "long-names", 1)
