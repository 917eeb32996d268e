"""No promise of storage is broken by a power loss at any call, and no fsync in the source is there for nothing."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doubles.ledger import Broken
from doubles.storage_scripts import SCRIPTS, run_script
from doubles.storage_workload import run_seed

import goqueue

SOURCE = Path(goqueue.__file__).parent
SYNC = re.compile(r"\.(sync|sync_dir|sync_filesystem)\b")


def sync_sites() -> list[str]:
    """Every line of storage that asks for an fsync, the port itself aside."""
    return [
        f"storage/{path.name}:{number}"
        for path in sorted((SOURCE / "storage").glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if SYNC.search(line)
    ]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of recoveries report what they find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("hundred", range(8))
def test_every_promise_survives_power_losses_at_random_calls(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        run_seed(seed)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_survives_a_power_loss_at_any_call_of(script: Callable[..., object]) -> None:
    run_script(script, seed=0)


def test_the_workloads_reach_every_fsync_in_the_source() -> None:
    reached: set[str] = set()
    for seed in range(60):
        reached |= run_seed(seed).sites
    for script in SCRIPTS:
        reached |= run_script(script, seed=0, outcomes=0)
    assert reached == set(sync_sites())


def _attempts(site: str) -> Iterator[Callable[[], object]]:
    yield from (lambda seed=seed: run_seed(seed, ignored=site) for seed in (106, *range(40)))  # The first one is rare.
    for seed in range(4):
        yield from (lambda script=script: run_script(script, seed, outcomes=20, ignored=site) for script in SCRIPTS)  # noqa: B023
    yield from (lambda seed=seed: run_seed(seed, ignored=site) for seed in range(40, 300))


@pytest.mark.parametrize("site", sync_sites())
def test_every_fsync_is_needed(site: str) -> None:
    for attempt in _attempts(site):
        try:
            attempt()
        except Broken:
            return
    pytest.fail(f"{site}: nothing breaks without this fsync; test what it protects, or remove it")
