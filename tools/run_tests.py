"""Runs pytest with the given arguments, and gives a few tests that ran out of time beside others a second look, alone.

Hundreds of these tests start brokers, browsers and Spark, two at a time; a machine that stands still for seconds
fails one of them that is sound. Only ``TooLate`` is forgiven, which a test raises where it waits
(``tests/doubles/patience.py``): every other failure may be a wrong answer, and is final. So is one of a test with
chance in it: what never came may be lost, the one find in a thousand runs.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

AT_MOST = 5
"""More than these at once is no accident."""
BY_CHANCE = ("tests/crash/", "tests/fuzz/", "tests/property/", "tests/spark/test_spark_kills.py")
TOO_LATE = "doubles.patience.TooLate: "
"""How pytest begins its report of that exception."""


class Failures:
    """What failed, by the name of its test, and how many passed."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.messages[report.nodeid] = crash.message if crash is not None else report.longreprtext
        elif report.when == "call" and report.passed:
            self.passed += 1


def deserve_a_second_look(messages: dict[str, str]) -> bool:
    return 0 < len(messages) <= AT_MOST and all(
        message.startswith(TOO_LATE) and not nodeid.startswith(BY_CHANCE) for nodeid, message in messages.items()
    )


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    started = time.monotonic()
    failures = Failures()
    ended = int(pytest.main(arguments, plugins=[failures]))
    if ended != pytest.ExitCode.TESTS_FAILED or not deserve_a_second_look(failures.messages):
        return ended
    for nodeid in failures.messages:
        say(f"\nFAILED BESIDE OTHERS, once more alone: {nodeid}")
        again = subprocess.run([sys.executable, "-m", "pytest", nodeid], check=False)
        if again.returncode != pytest.ExitCode.OK:
            return again.returncode
    say("")
    for nodeid in failures.messages:
        say(f"PASSED ONLY ALONE: {nodeid} (it waits for too little: mend it)")
    # The last line is the whole run's, in pytest's words.
    say(f"{failures.passed + len(failures.messages)} passed in {time.monotonic() - started:.2f}s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
