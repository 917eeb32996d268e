"""The bank of the examples: its total never changes, whatever is killed, and it would tell if it did.

``GOQUEUE_KILLS`` says how many seconds it goes on (4 unless told otherwise), with a kill in each.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BANK = Path(__file__).parents[2] / "examples" / "bank.py"
SECONDS = int(os.environ.get("GOQUEUE_KILLS", "4"))
PATIENCE_S = 280 + 3 * SECONDS


@pytest.mark.timeout(PATIENCE_S + 20)
def test_money_neither_grows_nor_shrinks_while_tellers_and_their_broker_are_killed(tmp_path: Path) -> None:
    seed = os.environ.get("GOQUEUE_SEED") or str(os.urandom(4).hex())
    ran = subprocess.run(
        [sys.executable, str(BANK), "--seconds", str(SECONDS), "--seed", seed],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        timeout=PATIENCE_S,
    )
    print(f"GOQUEUE_SEED={seed}\n{ran.stdout}")  # noqa: T201
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "killed the broker" in ran.stdout
    assert "killed teller-" in ran.stdout
    assert "transfers, each carried out once; the total is 8,000." in ran.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def bank() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bank", BANK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def opened(bank: ModuleType) -> object:
    books = bank.Books()
    for account in bank.ACCOUNTS:
        books.add(account, "opening", bank.OPENING)
    return books


def test_the_books_are_right_when_every_transfer_has_its_two_entries(bank: ModuleType) -> None:
    books = opened(bank)
    books.add("account-1", "transfer-0", -5)
    assert (books.on_its_way(), books.total()) == (5, bank.ALL_MONEY)
    books.add("account-2", "transfer-0", 5)
    assert (books.on_its_way(), books.total()) == (0, bank.ALL_MONEY)
    assert books.problems({"transfer-0"}) == []


@pytest.mark.parametrize(
    ("entries", "requested", "problem"),
    [
        ([("transfer-0", -5), ("transfer-0", 5), ("transfer-0", 5)], {"transfer-0"}, "instead of"),
        ([("transfer-0", -5), ("transfer-0", 4)], {"transfer-0"}, "instead of"),
        ([("transfer-0", -5)], {"transfer-0"}, "never arrived"),
        ([("transfer-0", -5), ("transfer-0", 5)] * 2, {"transfer-0"}, "has the entries"),
        ([], {"transfer-0"}, "never carried out"),
        ([("transfer-0", -5), ("transfer-0", 5)], set(), "never asked for"),
    ],
)
def test_the_books_tell_what_is_wrong(
    bank: ModuleType, entries: list[tuple[str, int]], requested: set[str], problem: str
) -> None:
    books = opened(bank)
    for transfer, amount in entries:
        books.add("account-1", transfer, amount)
    assert any(problem in each for each in books.problems(requested))
