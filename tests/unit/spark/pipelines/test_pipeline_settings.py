"""What can be set on a pipeline."""

from __future__ import annotations

import pytest

from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.settings import Setting, Settings, assignments

DECLARED = [
    Setting("topic", "Which topic.", required=True),
    Setting("rate", "How fast.", "number", minimum=1, maximum=100),
    Setting("share", "Of what.", "ratio", default=0.5, maximum=1),
    Setting("wait", "How long.", "duration", default=1_500, maximum=60_000),
    Setting("room", "How large.", "size", default=1 << 20, maximum=1 << 30),
    Setting("names", "Which ones.", "names", default=()),
    Setting("since", "From when.", "instant"),
    Setting("dry", "Whether to do it.", "flag", default=False),
    Setting("format", "Which kind.", "choice", default="json", choices=("json", "csv")),
]


def test_every_setting_has_its_type_or_its_default() -> None:
    written = {"topic": "a", "rate": "7", "share": "0.25", "wait": "1m", "room": "2MiB", "names": "a, b", "dry": "true"}
    settings = Settings(DECLARED, {**written, "since": "2026-01-31T12:00:00Z", "format": "csv"})
    assert dict(settings) == {
        "topic": "a", "rate": 7, "share": 0.25, "wait": 60_000, "room": 2 << 20, "names": ("a", "b"),
        "since": "2026-01-31T12:00:00Z", "dry": True, "format": "csv",
    }  # fmt: skip
    defaults = Settings(DECLARED, {"topic": "a"})
    assert (defaults["rate"], defaults["wait"], defaults["names"]) == (None, 1_500, ())
    assert [defaults.formatted(name) for name in ("wait", "room", "names", "rate", "dry")] == [
        "1s500ms", "1MiB", "", "", "false",
    ]  # fmt: skip
    assert defaults.given == {"topic"}


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = {"topc": "a", "rate": "101", "since": "yesterday", "names": "a,,b", "format": "xml", "wait": "soon"}
    with pytest.raises(InvalidPipeline) as raised:
        Settings(DECLARED, wrong)
    title, *lines = str(raised.value).split("\n  ")
    assert title == "--set has 7 problems:"
    assert lines[0] == "topc: no such setting; did you mean 'topic'?"
    assert lines[1] == "rate: '101' is out of bounds; allowed: 1 to 100"
    assert "is not an instant; write it like" in lines[2]
    assert lines[3] == "names: 'a,,b' is not names with commas between them"
    assert lines[4] == "format: 'xml' is not one of json, csv"
    assert "is not a duration" in lines[5]
    assert lines[6] == "topic: it must be set (text): Which topic."


def test_an_unknown_setting_is_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidPipeline, match="zzz: no such setting; there are topic, rate"):
        Settings(DECLARED, {"topic": "a", "zzz": "1"})
    with pytest.raises(InvalidPipeline, match="zzz: no such setting; this pipeline has none"):
        Settings([], {"zzz": "1"})


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("text", "text"),
        ("names", "names with commas between them"),
        ("number", "a number, 0 or more"),
        ("duration", "0s or more"),
        ("size", "0 or more"),
        ("flag", "true, false"),
        ("instant", "an instant, like 2026-01-31T12:00:00Z"),
    ],
)
def test_what_is_allowed_is_told(kind: str, allowed: str) -> None:
    assert Setting("x", "", kind).allowed() == allowed  # type: ignore[arg-type]


def test_what_has_no_largest_value_is_refused_without_one() -> None:
    with pytest.raises(InvalidPipeline, match=r"wait: '5ms' is out of bounds; allowed: 100ms or more$"):
        Settings([Setting("wait", "How long.", "duration", minimum=100)], {"wait": "5ms"})


def test_a_setting_of_spark_is_told_with_one_of_its_own() -> None:
    with pytest.raises(InvalidPipeline, match=r"'x' is not NAME=VALUE, such as spark\.executor\.memory=2g") as raised:
        assignments(["x"], "--conf")
    assert raised.value.remedy == ""


def test_assignments_are_pairs_and_given_once() -> None:
    assert assignments(["a=1", " b =x=y", "a=1"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(InvalidPipeline) as raised:
        assignments(["a", "b=1", "b=2"])
    assert "'a' is not NAME=VALUE, such as topic=orders" in str(raised.value)
    assert "b is given twice, as '1' and as '2'" in str(raised.value)
