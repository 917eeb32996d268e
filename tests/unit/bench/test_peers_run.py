"""``python -m bench.peers``: a real run with a real broker, and what is said of systems that cannot be had."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.child import environment
from bench.peers.__main__ import main
from bench.peers.results import Results
from bench.peers.system import DidNotStart, Missing, Server, System
from bench.peers.work import Durability, Work

REPOSITORY = Path(__file__).parents[3]


def install(monkeypatch: pytest.MonkeyPatch, *, client: str = "goqueue", problem: str = "") -> None:
    """In place of Redis, a system that cannot be prepared, or that never starts."""

    def prepare() -> None:
        if problem:
            raise Missing(problem)

    @contextmanager
    def start(folder: Path, durability: Durability) -> Iterator[Server]:
        raise DidNotStart(f"fakemq ended with status 1; its log ends with:\nreading {folder}\nport is not a number")
        yield

    module = types.ModuleType("bench.peers.systems.redis")
    both = frozenset(Durability)
    module.SYSTEM = System("redis", "Fake MQ", client, both, frozenset(Work), {}, prepare, start)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.peers.systems.redis", module)


@pytest.mark.timeout(300)
def test_a_quick_run_of_goqueue_alone_measures_every_work_and_writes_every_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.peers", "--systems", "goqueue", "--quick", "--repetitions", "1"]
    command += ["--sizes", "100", "--durabilities", "page cache", "--into", str(tmp_path)]
    ran = subprocess.run(command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "repetition 1 of 1, page cache: GoQueue" in ran.stderr
    found = Results.from_json(json.loads((tmp_path / "peers.json").read_text()))
    assert sorted(piece.work for piece in found.pieces) == sorted(Work)
    for piece in found.pieces:
        assert piece.messages > 0
        assert piece.client_cpu_s > 0
        assert piece.server_peak_bytes > 10_000_000
        assert bool(piece.waits_ms) is (piece.work in (Work.SINGLE, Work.LATENCY, Work.DELAY))
    delayed = next(piece for piece in found.pieces if piece.work is Work.DELAY)
    assert delayed.seconds > 1, "messages with a delay of a second were not delayed"
    assert "=== page cache, messages of 100 bytes ===" in ran.stdout
    names = {"index.md", "peers.json"}
    names |= {f"{kind}-page-cache.{form}" for kind in ("throughput", "waits") for form in ("svg", "png")}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert "not to be believed" in (tmp_path / "index.md").read_text()


@pytest.mark.parametrize(
    ("client", "problem", "said"),
    [
        ("goqueue", "there is no fakemq here: apt install fakemq", "there is no fakemq here: apt install fakemq"),
        ("no-such-client", "", "its client no-such-client is not installed: make bench-peers installs it"),
    ],
)
def test_a_peer_that_cannot_be_had_is_reported_everywhere(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    keep_handler: None,
    client: str,
    problem: str,
    said: str,
) -> None:
    install(monkeypatch, client=client, problem=problem)
    assert main(["--systems", "redis", "--quick", "--into", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert f"MISSING Fake MQ: {said}" in output.err
    assert f"MISSING: Fake MQ: {said}" in output.out
    assert f"**Fake MQ**: {said}" in (tmp_path / "index.md").read_text()
    assert json.loads((tmp_path / "peers.json").read_text())["missing"] == {"Fake MQ": said}


def test_a_peer_that_fails_on_the_way_is_reported_and_the_status_tells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], keep_handler: None
) -> None:
    install(monkeypatch)
    assert main(["--systems", "redis", "--quick", "--repetitions", "1", "--into", str(tmp_path)]) == 1
    assert "port is not a number" in capsys.readouterr().err
    text = (tmp_path / "index.md").read_text()
    why = "failed on the way: fakemq ended with status 1; its log ends with: port is not a number"
    assert f"**Fake MQ**: {why}" in text
    assert "goqueue-bench-" not in text, "folders of this machine are nobody's business"


def test_what_is_not_a_whole_run_does_not_replace_the_published_pages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], keep_handler: None
) -> None:
    install(monkeypatch, problem="there is none")
    monkeypatch.setattr("bench.peers.__main__._FOLDER", tmp_path)
    assert main(["--systems", "redis"]) == 0
    assert "no pages written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["--repetitions", "0"], ["--sizes", "7"], ["--sizes", "big"], ["--systems", "mq"], ["--works", "tea"]]
)
def test_a_wrong_option_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_help_has_examples_that_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "python -m bench.peers --draw docs/benchmarks/peers.json" in said
    for word in (*Work, *Durability):
        assert f"'{word}'" in said
