"""What was told of schemas holds after a power loss at any call, and no wait for the disk is for nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from doubles.ledger import Broken
from doubles.schema_scripts import SCRIPTS, Script, run_schema_script
from doubles.wait_sites import without

import disk_sites


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Many recoveries report what they find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_every_promise_about_schemas_survives_a_power_loss_at_any_call_of(script: Script) -> None:
    assert run_schema_script(script, seed=0, outcomes=2) >= 20


def breaks_without(site: str) -> bool:
    with without(site) as reached, suppress(Broken):
        for seed in range(8):
            for script in SCRIPTS:
                run_schema_script(script, seed)
        assert site in reached, f"{site}: no script comes here"
        return False
    return True


@pytest.mark.parametrize("site", disk_sites.shown_by("schemas"))
def test_every_wait_of_the_registry_is_needed(site: str) -> None:
    assert breaks_without(site), f"{site}: nothing breaks without this wait; test what it protects, or remove it"
