"""What a consumer was told holds after a power loss at any call, and no wait for the disk is there for nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import cache

import pytest
from doubles import group_scripts
from doubles.effort import THOROUGH
from doubles.group_scripts import SCRIPTS, Stage, do_as_chance_says, run_clamping, run_group_script
from doubles.ledger import Broken
from doubles.wait_sites import without

import disk_sites
from goqueue.model.errors import StorageFailed

Script = Callable[[Stage], Awaitable[None]]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of recoveries report what they find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_to_a_consumer_survives_a_power_loss_at_any_call_of(script: Script) -> None:
    # Every call is looked at; after each, the disk may be left in one way or, with more time, in two.
    outcomes = 2 if THOROUGH else 1
    assert run_group_script(script, seed=0, outcomes=outcomes) > 50 * outcomes


@pytest.mark.parametrize("seed", range(1, 9 if THOROUGH else 5))
def test_every_promise_to_a_consumer_survives_whatever_came_before(seed: int) -> None:
    run_group_script(do_as_chance_says, seed)


def test_rule_2_a_group_is_never_ahead_of_a_log_that_a_power_loss_cut() -> None:
    for seed in range(40):
        run_clamping(seed)


@cache
def scripts_that_reach() -> dict[str, list[Script]]:
    found: dict[str, list[Script]] = {}
    for script in SCRIPTS:
        with without("") as reached:
            run_group_script(script, seed=0, outcomes=0)
        for site in reached:
            found.setdefault(site, []).append(script)
    return found


LIKELY: dict[str, tuple[Script, ...]] = {
    "broker/runtime/journal.py": (group_scripts.write_down_what_is_not_durable_yet,),
    "broker/dead_letters/dead_letter_mover.py": (
        group_scripts.let_the_time_of_messages_run_out,
        group_scripts.give_up_messages_while_the_disk_of_the_dead_letters_fails,
    ),
}
"""Where to begin: what does not break there is looked for everywhere else."""


def breaks_without(site: str) -> bool:
    reaching = scripts_that_reach()[site]
    likely = [script for script in LIKELY.get(disk_sites.module_of(site), ()) if script in reaching]
    with without(site), suppress(Broken, StorageFailed):
        for seed in range(12):
            run_clamping(seed)
        for seed in range(2):
            for script in likely:
                run_group_script(script, seed)
        for seed in range(8):
            for script in reaching:
                run_group_script(script, seed)
        return False
    return True


@pytest.mark.parametrize("site", disk_sites.shown_by("groups"))
def test_every_wait_for_the_disk_is_needed(site: str) -> None:
    assert site in scripts_that_reach(), f"{site}: no script comes here"
    assert breaks_without(site), f"{site}: nothing breaks without this wait; test what it protects, or remove it"
