"""No promise of storage is broken by a power loss at any call, and no fsync of storage is there for nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from doubles import storage_scripts
from doubles.effort import THOROUGH
from doubles.ledger import Broken
from doubles.storage_scripts import SCRIPTS, run_script
from doubles.storage_workload import run_seed

import disk_sites


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of recoveries report what they find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("hundred", range(8 if THOROUGH else 4))
def test_every_promise_survives_power_losses_at_random_calls(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        run_seed(seed)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_survives_a_power_loss_at_any_call_of(script: Callable[..., object]) -> None:
    run_script(script, seed=0)


def test_the_workloads_reach_every_fsync_of_storage_and_no_other() -> None:
    reached: set[str] = set()
    for seed in range(60):
        reached |= run_seed(seed).sites
    for script in SCRIPTS:
        reached |= run_script(script, seed=0, outcomes=0)
    assert reached == set(disk_sites.shown_by("storage"))


LIKELY = {
    "storage/files/atomic.py": (storage_scripts.open_a_log_whose_folder_is_missing, storage_scripts.compact_twice),
    "storage/log/compaction.py": (storage_scripts.compact_twice,),
    "storage/log/repair.py": (
        storage_scripts.recover_from_damage,
        storage_scripts.recover_from_damage_before_valid_messages,
    ),
    "storage/log/segment.py": (storage_scripts.append_after_the_disk_was_full,),
    "storage/log/swap.py": (storage_scripts.compact_after_one_was_dropped, storage_scripts.compact_twice),
    "storage/log/truncation.py": (
        storage_scripts.cut_what_was_not_synced,
        storage_scripts.cut_whole_segments,
        storage_scripts.cut_what_was_compacted,
    ),
}
"""Where to begin: what does not break there is looked for everywhere else."""
RARE = (118,)
"""Seeds that break what few others do."""


def _attempts(site: str) -> Iterator[Callable[[], object]]:
    likely = LIKELY.get(disk_sites.module_of(site), ())
    yield from (lambda script=script: run_script(script, 0, outcomes=20, ignored=site) for script in likely)
    yield from (lambda seed=seed: run_seed(seed, ignored=site) for seed in (*RARE, *range(40)))
    for seed in range(4):
        yield from (lambda script=script: run_script(script, seed, outcomes=20, ignored=site) for script in SCRIPTS)  # noqa: B023
    yield from (lambda seed=seed: run_seed(seed, ignored=site) for seed in range(40, 300))


@pytest.mark.parametrize("site", disk_sites.shown_by("storage"))
def test_every_fsync_is_needed(site: str) -> None:
    for attempt in _attempts(site):
        try:
            attempt()
        except Broken:
            return
    pytest.fail(f"{site}: nothing breaks without this fsync; test what it protects, or remove it")
