"""How a setting is declared, parsed and shown."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.config import Config
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import FieldSpec, choice, did_you_mean, duration_ms, parse_fields, specs

DURATION = FieldSpec("", "ms", minimum=10, maximum=60_000)
SIZE = FieldSpec("", "bytes", minimum=1, maximum=1 << 40, unlimited=True)
COUNT = FieldSpec("", "count", minimum=0, maximum=100)
RATIO = FieldSpec("", "ratio", minimum=0.01, maximum=1.0)
TEXT = FieldSpec("", "text", minimum=1, maximum=5)
CHOICE = FieldSpec("", "choice", choices=("a", "b"))
FLAG = FieldSpec("", "flag")
ALL = (DURATION, SIZE, COUNT, RATIO, TEXT, CHOICE, FLAG)
ENORMOUS = (16**20_000, "9" * 10_000, "x" * 10_000, [["x" * 1_000] * 1_000], {"a": "b" * 9_999})


@dataclass(frozen=True)
class Example:
    wait_ms: int = duration_ms(100, (10, 1_000), "How long.")
    mode: str = choice("a", ("a", "b"), "Which.")


@pytest.mark.parametrize(
    ("spec", "raw", "value"),
    [
        (DURATION, 250, 250),
        (DURATION, "250", 250),
        (DURATION, "1s", 1_000),
        (DURATION, 20.0, 20),
        (SIZE, "1MiB", 1 << 20),
        (SIZE, "unlimited", None),
        (SIZE, None, None),
        (COUNT, "7", 7),
        (RATIO, "0.5", 0.5),
        (RATIO, 1, 1),
        (TEXT, "abc", "abc"),
        (CHOICE, "b", "b"),
        (FLAG, True, True),
        (FLAG, "FALSE", False),
    ],
)
def test_a_good_value_is_parsed(spec: FieldSpec, raw: object, value: object) -> None:
    parsed = spec.parse(raw)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("spec", "raw", "said"),
    [
        (DURATION, "soon", "10ms to 1m"),
        (DURATION, 9, "10ms to 1m"),
        (DURATION, "2m", "10ms to 1m"),
        (DURATION, None, "10ms to 1m"),
        (DURATION, "unlimited", "10ms to 1m"),
        (SIZE, "big", "1 to 1TiB, or unlimited"),
        (SIZE, "-1", "1 to 1TiB, or unlimited"),
        (COUNT, 1.5, "not a whole number; allowed: 0 to 100"),
        (COUNT, True, "not a number; allowed: 0 to 100"),
        (COUNT, float("nan"), "0 to 100"),
        (COUNT, float("inf"), "0 to 100"),
        (COUNT, "7x", "not a number; allowed: 0 to 100"),
        (COUNT, [1], "not a number; allowed: 0 to 100"),
        (RATIO, "nan", "0.01 to 1.0"),
        (RATIO, 2, "0.01 to 1.0"),
        (TEXT, "", "0 characters; allowed: 1 to 5"),
        (TEXT, "abcdef", "6 characters; allowed: 1 to 5"),
        (TEXT, "a\0b", "cannot be printed"),
        (TEXT, 5, "not a text"),
        (CHOICE, "c", "not one of a, b"),
        (CHOICE, 1, "not a text; allowed: a, b"),
        (FLAG, "yes", "not true or false"),
        (FLAG, 1, "not true or false"),
    ],
)
def test_a_bad_value_is_refused_saying_what_would_be_right(spec: FieldSpec, raw: object, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        spec.parse(raw)
    assert said in str(caught.value)


@pytest.mark.parametrize("raw", ENORMOUS, ids=["int", "digits", "text", "list", "mapping"])
@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.unit)
def test_an_enormous_value_is_refused_with_a_short_message(spec: FieldSpec, raw: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        spec.parse(raw)
    assert len(str(caught.value)) < 300


@given(st.sampled_from(ALL), st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.binary()))
def test_nothing_a_user_writes_makes_parsing_fail_otherwise(spec: FieldSpec, raw: object) -> None:
    try:
        value = spec.parse(raw)
    except InvalidRequest as error:
        assert str(error).isprintable()
    else:
        assert spec.parse(spec.format(value)) == value


def test_every_default_is_within_its_own_bounds_and_survives_being_written() -> None:
    config = Config()
    for section in ("storage", "topic", "http", "limits", "log", "trace", "metrics", "schemas"):
        values = getattr(config, section)
        for name, spec in specs(type(values)).items():
            default = getattr(values, name)
            assert spec.parse(default) == default, name
            assert spec.parse(spec.format(default)) == default, name


def test_every_setting_says_what_it_means_in_a_sentence() -> None:
    for section in ("storage", "topic", "http", "limits", "log", "trace", "metrics", "schemas"):
        for name, spec in specs(type(getattr(Config(), section))).items():
            assert spec.doc.endswith("."), name
            assert spec.bounds(), name


@pytest.mark.parametrize(
    ("wrong", "known", "meant"),
    [
        ("odrers", ["orders", "copied"], "orders"),
        ("order", ["orders", "borders"], "orders"),
        ("retention", ["retention_ms", "partitions"], "retention_ms"),
        ("nope", ["copied", "one", "payments"], ""),
        ("kye", ["value", "key"], "key"),
        ("payments", ["orders", "parcels"], ""),
    ],
)
def test_only_a_name_that_is_nearly_right_is_suggested(wrong: str, known: list[str], meant: str) -> None:
    assert did_you_mean(wrong, known) == (f"; did you mean {meant!r}?" if meant else "")


def test_every_problem_of_every_field_is_returned_beside_the_good_values() -> None:
    values, problems = parse_fields(Example, {"wait_ms": "1h", "mode": "b", "mod": 1, "a\nb": 2})
    assert values == {"mode": "b"}
    assert problems == [
        "wait_ms: '1h' is out of bounds; allowed: 10ms to 1s",
        "mod: no such setting; did you mean 'mode'?",
        "'a\\nb': no such setting; there are wait_ms, mode",
    ]
