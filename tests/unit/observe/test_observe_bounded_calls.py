from __future__ import annotations

import threading

import pytest

from goqueue.observe.bounded_calls import BoundedCalls


def test_a_call_gives_what_the_work_gives() -> None:
    calls = BoundedCalls("x")
    assert [calls.call(lambda n=n: n, 5) for n in range(100)] == list(range(100))


def test_a_call_raises_what_the_work_raises() -> None:
    def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        BoundedCalls("x").call(fail, 5)


def test_work_that_hangs_is_left_behind_and_nothing_is_begun_before_it_ends() -> None:
    calls, released, begun = BoundedCalls("x"), threading.Event(), []
    with pytest.raises(TimeoutError, match=r"x: no answer within 0.01 s"):
        calls.call(released.wait, 0.01)
    with pytest.raises(TimeoutError, match="still hangs"):
        calls.call(lambda: begun.append(1), 5)
    assert not begun
    hanging = next(thread for thread in threading.enumerate() if thread.name == "x")
    assert hanging.daemon
    released.set()
    hanging.join(60)
    assert calls.call(lambda: "again", 5) == "again"


def test_whoever_waits_is_freed_by_giving_up() -> None:
    calls, begun, released = BoundedCalls("x"), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        released.wait(30)

    def give_up() -> None:
        begun.wait(30)
        calls.give_up()

    helper = threading.Thread(target=give_up)
    helper.start()
    with pytest.raises(TimeoutError, match="given up"):
        calls.call(hang, 30)
    with pytest.raises(TimeoutError, match="still hangs"):
        calls.call(hang, 30)
    released.set()
    helper.join(60)


def test_giving_up_nothing_changes_nothing() -> None:
    calls = BoundedCalls("x")
    calls.give_up()
    assert calls.call(lambda: 1, 5) == 1
