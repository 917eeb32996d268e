"""How the growth bench judges curves, and what it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bench.growth import sizes, words
from bench.growth.__main__ import AXES, main
from bench.growth.curve import Axis, Curve, Grown, Point
from bench.growth.page import page, write_pages
from bench.growth.results import Results
from bench.growth.slopes import slope, slopes
from bench.growth.table import rows

_XS = (10, 100, 1_000, 10_000)
_MACHINE = {
    "processor": "a processor",
    "cpus": 2,
    "memory_gib": 8.0,
    "system": "Linux",
    "python": "3.11",
    "disk_fsync_ms": 1.5,
    "load_average_before": 0.1,
}


def _grown(curve: Curve, values: Sequence[float], xs: Sequence[int] = _XS) -> Grown:
    return Grown(curve, [Point(curve.key, x, [value] * 5) for x, value in zip(xs, values, strict=True)])


def _no_points(_xs: Sequence[int]) -> Iterator[Point]:
    raise AssertionError("nothing is measured here")


def _results(flat: Sequence[float], linear: Sequence[float]) -> tuple[Axis, Results]:
    curves = (Curve("flat", "a flat thing", expected=0), Curve("linear", "a linear thing", expected=1, of_x=True))
    axis = Axis("size", "Cost of things", "things", _XS, _XS[:2], curves, _no_points, "Things were counted.")
    points = [
        Point(curve.key, x, [value, value, value])
        for curve, values in zip(curves, (flat, linear), strict=True)
        for x, value in zip(_XS, values, strict=True)
    ]
    return axis, Results("2026-01-31", dict(_MACHINE), {axis.key: points})


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_slope_of_a_power_is_its_exponent(power: float) -> None:
    assert slope(_XS, [3e-6 * x**power for x in _XS]) == pytest.approx(power)


def test_a_slope_of_one_point_or_of_zeros_is_refused() -> None:
    with pytest.raises(ValueError, match="two points"):
        slope([10], [1.0])
    with pytest.raises(ValueError, match="above zero"):
        slope([10, 100], [1.0, 0.0])


def test_the_ends_of_a_curve_have_slopes_of_their_own() -> None:
    found = slopes(_grown(Curve("size", "size", expected=1), [1.0, 1.0, 10.0, 100.0]))
    assert found.first == pytest.approx(0)
    assert found.last == pytest.approx(1)
    assert 0 < found.whole < 1


def test_a_point_is_the_median_of_its_samples() -> None:
    assert Point("publish", 10, [1.0, 900.0, 2.0, 3.0, 1.5]).value == 2.0


@pytest.mark.parametrize(
    ("values", "worse"),
    [
        ([1.0, 1.1, 0.9, 1.1], False),
        ([4.0, 2.0, 1.0, 0.5], False),
        ([1.0, 10.0, 100.0, 1_000.0], True),
        ([1.0, 1.0, 1.0, 2.5], True),
    ],
    ids=["noise", "falls", "linear", "the end rises"],
)
def test_what_should_be_constant_is_worse_when_it_rises(values: Sequence[float], worse: bool) -> None:
    curve = Curve("publish", "publish", expected=0)
    assert slopes(_grown(curve, values)).is_worse_than(curve) is worse


def test_what_may_be_linear_is_worse_when_it_is_square() -> None:
    curve = Curve("publish", "publish", expected=1)
    assert not slopes(_grown(curve, [1.0, 10.0, 100.0, 1_000.0])).is_worse_than(curve)
    assert slopes(_grown(curve, [1.0, 100.0, 10_000.0, 1_000_000.0])).is_worse_than(curve)


def test_what_should_begin_flat_is_worse_when_it_does_not() -> None:
    curve = Curve("read", "read", expected=1, first=0)
    assert not slopes(_grown(curve, [1.0, 1.2, 10.0, 100.0])).is_worse_than(curve)
    assert slopes(_grown(curve, [1.0, 10.0, 20.0, 30.0])).is_worse_than(curve)


def test_results_come_back_from_json() -> None:
    axis, results = _results([1.0, 1.0, 1.0, 1.0], [1.0, 10.0, 100.0, 1_000.0])
    data = json.loads(json.dumps(results.to_json([axis])))
    assert Results.from_json(data) == results
    assert [(curve["curve"], curve["ok"], curve["slopes"]["whole"]) for curve in data["curves"]] == [
        ("flat", True, pytest.approx(0, abs=1e-9)),
        ("linear", True, pytest.approx(1)),
    ]


def test_the_table_names_what_is_worse() -> None:
    axis, results = _results([1e-3, 1e-2, 1e-1, 1.0], [1.0, 1.0, 1.0, 1.0])
    assert rows(results.verdicts([axis])) == [
        ("size", "a flat thing", "≤ 0", "1.00", "1.00", "1.00", "1 ms", "1 s", "WORSE"),
        ("size", "a linear thing", "≤ 1", "0.00", "0.00", "0.00", "1 s", "1 s", "ok"),
    ]


def test_the_page_has_its_pictures_and_its_data(tmp_path: Path) -> None:
    axis, results = _results([1e-3, 1e-3, 1e-3, 1e-3], [1e-6, 1e-5, 1e-4, 1e-3])
    write_pages([axis], results, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "growth-size.png",
        "growth-size.svg",
        "growth.json",
        "growth.md",
    ]
    text = (tmp_path / "growth.md").read_text()
    assert "(growth-size.svg)" in text
    assert "| 1,000 | 1 ms | 100 µs (10 MB/s) |" in text


def test_the_same_results_make_the_same_picture(tmp_path: Path) -> None:
    axis, results = _results([1e-3, 1e-3, 1e-3, 1e-3], [1e-6, 1e-5, 1e-4, 1e-3])
    for name in ("one", "two"):
        write_pages([axis], results, tmp_path / name)
    assert (tmp_path / "one" / "growth-size.svg").read_bytes() == (tmp_path / "two" / "growth-size.svg").read_bytes()


def test_an_axis_that_was_not_measured_is_not_on_the_page() -> None:
    axis, results = _results([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0])
    assert "Cost against backlog" not in page([axis], results)
    assert results.grown(AXES["backlog"]) == []


def test_an_earlier_run_is_drawn_again_and_says_what_was_worse(tmp_path: Path) -> None:
    axis = AXES["size"]
    for name, values, status in (("fine", [1e-6, 1e-6, 1e-5], 0), ("worse", [1e-6, 1e-4, 1e-2], 1)):
        points = [Point("publish", x, [value]) for x, value in zip(axis.xs, values, strict=False)]
        data = Results("2026-01-31", dict(_MACHINE), {axis.key: points}).to_json([axis])
        earlier = tmp_path / f"{name}.json"
        earlier.write_text(json.dumps(data))
        assert main(["--draw", str(earlier), "--into", str(tmp_path / name)]) == status
        assert (tmp_path / name / "growth.md").exists()


def test_a_broker_is_measured_at_every_size() -> None:
    points = list(sizes.AXIS.measure([10, 1_000]))
    assert [(point.curve, point.x) for point in points] == [
        ("publish", 10),
        ("read", 10),
        ("publish", 1_000),
        ("read", 1_000),
    ]
    assert all(len(point.samples) >= 5 and min(point.samples) > 0 for point in points)


@pytest.mark.parametrize(
    ("value", "shown"), [(1.5, "1.5 s"), (0.00123, "1.23 ms"), (4.2e-6, "4.2 µs"), (0.99999, "1 s"), (3e-10, "0.3 ns")]
)
def test_times_are_told_in_their_own_unit(value: float, shown: str) -> None:
    assert words.amount(value, "s") == shown


def test_bytes_and_counts_are_told_in_thousands() -> None:
    assert words.amount(42_300, "bytes") == "42.3 KB"
    assert words.rate(1.5e8) == "150 MB/s"
    assert words.count(10_000_000) == "10,000,000"
    assert words.slope(-0.001) == "0.00"
