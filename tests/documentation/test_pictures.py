"""The drawings of the documentation: no label runs into a box, into another label, or out of the picture."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"
DRAWN = sorted(path for path in (DOCS / "pictures").glob("*.svg") if "<text" in path.read_text())
WIDEST = 0.6
"""The width of a character in heights of its font: more than the widest of the usual fonts takes on average."""
_SVG = "{http://www.w3.org/2000/svg}"
_PAGE_COLUMNS = 100
"""A page of the site shows so many characters of a block beside its two columns of links."""


@dataclass(frozen=True)
class Area:
    name: str
    left: float
    top: float
    right: float
    bottom: float

    def is_within(self, other: Area) -> bool:
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )

    def meets(self, other: Area) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def _areas(drawing: Path) -> tuple[list[Area], list[Area]]:
    """Its boxes, the page first, and its labels."""
    boxes: list[Area] = []
    labels: list[Area] = []

    def walk(node: ElementTree.Element, left: float, top: float) -> None:
        moved = re.match(r"translate\(([\d.]+),([\d.]+)\)", node.get("transform", "translate(0,0)"))
        assert moved, f"{drawing.name}: a transform that this test cannot follow"
        left, top = left + float(moved[1]), top + float(moved[2])
        x, y = left + float(node.get("x", 0)), top + float(node.get("y", 0))
        if node.tag == f"{_SVG}rect":
            width, height = float(node.get("width", 0)), float(node.get("height", 0))
            boxes.append(Area(f"the box at {x:g},{y:g}", x, y, x + width, y + height))
        if node.tag == f"{_SVG}text":
            words = " ".join("".join(node.itertext()).split())
            size = 12 if "small" in node.get("class", "") else 14
            width = len(words) * size * WIDEST
            begin = x - width * {"start": 0, "middle": 0.5, "end": 1}[node.get("text-anchor", "start")]
            labels.append(Area(words, begin, y - size * 0.8, begin + width, y + size * 0.2))
        else:
            for child in node:
                walk(child, left, top)

    walk(ElementTree.parse(drawing).getroot(), 0, 0)
    return boxes, labels


@pytest.mark.parametrize("drawing", DRAWN, ids=lambda path: path.stem)
def test_no_label_runs_into_a_box_or_out_of_the_picture(drawing: Path) -> None:
    boxes, labels = _areas(drawing)
    page, *others = boxes
    wrong = [f"{label.name!r} leaves the picture" for label in labels if not label.is_within(page)]
    wrong += [
        f"{label.name!r} runs into {box.name}"
        for label in labels
        for box in others
        if label.meets(box) and not label.is_within(box)
    ]
    assert not wrong


@pytest.mark.parametrize("drawing", DRAWN, ids=lambda path: path.stem)
def test_no_label_runs_into_another(drawing: Path) -> None:
    _, labels = _areas(drawing)
    assert not [(one.name, other.name) for one, other in combinations(labels, 2) if one.meets(other)]


def test_no_drawing_in_letters_is_wider_than_a_page_of_the_site() -> None:
    wide = [
        f"{page.relative_to(DOCS)}: {len(line)} characters"
        for page in sorted(DOCS.rglob("*.md"))
        for line in page.read_text().splitlines()
        if len(line) > _PAGE_COLUMNS and re.search("[┌└│]", line)
    ]
    assert not wide
