"""What was told of schemas holds after a power loss at any call, and no wait for the disk is for nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Iterator
from contextlib import suppress

import pytest
from doubles.ledger import Broken
from doubles.schema_scripts import SCRIPTS, Script, run_schema_script
from doubles.wait_sites import wait_sites, without

from goqueue.broker.schema_registry import SchemaRegistry


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
    with without(site), suppress(Broken):
        for seed in range(4):
            for script in SCRIPTS:
                run_schema_script(script, seed)
        return False
    return True


@pytest.mark.parametrize("site", [site for site in wait_sites() if site.startswith("schema_registry.py:")])
def test_every_wait_of_the_registry_is_needed(site: str) -> None:
    assert breaks_without(site), f"{site}: nothing breaks without this wait; test what it protects, or remove it"


@pytest.mark.parametrize("caller", ["register", "find", "record", "version"])
def test_nothing_is_told_before_it_is_on_the_disk_by(caller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = SchemaRegistry.on_disk

    async def nothing() -> None:
        return None

    def on_disk_or_not(registry: SchemaRegistry) -> Awaitable[None]:
        return nothing() if sys._getframe(1).f_code.co_name == caller else on_disk(registry)

    monkeypatch.setattr(SchemaRegistry, "on_disk", on_disk_or_not)
    with pytest.raises(Broken):
        for seed in range(8):
            for script in SCRIPTS[-3:]:
                run_schema_script(script, seed)


def test_the_registry_waits_somewhere() -> None:
    assert any(site.startswith("schema_registry.py:") for site in wait_sites())
