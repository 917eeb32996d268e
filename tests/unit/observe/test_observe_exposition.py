from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from goqueue.observe.exposition import Family, Figures, labelled, render, wants_openmetrics
from goqueue.observe.histogram import Histogram

HOSTILE = ['a"b', "back\\slash", "line\nbreak", 'x"} 1\nevil_total 9', "\\n", "ünï{}=,", ""]
COUNTED = Family("app_things_total", "counter", "Things.", ("name",))
SIZE = Family("app_size_bytes", "gauge", "A size.")
ABOUT = Family("app_build_info", "info", "About it.", ("version",))
TIMES = Family("app_wait_seconds", "histogram", "Times.", ("group",))
NOTHING = Family("app_nothing_total", "counter", "Never counted.")


def text(families: list[Family], figures: Figures, *, openmetrics: bool) -> str:
    return "".join(render(families, figures, openmetrics=openmetrics))


def test_openmetrics_is_what_a_strict_parser_takes() -> None:
    figures = Figures()
    figures.add(COUNTED.name, 3, labelled(COUNTED.labels, ("one",)))
    figures.add(COUNTED.name, 2**60, labelled(COUNTED.labels, ("two",)))
    figures.add(SIZE.name, 0.5)
    figures.add(ABOUT.name, 1, labelled(ABOUT.labels, ("1.0",)))
    histogram = Histogram((0.5, 1.0))
    histogram.observe(0.2, 4)
    histogram.observe(7.0)
    figures.add_histogram(TIMES.name, histogram, labelled(TIMES.labels, ("g",)))
    figures.add_histogram(TIMES.name, Histogram((0.5, 1.0)), labelled(TIMES.labels, ("h",)))
    written = text([COUNTED, SIZE, ABOUT, TIMES, NOTHING], figures, openmetrics=True)
    assert written.endswith("\n# EOF\n")

    found = {family.name: family for family in openmetrics_families(written)}
    assert [(each.type, each.unit) for each in found.values()] == [
        ("counter", ""),
        ("gauge", "bytes"),
        ("info", ""),
        ("histogram", "seconds"),
        ("counter", ""),
    ]
    assert list(found) == ["app_things", "app_size_bytes", "app_build", "app_wait_seconds", "app_nothing"]
    assert found["app_things"].documentation == "Things."
    assert [(each.name, each.labels, each.value) for each in found["app_things"].samples] == [
        ("app_things_total", {"name": "one"}, 3),
        ("app_things_total", {"name": "two"}, 2**60),
    ]
    assert {
        (each.name, each.labels.get("le")): each.value
        for each in found["app_wait_seconds"].samples
        if each.labels["group"] == "g"
    } == {
        ("app_wait_seconds_bucket", "0.5"): 4,
        ("app_wait_seconds_bucket", "1.0"): 4,
        ("app_wait_seconds_bucket", "+Inf"): 5,
        ("app_wait_seconds_count", None): 5,
        ("app_wait_seconds_sum", None): 7.8,
    }


def test_the_older_format_has_the_same_samples() -> None:
    figures = Figures()
    figures.add(COUNTED.name, 3, labelled(COUNTED.labels, ("one",)))
    figures.add(ABOUT.name, 1, labelled(ABOUT.labels, ("1.0",)))
    figures.add_histogram(TIMES.name, Histogram((0.5,)))
    families = [COUNTED, ABOUT, TIMES]
    plain = text(families, figures, openmetrics=False)
    assert "# EOF" not in plain
    assert "# UNIT" not in plain
    assert "# TYPE app_things_total counter\n" in plain
    assert "# TYPE app_build_info gauge\n" in plain

    def samples(found: object) -> list[object]:
        return [sample for family in found for sample in family.samples]  # type: ignore[attr-defined]

    assert samples(plain_families(plain)) == samples(openmetrics_families(text(families, figures, openmetrics=True)))


@pytest.mark.parametrize("openmetrics", [True, False])
def test_any_label_value_comes_back_as_it_was(openmetrics: bool) -> None:
    figures = Figures()
    for value in HOSTILE:
        figures.add(COUNTED.name, 1, labelled(COUNTED.labels, (value,)))
    written = text([COUNTED], figures, openmetrics=openmetrics)
    families = list((openmetrics_families if openmetrics else plain_families)(written))
    assert len(families) == 1
    assert [sample.labels["name"] for sample in families[0].samples] == HOSTILE


def test_a_long_family_is_written_in_pieces() -> None:
    figures = Figures()
    for number in range(1_234):
        figures.add(COUNTED.name, number, labelled(COUNTED.labels, (number,)))
    pieces = list(render([COUNTED], figures, openmetrics=True))
    assert max(piece.count("\n") for piece in pieces) <= 500
    family = next(iter(openmetrics_families("".join(pieces))))
    assert [sample.value for sample in family.samples] == list(range(1_234))


def test_a_histogram_that_counts_on_does_not_change_what_is_written() -> None:
    figures, histogram = Figures(), Histogram((1.0,))
    figures.add_histogram(TIMES.name, histogram)
    histogram.observe(0.5)
    assert "app_wait_seconds_count 0\n" in text([TIMES], figures, openmetrics=True)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", True),
        ("text/plain, Application/OpenMetrics-Text", True),
        ("application/openmetrics-text; q=0", False),
        ("text/plain", False),
        ("*/*", False),
        ("", False),
        (";;,,q=0", False),
    ],
)
def test_openmetrics_is_for_those_who_ask_for_it(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted
