"""What gets a second look, and what is final. Each case is a small project of its own, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOUND = "def test_sound(): pass\n"
LATE_ONCE = """
from pathlib import Path

def test_late(tmp_path_factory):
    been = Path(__file__).with_suffix(".been")
    if not been.exists():
        been.touch()
        raise {error}
"""


def run(project: Path, **files: str) -> tuple[int, list[str]]:
    for name, text in files.items():
        file = project / "tests" / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [sys.executable, str(ROOT / "tools" / "run_tests.py"), "tests"]
    env = os.environ | {"PYTEST_ADDOPTS": "-q -p no:cacheprovider"}
    ended = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=100, check=False)
    return ended.returncode, ended.stdout.splitlines()


def test_what_passes_is_left_alone(tmp_path: Path) -> None:
    code, lines = run(tmp_path, test_a=SOUND)
    assert (code, [line for line in lines if "ALONE" in line]) == (0, [])
    assert lines[-1].startswith("1 passed in ")


def test_what_failed_beside_others_and_passes_alone_is_named(tmp_path: Path) -> None:
    code, lines = run(tmp_path, test_a=SOUND, test_b=LATE_ONCE.format(error="AssertionError('no')"))
    assert code == 0
    assert lines[-2].startswith("PASSED ONLY ALONE: tests/test_b.py::test_late")
    assert lines[-1].startswith("2 passed in ")


def test_what_fails_again_fails(tmp_path: Path) -> None:
    code, lines = run(tmp_path, test_a=SOUND, test_b="def test_wrong(): assert 1 == 2\n")
    assert (code, lines[-1].split(" in ")[0]) == (1, "1 failed")


def test_a_wrong_answer_of_a_test_with_chance_in_it_is_final(tmp_path: Path) -> None:
    code, lines = run(tmp_path, crash__test_a=LATE_ONCE.format(error="AssertionError('one acknowledged was lost')"))
    assert (code, [line for line in lines if "ALONE" in line or "alone" in line]) == (1, [])


def test_a_test_with_chance_in_it_that_was_only_late_gets_a_second_look(tmp_path: Path) -> None:
    code, lines = run(tmp_path, crash__test_a=LATE_ONCE.format(error="TimeoutError"))
    assert (code, lines[-1].split(" in ")[0]) == (0, "1 passed")


def test_many_at_once_are_no_accident(tmp_path: Path) -> None:
    many = {f"test_{number}": LATE_ONCE.format(error="AssertionError('no')") for number in range(6)}
    code, lines = run(tmp_path, **many)
    assert (code, lines[-1].split(" in ")[0]) == (1, "6 failed")


def test_a_file_that_cannot_be_imported_is_final(tmp_path: Path) -> None:
    code, lines = run(tmp_path, test_a="import no_such_module\n")
    assert code == 2
    assert lines[-1].startswith("1 error in ")
