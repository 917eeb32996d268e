"""Errors that differ only in what they are about are one kind."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.pipelines.analysis.error_kinds import MAX_KIND_CHARS, NO_ERROR, kind_of
from goqueue.spark.pipelines.definitions.settings import Settings
from goqueue.spark.pipelines.dlq_triage import PIPELINE, plan


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("no customer 17", "no customer 18", "no customer <n>"),
        ("paid -1,250.75 EUR", "paid 3 EUR", "paid <n> EUR"),
        ("order-12 is gone", "order-7 is gone", "order-<n> is gone"),
        ('no field "total"', 'no field "sum of all"', "no field <text>"),
        ("can't read 'a b'", "can't read 'c'", "can't read <text>"),
        (
            "id 7f9c24e8-3b12-4a8f-9e51-d2f60a7c1b44 unknown",
            "id 00000000-0000-4000-8000-000000000000 unknown",
            "id <id> unknown",
        ),
        ("at 0x7ffe12", "at 0xDEAD", "at <hex>"),
        ("digest 9f86d081884c7d65 differs", "digest a3f5b1c2d4e6f708 differs", "digest <hex> differs"),
        ("since 2026-01-31T12:00:00Z", "since 2025-12-01 08:15:30.25+02:00", "since <time>"),
        ("10.0.0.1:5432 refused", "192.168.7.20:80 refused", "<address> refused"),
        ("line 1\n  of 2", "line 3 of\t4", "line <n> of <n>"),
    ],
)
def test_like_errors_are_one_kind(one: str, other: str, kind: str) -> None:
    assert kind_of(one) == kind_of(other) == kind


def test_errors_that_say_something_else_stay_apart() -> None:
    assert len({kind_of(each) for each in ("no customer 17", "no order 17", "customer 17", "deadbeef cafe", "")}) == 5


def test_an_error_without_a_text_has_a_name_and_a_long_one_an_end() -> None:
    assert kind_of(" \n") == NO_ERROR
    assert len(kind_of("x" * 1_000)) == MAX_KIND_CHARS


def test_settings_that_are_about_redriving_need_one() -> None:
    with pytest.raises(InvalidRequest, match=r"rate.*redrive="):
        plan(Settings(PIPELINE.settings, {"topic": "orders", "rate": "10"}))
    told = plan(Settings(PIPELINE.settings, {"topic": "orders", "redrive": "all", "rate": "10", "dry_run": "true"}))
    assert told["redrive"] == "all would be sent back, at most 10 a second"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topic": "bad/name!"}, r"topic: .*'bad/name!' is not allowed"),
        ({"group": "bad name"}, r"group: .*'bad name' is not allowed"),
        ({"since": "2026-01-31T13:00:00Z", "until": "2026-01-31T12:00:00Z"}, r"until: .* nothing lies between"),
        ({"redrive": "all", "delay": "50000d"}, r"delay: .*36500d"),
    ],
)
def test_what_cannot_run_is_not_planned(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        plan(Settings(PIPELINE.settings, {"topic": "orders", **given}))


def test_a_plan_speaks_of_one_example() -> None:
    assert plan(Settings(PIPELINE.settings, {"topic": "orders", "examples": 1}))["result"].endswith("1 example of each")
