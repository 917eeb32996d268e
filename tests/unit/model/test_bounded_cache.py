"""A cache of a limited size."""

from __future__ import annotations

from goqueue.model.bounded_cache import BoundedCache


def filled(*keys: str, max_size: int = 3) -> BoundedCache[str, str]:
    cache: BoundedCache[str, str] = BoundedCache(max_size)
    for key in keys:
        cache.put(key, key.upper())
    return cache


def test_the_least_recently_used_is_evicted() -> None:
    cache = filled("a", "b", "c")
    assert cache.get("a") == "A"
    cache.put("d", "D")
    assert list(cache) == ["c", "a", "d"]


def test_peeking_is_no_use() -> None:
    cache = filled("a", "b", "c")
    assert cache.peek("a") == "A"
    cache.put("d", "D")
    assert list(cache) == ["b", "c", "d"]


def test_sizes_are_added_up_and_what_is_replaced_or_dropped_counts_no_more() -> None:
    cache = filled()
    cache.put("a", "A", 2)
    cache.put("a", "B", 1)
    cache.put("b", "B", 2)
    assert (cache.size, len(cache)) == (3, 2)
    cache.drop("b")
    cache.drop("nothing")
    assert (cache.size, list(cache)) == (1, ["a"])


def test_a_value_larger_than_the_cache_is_kept_alone() -> None:
    cache = filled("a", "b")
    cache.put("c", "C", 10)
    assert (list(cache), cache.size) == (["c"], 10)
