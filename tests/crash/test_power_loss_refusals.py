"""Nothing acknowledged is lost where values are checked, and no wait for the disk is for nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from doubles.ledger import Broken
from doubles.refusal_scripts import SCRIPTS, Script, run_refusal_script
from doubles.wait_sites import without

import disk_sites


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of recoveries report what they find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_what_was_acknowledged_is_in_its_topic_or_with_the_dead_letters_after_a_power_loss_at_any_call_of(
    script: Script,
) -> None:
    assert run_refusal_script(script, seed=0) >= 10


def breaks_without(site: str) -> bool:
    with without(site) as reached, suppress(Broken):
        for seed in range(4):
            for script in SCRIPTS:
                run_refusal_script(script, seed)
        assert site in reached, f"{site}: no script comes here"
        return False
    return True


@pytest.mark.parametrize("site", disk_sites.shown_by("refusals"))
def test_every_wait_for_dead_letters_is_needed(site: str) -> None:
    assert breaks_without(site), f"{site}: nothing breaks without this wait; test what it protects, or remove it"
