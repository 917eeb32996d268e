from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery.key_order import KeyOrder, lane_key

NORMAL = 2
A, B, C = (lane_key(NORMAL, key) for key in (b"a", b"b", b"c"))


def test_a_key_is_busy_until_its_message_is_done() -> None:
    keys = KeyOrder()
    keys.hold(0, A)
    assert keys.is_busy(A) and not keys.is_busy(B)
    keys.park(1, A)
    keys.park(2, A)
    assert not keys.has_ready and keys.parked_count == 2
    keys.release(0, 1)
    assert keys.ready(10, NORMAL) == [1] and keys.is_busy(A)
    keys.take(1)
    assert keys.parked_count == 1 and not keys.has_ready
    keys.release(1, 2)
    keys.take(2)
    keys.release(2, 3)
    assert not keys.is_busy(A) and keys.parked_count == 0


def test_messages_without_a_key_wait_for_nobody() -> None:
    keys = KeyOrder()
    keys.hold(0, b"")
    assert not keys.is_busy(b"")


def test_a_key_is_another_in_another_lane() -> None:
    keys = KeyOrder()
    keys.hold(0, lane_key(0, b"a"))
    keys.park(1, lane_key(0, b"a"))
    assert keys.is_busy(lane_key(0, b"a")) and not keys.is_busy(A)
    keys.make_ready(2, A, NORMAL)
    keys.release(0, 1)
    assert keys.ready(10, 0) == [1] and keys.ready(10, NORMAL) == [2]
    assert [keys.ready_count(lane) for lane in range(5)] == [1, 0, 1, 0, 0]
    keys.take(1)
    assert keys.ready(10, 0) == [] and keys.ready_count(0) == 0 and keys.has_ready
    assert lane_key(0, b"") == b""


def test_what_leaves_the_log_while_it_is_parked_leaves_no_trace() -> None:
    keys = KeyOrder()
    keys.hold(0, A)
    for offset in (1, 2, 3):
        keys.park(offset, A)
    keys.release(0, 3)
    assert keys.ready(10, NORMAL) == [3] and keys.parked_count == 1
    keys.release(0, 10)
    assert not keys.has_ready and keys.parked_count == 0 and not keys.is_busy(A)


@given(st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_each_key_comes_in_order_and_one_at_a_time(published: list[bytes], rng: object) -> None:
    keys, waiting, out = KeyOrder(), deque(enumerate(published)), dict[bytes, int]()
    seen: dict[bytes, list[int]] = {}

    def deliver(offset: int) -> None:
        key = published[offset]
        assert key not in out
        out[key] = offset
        seen.setdefault(key, []).append(offset)

    while waiting or out or keys.has_ready:
        choice = rng.random()  # type: ignore[attr-defined]
        if waiting and choice < 0.5:
            offset, key = waiting.popleft()
            if keys.is_busy(key):
                keys.park(offset, key)
            else:
                keys.hold(offset, key)
                deliver(offset)
        elif keys.has_ready:
            offset = keys.ready(1, NORMAL)[0]
            keys.take(offset)
            deliver(offset)
        elif out:
            key = rng.choice(sorted(out))  # type: ignore[attr-defined]
            offset = out.pop(key)
            keys.release(offset, offset + 1)
    assert keys.parked_count == 0
    for key, offsets in seen.items():
        assert offsets == [place for place, each in enumerate(published) if each == key]
