"""The data of a comparison: what goes to the file comes back, and is small."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from peer_results import piece, results

from bench.peers.results import SHARES, Piece, Results
from bench.peers.summary import P50, RATE, Asked, left_to_client, runs, standing, standings
from bench.peers.work import Durability, Work


def there_and_back(found: Results) -> Results:
    return Results.from_json(json.loads(json.dumps(found.to_json())))


def test_results_come_back_from_json_as_they_were() -> None:
    found = results()
    assert there_and_back(found) == found
    assert there_and_back(found.to_reduced()) == found.to_reduced()


def test_what_is_reduced_is_small_and_says_the_same() -> None:
    chance = random.Random(3)
    waits = [chance.lognormvariate(0, 1) for _ in range(20_000)]
    whole = replace(piece("goqueue", Durability.FSYNC, Work.LATENCY, 100, 0, 1_000), waits_ms=waits)
    reduced = whole.to_reduced()
    assert len(reduced.waits_ms) == len(SHARES) < 400
    assert reduced.waits_ms == sorted(reduced.waits_ms)
    for share in (0.0, 0.5, 0.9, 0.99, 0.999, 1.0):
        assert reduced.wait_ms(share) == pytest.approx(whole.wait_ms(share), rel=0.001)
    assert reduced.to_reduced() == reduced


def test_a_file_with_other_quantiles_is_refused() -> None:
    data = results().to_json() | {"shares": [0.0, 0.5, 1.0]}
    with pytest.raises(ValueError, match="measure again"):
        Results.from_json(data)


def test_the_median_and_half_of_the_range_are_of_the_repetitions() -> None:
    found = runs(results(), "goqueue", Asked(Durability.FSYNC, Work.PUBLISH, 100), RATE)
    assert found is not None
    assert found.median == 200_000
    assert found.half_range == pytest.approx(30_000)
    assert runs(results(), "swift", Asked(Durability.FSYNC, Work.PUBLISH, 100), RATE) is None


def test_goqueue_is_compared_with_the_best_of_the_others_and_only_within_one_durability() -> None:
    ahead = standing(results(), Asked(Durability.FSYNC, Work.PUBLISH, 100), RATE)
    behind = standing(results(), Asked(Durability.PAGE_CACHE, Work.PUBLISH, 100), RATE)
    assert ahead is not None
    assert behind is not None
    assert (ahead.best_peer.key, ahead.ratio) == ("slow", pytest.approx(2.0))
    assert (behind.best_peer.key, behind.ratio) == ("swift", pytest.approx(0.5))


def test_of_waits_less_is_better() -> None:
    behind = standing(results(), Asked(Durability.PAGE_CACHE, Work.SINGLE, 100), P50)
    assert behind is not None
    assert (behind.best_peer.key, behind.ratio) == ("swift", pytest.approx(0.5))


def test_nothing_is_compared_without_a_peer() -> None:
    alone = replace(results(), pieces=[each for each in results().pieces if each.system == "goqueue"])
    assert standings(alone) == []


def test_a_delayed_message_that_came_early_makes_no_infinite_ratio() -> None:
    def early(each: Piece) -> Piece:
        hasty = each.system == "slow" and each.work is Work.DELAY
        return replace(each, waits_ms=[-5.0] * 3) if hasty else each

    found = replace(results(), pieces=[early(each) for each in results().pieces])
    compared = standing(found, Asked(Durability.FSYNC, Work.DELAY, 100), P50)
    assert compared is not None
    assert 0 < compared.ratio < 1


def test_what_the_server_did_not_use_is_left_to_the_client() -> None:
    # 3 of the 4 seconds that two processors have in 2.
    assert left_to_client(results(), "goqueue", Asked(Durability.FSYNC, Work.PUBLISH, 100)) == pytest.approx(0.25)
