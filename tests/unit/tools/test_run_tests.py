"""What gets a second look, and what is final. Each case is a small project of its own, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOUND = "def test_sound(): pass\n"
LATE_ONCE = """
from pathlib import Path
from doubles.patience import TooLate

def test_late(tmp_path_factory):
    been = Path(__file__).with_suffix(".been")
    if not been.exists():
        been.touch()
        raise {error}
"""


def run(project: Path, *, options: str = "", **files: str) -> tuple[int, list[str]]:
    for name, text in files.items():
        file = project / "tests" / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [sys.executable, str(ROOT / "tools" / "run_tests.py"), "tests"]
    env = os.environ | {"PYTEST_ADDOPTS": f"-q -p no:cacheprovider {options}", "PYTHONPATH": str(ROOT / "tests")}
    ended = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=220, check=False)
    return ended.returncode, ended.stdout.splitlines()


def test_what_passes_is_left_alone(tmp_path: Path) -> None:
    code, lines = run(tmp_path, test_a=SOUND)
    assert (code, [line for line in lines if "ALONE" in line]) == (0, [])
    assert lines[-1].startswith("1 passed in ")


@pytest.mark.parametrize("options", ["", "--numprocesses 2"])
def test_what_was_too_late_beside_others_and_passes_alone_is_named(tmp_path: Path, options: str) -> None:
    code, lines = run(tmp_path, options=options, test_a=SOUND, test_b=LATE_ONCE.format(error="TooLate('no answer')"))
    assert code == 0
    assert lines[-2].startswith("PASSED ONLY ALONE: tests/test_b.py::test_late")
    assert lines[-1].startswith("2 passed in ")


def test_what_is_too_late_again_fails(tmp_path: Path) -> None:
    late = "from doubles.patience import TooLate\ndef test_late(): raise TooLate('no answer')\n"
    code, lines = run(tmp_path, test_a=SOUND, test_b=late)
    assert (code, lines[-1].split(" in ")[0]) == (1, "1 failed")


@pytest.mark.parametrize(
    "error",
    [
        "AssertionError('its visibility timed out')",
        "AssertionError('not in time')",
        "TimeoutError('the product said so')",
        "AssertionError('doubles.patience.TooLate: as text')",
    ],
)
def test_a_wrong_answer_is_final_whatever_its_words(tmp_path: Path, error: str) -> None:
    code, lines = run(tmp_path, test_a=LATE_ONCE.format(error=error))
    assert (code, lines[-1].split(" in ")[0]) == (1, "1 failed")
    assert not [line for line in lines if "ALONE" in line]


def test_one_that_was_too_late_does_not_excuse_another(tmp_path: Path) -> None:
    late, wrong = LATE_ONCE.format(error="TooLate('no answer')"), LATE_ONCE.format(error="AssertionError('no')")
    code, lines = run(tmp_path, test_a=late, test_b=wrong)
    assert (code, lines[-1].split(" in ")[0]) == (1, "2 failed")


def test_a_test_with_chance_in_it_gets_no_second_look(tmp_path: Path) -> None:
    code, lines = run(tmp_path, crash__test_a=LATE_ONCE.format(error="TooLate('some messages never come')"))
    assert (code, [line for line in lines if "ALONE" in line]) == (1, [])


def test_many_at_once_are_no_accident(tmp_path: Path) -> None:
    many = {f"test_{number}": LATE_ONCE.format(error="TooLate('no answer')") for number in range(6)}
    code, lines = run(tmp_path, **many)
    assert (code, lines[-1].split(" in ")[0]) == (1, "6 failed")


def test_a_file_that_cannot_be_imported_is_final(tmp_path: Path) -> None:
    code, lines = run(tmp_path, test_a="import no_such_module\n")
    assert code == 2
    assert lines[-1].startswith("1 error in ")
