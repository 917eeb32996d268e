"""What was told of delayed messages holds after a power loss at any call, and no wait for the disk is for nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest
from doubles import delay_scripts
from doubles.delay_scripts import SCRIPTS, Script, do_as_chance_says, run_delay_script
from doubles.effort import THOROUGH
from doubles.ledger import Broken
from doubles.wait_sites import without

import disk_sites


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of recoveries report what they find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_about_delayed_messages_survives_a_power_loss_at_any_call_of(script: Script) -> None:
    # Every call is looked at with ``make crash``; in between, every other one.
    every = 1 if THOROUGH else 2
    assert run_delay_script(script, seed=0, every=every) >= 40 // every


@pytest.mark.parametrize("seed", [1, 174])
def test_every_promise_about_delayed_messages_survives_whatever_came_before(seed: int) -> None:
    run_delay_script(do_as_chance_says, seed)


@cache
def scripts_that_reach() -> dict[str, list[Script]]:
    found: dict[str, list[Script]] = {}
    for script in SCRIPTS:
        with without("") as reached:
            run_delay_script(script, seed=0, outcomes=0)
        for site in reached:
            found.setdefault(site, []).append(script)
    return found


LIKELY: dict[str, Script] = {"broker/delays/firing.py": delay_scripts.become_visible}
"""Where to begin: what does not break there is looked for everywhere else."""


def breaks_without(site: str) -> bool:
    reaching = scripts_that_reach()[site]
    likely = LIKELY.get(disk_sites.module_of(site))
    with without(site), suppress(Broken):
        if likely in reaching:
            run_delay_script(likely, seed=0)
        for seed in range(4):
            for script in reaching:
                run_delay_script(script, seed)
        return False
    return True


@pytest.mark.parametrize("site", disk_sites.shown_by("delays"))
def test_every_wait_for_an_acknowledgement_is_needed(site: str) -> None:
    assert site in scripts_that_reach(), f"{site}: no script comes here"
    assert breaks_without(site), f"{site}: nothing breaks without this wait; test what it protects, or remove it"
