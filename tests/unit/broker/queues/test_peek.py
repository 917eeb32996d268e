"""What a group still has to do, and how much a look at that may cost."""

from __future__ import annotations

import pytest
from doubles.group_broker import GROUP, TOPIC, Desk, desk
from doubles.group_ledger import settled
from doubles.loop import on_a_loop

from goqueue.broker.queues import peek
from goqueue.broker.queues.peek import Peek, PeekPage
from goqueue.delivery.settlement_requests import SettlementRequest, Verb
from goqueue.model.errors import InvalidRequest


async def page(at: Desk, **wanted: object) -> PeekPage:
    return await at.groups.peeking.page(GROUP, Peek(**wanted))  # type: ignore[arg-type]


def offsets(found: PeekPage) -> list[int]:
    return [each.message.offset for each in found.messages]


async def every(at: Desk, **wanted: object) -> tuple[list[int], int]:
    """All that there is, and how many pages it took."""
    found: list[int] = []
    pages, after = 0, None
    while pages == 0 or after is not None:
        here = await page(at, after=after, **wanted)
        found += offsets(here)
        pages, after = pages + 1, here.next
        assert pages < 1_000
    return found, pages


@on_a_loop
async def test_a_look_ends_when_it_has_looked_at_enough_and_says_where_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peek, "_READ_AT_ONCE", 10)
    monkeypatch.setattr(peek._Budget, "__init__", lambda self: _set(self, messages=30, reads=100, size_bytes=1 << 20))
    async with desk() as at:
        await at.publish(*(b"%d" % number for number in range(100)))
        got = await at.poll(100)
        # What is wanted lies at the end, and all before it is in flight.
        await at.publish(b"new")
        first = await page(at, state="waiting")
        assert (first.is_complete, first.messages, first.next) == (False, [], f"{TOPIC}/0/30")
        assert await every(at, state="waiting") == ([100], 4)
        assert await every(at) == (list(range(101)), 4)
        await at.settle("ack", got)
        assert (await every(at))[0] == [100]


def _set(budget: object, **values: int) -> None:
    for name, value in values.items():
        setattr(budget, name, value)


@on_a_loop
async def test_what_is_done_is_not_read_again() -> None:
    async with desk() as at:
        await at.publish(*(b"%d" % number for number in range(1_000)))
        got = await at.poll(1_000)
        await at.settle("ack", [each for each in got if each.message.offset not in (3, 4, 900)])
        queue = at.groups.shards.find(GROUP).queues()[0]
        partition = at.broker.topic(TOPIC).partitions[0]
        assert peek._candidates(queue, partition, 0, None, False) == [(3, 5), (900, 901)]
        assert peek._candidates(queue, partition, 4, "in-flight", False) == [(4, 5), (900, 901)]
        assert offsets(await page(at)) == [3, 4, 900]
        assert [each.state for each in (await page(at)).messages] == ["in-flight"] * 3


@on_a_loop
async def test_a_page_is_no_larger_than_asked_for_and_one_message_always_fits() -> None:
    async with desk() as at:
        await at.publish(b"x" * 1_000, b"y" * 1_000, b"z" * 5_000)
        first = await page(at, max_bytes=2_100)
        assert (offsets(first), first.next, first.is_complete) == ([0, 1], f"{TOPIC}/0/2", True)
        assert offsets(await page(at, max_bytes=2_100, after=first.next)) == [2]


@on_a_loop
async def test_messages_that_wait_for_their_key_are_among_those_that_wait() -> None:
    async with desk(join=False) as at:
        await at.join(ordering="key")
        await at.publish(b"1", b"2", b"3", key=b"k")
        [held] = await at.poll()
        assert [(each.message.offset, each.state) for each in (await page(at)).messages] == [
            (0, "in-flight"),
            (1, "waiting"),
            (2, "waiting"),
        ]
        await at.settle("ack", [held])
        assert offsets(await page(at)) == [1, 2]


@on_a_loop
async def test_a_group_that_was_set_back_has_its_work_again() -> None:
    async with desk() as at:
        await at.publish(b"1", b"2", b"3")
        await at.settle("ack", await at.poll())
        assert offsets(await page(at)) == []
        await at.groups.offsets.reset(GROUP, {TOPIC: {0: 1}})
        assert offsets(await page(at)) == [1, 2]


@on_a_loop
async def test_behind_the_end_there_is_nothing() -> None:
    async with desk() as at:
        await at.publish(b"1", b"2", b"3")
        await at.poll(1)
        found = await page(at, after=f"{TOPIC}/0/900")
        assert (found.messages, found.next) == ([], None)
        assert (await page(at, after="zzz/0/0")).messages == [], "topics behind the last"


@on_a_loop
async def test_a_look_takes_nothing_and_changes_nothing() -> None:
    async with desk() as at:
        await at.publish(b"1", b"2", b"3")
        [got] = await at.poll(1)
        await at.groups.settling.settle_receipts([got.receipt], SettlementRequest(Verb.NACK, 3_600_000, "later"))
        await at.poll(1)
        queue = at.groups.shards.find(GROUP).queues()[0]
        before, ends = queue.dump(), [each.journal.log.end_offset for each in at.groups.shards.all]
        for state in (None, *peek.STATES):
            await page(at, state=state)
        assert queue.dump() == before
        assert [each.journal.log.end_offset for each in at.groups.shards.all] == ends


@pytest.mark.parametrize(
    "wanted", [{"limit": 0}, {"limit": 1_001}, {"state": "done"}, {"partition": 0}, {"after": "t-0-1"}, {"after": ""}]
)
def test_what_cannot_be_meant_is_refused(wanted: dict[str, object]) -> None:
    @on_a_loop
    async def run() -> None:
        async with desk() as at:
            with pytest.raises(InvalidRequest):
                await page(at, **wanted)
            await settled(at.broker)

    run()
