"""A transaction is there whole or not at all after a power loss, and no wait for the disk is for nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from doubles import transaction_scripts
from doubles.effort import THOROUGH
from doubles.ledger import Broken
from doubles.transaction_scripts import SCRIPTS, Script, run_transaction_script
from doubles.wait_sites import without

import disk_sites


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of recoveries report what they find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_transaction_is_whole_or_not_there_and_what_was_told_holds_after_a_power_loss_at_any_call_of(
    script: Script,
) -> None:
    # Of calls that follow each other one is mostly enough: it changes what the others do not.
    assert run_transaction_script(script, seed=0, every=1 if THOROUGH else 2) >= 10


LIKELY = (transaction_scripts.known_by_an_id, transaction_scripts.tasks_of_a_job, transaction_scripts.take_over)
"""Where to begin: what does not break there is looked for everywhere else."""


def breaks_without(site: str) -> bool:
    with without(site) as reached, suppress(Broken):
        for seed in range(3):
            for script in LIKELY:
                run_transaction_script(script, seed, every=2)
        # Mostly a look at every other call shows it.
        for every in (2, 1):
            for script in SCRIPTS:
                for seed in range(3):
                    run_transaction_script(script, seed, every=every)
        assert site in reached, f"{site}: no script comes here"
        return False
    return True


@pytest.mark.parametrize("site", disk_sites.shown_by("transactions"))
def test_every_wait_of_a_transaction_is_needed(site: str) -> None:
    assert breaks_without(site), f"{site}: nothing breaks without this wait; test what it protects, or remove it"
