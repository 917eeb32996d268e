"""The grammar of ``--where``, and what a filter lets pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.cli.commands.consume.message_filter import BadCondition, Filter, parse_condition
from goqueue.client.consumer.reader import Record

ORDER = {
    "total": 12.5,
    "count": 3,
    "id": "17",
    "paid": True,
    "note": None,
    "customer": {"city": "Oslo", "first name": "Ada"},
    "items": [{"sku": "a-1"}, {"sku": "b-2", "tags": ["new", "red", 7]}],
}


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("total > 10", True),
        ("total>12.5", False),
        ("total >= 12.5", True),
        ("total < 20", True),
        ("total <= 12", False),
        ("count == 3", True),
        ("count != 3", False),
        ("id == 17", True),
        ('id == "17"', True),
        ('count == "3"', False),
        ("id < 18", False),
        ("id > 2", False),
        ('id > "16"', True),
        ('total > "1"', False),
        ("customer.city == Oslo", True),
        ("customer.city == New York", False),
        ("customer.city ~ sl", True),
        ("customer.city >= Oslo", True),
        ("customer.city > 5", False),
        ('customer."first name" == Ada', True),
        ("items[0].sku exists", True),
        ("items[-1].sku == b-2", True),
        ("items[2].sku exists", False),
        ("items[1].tags ~ red", True),
        ("items[1].tags ~ 7", True),
        ("items[1].tags ~ blue", False),
        ("paid == true", True),
        ("paid == 1", False),
        ("note == null", True),
        ("note exists", True),
        ("nothing exists", False),
        ("nothing != 3", False),
        ('customer == {"city": "Oslo"}', False),
        ("total ~ 12", False),
        ("paid > 0", False),
    ],
)
def test_conditions(condition: str, fits: bool) -> None:
    assert parse_condition(condition).matches(ORDER) is fits


def test_the_whole_value_can_be_asked_for() -> None:
    assert parse_condition("$ > 5").matches(6)
    assert parse_condition("$[1] == b").matches(["a", "b"])
    assert parse_condition("$.a == 1").matches({"a": 1})


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("", "no path"),
        ("> 10", "no path"),
        ("a. == 1", "no path|one of =="),
        ("total", "one of == != < <= > >= ~ exists"),
        ("total is 10", "'is 10'"),
        ("total >", "no value behind >"),
        ("total exists 5", "nothing to write"),
        ("items[x] == 1", "one of =="),
        ("a" * 1_001, "at most 1000"),
    ],
)
def test_what_is_no_condition_is_told(condition: str, why: str) -> None:
    with pytest.raises(BadCondition, match=why):
        parse_condition(condition)


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        condition = parse_condition(text)
    except BadCondition:
        return
    assert condition.matches(ORDER) in (True, False)


def record(value: bytes | None = b"{}", key: bytes | None = b"ada", **more: Any) -> Record:
    return Record("t", 0, 0, 0, key, value, more.get("headers", ()), more.get("priority", 2))


def test_a_filter_wants_all_of_it() -> None:
    wanted = Filter(
        frozenset([b"ada", b"eve"]),
        headers=[("shop", b"north"), ("trace", None)],
        priority=1,
        text=b"tot",
        conditions=[parse_condition("total > 10")],
    )
    good = {"headers": (("shop", b"north"), ("trace", b"")), "priority": 1}
    assert wanted.matches(record(b'{"total": 11}', **good))
    assert not wanted.matches(record(b'{"total": 9}', **good))
    assert not wanted.matches(record(b'{"total": 11}', b"bob", **good))
    assert not wanted.matches(record(b'{"total": 11}', None, **good))
    assert not wanted.matches(record(b'{"total": 11}', **good | {"priority": 2}))
    assert not wanted.matches(record(b'{"total": 11}', **good | {"headers": (("shop", b"north"),)}))
    assert not wanted.matches(record(b"total 11", **good))
    assert not wanted.matches(record(None, **good))
    assert Filter(key_prefix=b"ad").matches(record()) and not Filter(key_prefix=b"ad").matches(record(key=None))
