"""Tables, page and charts of a comparison, from a made-up run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from peer_results import results

from bench.peers import reasons
from bench.peers.__main__ import main
from bench.peers.machine import machine
from bench.peers.numerals import ratio, short, significant
from bench.peers.page import page, write_pages
from bench.peers.results import Piece, Results
from bench.peers.table import print_tables
from bench.peers.work import Durability, Work

CHARTS = ["throughput-fsync", "throughput-page-cache", "waits-fsync", "waits-page-cache"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "benchmarks"
    write_pages(results(), folder)
    return folder


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return (folder / "index.md").read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}"
    return found[1]


def test_tables_on_standard_output_tell_versions_first_then_figures_then_what_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_tables(results())
    said = capsys.readouterr().out
    order = ["Swift Log 7.1, by swift-client 1.0", "=== fsync, messages of 100 bytes", "MISSING: Gone MQ: there is no"]
    assert sorted(order, key=said.index) == order
    assert "sync=FSYNC" in said
    fsync, cached = said.split("=== page cache, messages of 100 bytes")
    assert "200,000 ± 30,000" in fsync
    assert "Swift Log  " not in fsync.partition("===")[2], "it has no figures under fsync"
    rated = re.search(r"^Swift Log .*$", cached, re.MULTILINE)
    assert rated
    assert re.split(r" {3,}", rated[0]) == ["Swift Log", "400,000 ± 60,000", "4,000 ± 600", "–"]
    assert "0.500 / 0.990 / 1.11" in fsync, "p50 and p99 are medians of the repetitions, max is the worst of them"
    assert "2 processors, shared by the server and its client" in said
    assert "GoQueue 25% / – / 25%" in said


def test_the_best_is_bold_and_goqueue_is_compared_with_the_best_peer(text: str) -> None:
    fsync = section(text, "On the disk")
    assert "| batched publish, 100 B | **200,000 ± 30,000** | 100,000 ± 15,000 | 2.00× |" in fsync
    cached = section(text, "In the page cache")
    assert "| 200,000 ± 30,000 | **400,000 ± 60,000** | 100,000 ± 15,000 | 0.50× |" in cached
    assert "| queue round trip, 100 B | **50,000 ± 7,500** | – | 10,000 ± 1,500 | 5.00× |" in cached
    assert "0.500 / 0.990 / 1.11 | **0.250** / **0.495** / 0.556" in cached


def test_no_name_breaks_a_table(text: str) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block


def test_the_page_says_where_goqueue_is_behind_whom_by_how_much_and_why(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    behind = section(text, "Where we are behind")
    line = "- page cache, 100 B: 200,000 ± 30,000 messages/s against 400,000 ± 60,000 of Swift Log (0.50×)"
    assert line in behind
    assert "- page cache, 1,000 B: p99 0.990" in behind
    assert "fsync" not in behind
    assert "Queue round trip" not in behind
    monkeypatch.delitem(reasons.WHY_BEHIND, Work.PUBLISH)
    assert reasons.UNKNOWN in section(page(results(), ()), "Where we are behind")
    monkeypatch.setitem(reasons.WHY_BEHIND, Work.PUBLISH, "Because it is made up so.")
    assert "Because it is made up so." in section(page(results(), ()), "Where we are behind")


def test_repetitions_that_overlap_are_said_to() -> None:
    def slower(each: Piece) -> Piece:
        return replace(each, seconds=each.seconds * 1.9) if each.system == "swift" else each

    behind = section(
        page(replace(results(), pieces=[slower(each) for each in results().pieces]), ()), "Where we are behind"
    )
    assert "of Swift Log (0.95×; repetitions of the two overlap)" in behind


def test_what_is_missing_is_named_with_the_reason(text: str) -> None:
    missing = section(text, "What is missing")
    assert "- **Gone MQ**: there is no gonemq here: apt install gonemq" in missing
    assert "- Swift Log, page cache: no queue round trip, no delayed delivery" in missing
    assert "not measured under this durability: Swift Log" in section(text, "On the disk")


def test_remarks_machine_date_versions_and_how_to_repeat_are_on_the_page(text: str) -> None:
    for said in (
        "Swift Log is made up.",
        "Abacus",
        "2026-11-16",
        "**Swift Log** 7.1, by swift-client 1.0",
        "make bench-peers",
    ):
        assert said in text
    assert "sync=PAGE_CACHE" in text
    assert "not to be believed" not in text


def test_a_trial_says_that_it_is_one() -> None:
    found = results()
    once = [each for each in found.pieces if each.repetition == 0]
    busy = {**found.machine, "load_average_before": 5.0, "amounts": {"publish_s": 0.5}}
    text = page(replace(found, pieces=once, machine=busy), ())
    assert "not to be believed" in text
    for problem in ("little of everything", "it had 1 repetition,", "busy"):
        assert problem in text


def test_a_system_that_delivers_before_the_time_is_told_of() -> None:
    def early(each: Piece) -> Piece:
        return replace(each, waits_ms=[-20.0, 0.0, 1.0]) if each.work is Work.DELAY else each

    assert "up to 20.0 ms *before* they were due" in page(
        replace(results(), pieces=[early(each) for each in results().pieces]), ()
    )


def test_every_link_of_the_page_leads_to_a_file_beside_it(folder: Path, text: str) -> None:
    named = set(re.findall(r"\]\(([^)#]+)\)", text)) - {"notes.md", "growth.md"}
    assert named == {"peers.json", *(f"{name}.{kind}" for name in CHARTS for kind in ("svg", "png"))}
    assert {name for name in named if not (folder / name).is_file()} == set()


def test_charts_are_small_opaque_and_load_nothing(folder: Path) -> None:
    for name in CHARTS:
        svg = (folder / f"{name}.svg").read_text()
        assert len(svg) < 150_000
        assert "fill: #ffffff" in svg
        assert not re.search(r"<image|<script|url\((?!#)", svg)
        png = (folder / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        assert len(png) < 200_000


def test_pages_drawn_again_from_their_data_are_the_same_to_the_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keep_handler: None
) -> None:
    small = [each for each in results().pieces if each.size == 100 and each.durability is Durability.FSYNC]
    first, again = tmp_path / "first", tmp_path / "again"
    write_pages(replace(results(), pieces=small), first)
    assert main(["--draw", str(first / "peers.json"), "--into", str(again)]) == 0
    assert "MISSING: Gone MQ" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in first.iterdir()
    }


def test_the_data_of_a_whole_run_stays_small() -> None:
    piece = replace(results().pieces[0], waits_ms=[number / 7 for number in range(3_000)])
    # Six systems, two durabilities, two sizes, three kinds of waits, five repetitions.
    many = [replace(piece, work=Work.LATENCY, repetition=number % 5) for number in range(6 * 2 * 2 * 3 * 5)]
    found = Results("2026-11-16", results().machine, results().subjects, many, {})
    assert len(json.dumps(found.to_reduced().to_json())) < 500_000


def test_a_run_of_goqueue_alone_claims_nothing() -> None:
    found = results()
    mine = [each for each in found.pieces if each.system == "goqueue" and each.durability is Durability.FSYNC]
    text = page(replace(found, subjects=found.subjects[:1], pieces=mine), ())
    assert "nothing to compare with" in text
    assert "Nobody knows" in section(text, "Where we are behind")
    assert "×" not in text
    assert "In the page cache" not in text


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (1_234_567, "1,230,000"), (9.996, "10.0"), (9.62, "9.62"), (-95, "-95.0"), (0.04, "0.040")],
)
def test_numbers_have_three_digits_that_mean_something(number: float, shown: str) -> None:
    assert significant(number) == shown


def test_labels_and_ratios_are_short() -> None:
    assert [short(number) for number in (1_234_567, 312_400, 2_853, 0)] == ["1.23 M", "312 k", "2,850", "0"]
    assert [ratio(times) for times in (0.612, 1.8, 12.34, 2_345)] == ["0.61×", "1.80×", "12.3×", "2,340×"]


def test_a_system_that_is_a_major_version_behind_is_told_of() -> None:
    run = results()
    assert "A major version behind" not in page(run, [])
    versions = {"redis": "7.0.15", "rabbitmq_stream": "4.3.1 (Erlang 27)", "kafka": "1.0"}
    subjects = [replace(run.subjects[1], key=key, name=key, version=each) for key, each in versions.items()]
    told = page(replace(run, subjects=subjects), [])
    assert "**A major version behind what is current**: redis 7.0.15 (current is 8). " in told


def test_the_name_of_a_kernel_is_cut_to_what_matters() -> None:
    assert re.fullmatch(r"[A-Za-z]+ \d+\.\d+", str(machine()["system"]))
