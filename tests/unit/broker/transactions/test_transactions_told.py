"""What the log and errors tell operators of transactions."""

from __future__ import annotations

import logging

import pytest
from doubles.async_tests import until
from doubles.loop import on_a_loop
from doubles.transaction_bench import OTHER, Bench, bench

from goqueue.broker.transactions.open_transactions import AbortCause, AbortReason
from goqueue.model.errors import InvalidRequest, ProducerFenced, TransactionAborted
from goqueue.model.logging import LogEvent

BROKER = "goqueue.broker"
Line = tuple[str, str, dict[str, object]]


def told(caplog: pytest.LogCaptureFixture) -> list[Line]:
    """The lines about transactions since the last call."""
    lines = [
        (record.levelname, record.msg.event, record.msg.fields)
        for record in caplog.records
        if record.name.startswith(f"{BROKER}.transaction") and isinstance(record.msg, LogEvent)
    ]
    caplog.clear()
    return lines


def aborted(level: str, transaction_id: str, name: str, reason: str, state: str = "ongoing") -> Line:
    fields = {"transaction": transaction_id, "transactional_id": name, "state": state, "reason": reason}
    return level, "a transaction was aborted", fields


async def written(it: Bench, name: str) -> str:
    transaction = await it.begin(name)
    await it.publish(transaction, b"v", topic=OTHER)
    return transaction.transaction_id


@on_a_loop
async def test_every_abort_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, BROKER):
        async with bench() as it:
            asked = await written(it, "a")
            await it.transactions.abort(asked)
            assert told(caplog) == [aborted("DEBUG", asked, "a", "its producer asked for it")]

            hung = await written(it, "b")
            await it.transactions.abort(hung, AbortReason(AbortCause.OPERATOR, "it hangs"))
            assert told(caplog) == [aborted("INFO", hung, "b", "an operator asked for it: it hangs")]

            left = await written(it, "c")
            await it.transactions.init("c")
            assert told(caplog) == [aborted("INFO", left, "c", "its producer's id was taken over by another")]

            late = await written(it, "d")
            await it.transactions.prepare(late)
            it.pass_ms(10 * 86_400_000)
            await until(lambda: not it.transactions.coordinators.all_open())
            reason = "it was not ended within its timeout"
            assert told(caplog) == [aborted("WARNING", late, "d", reason, "prepared")]

            failed = await written(it, "e")
            await it.broker.delete_topic(OTHER)
            with pytest.raises(TransactionAborted):
                await it.transactions.commit(failed)
            [(level, _, fields)] = told(caplog)
            assert (level, fields["transaction"], fields["state"]) == ("WARNING", failed, "preparing commit")
            assert "was deleted" in str(fields["reason"])


@on_a_loop
async def test_a_start_names_what_it_takes_up(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, BROKER):
        async with bench() as it:
            await written(it, "left")
            prepared = await written(it, "kept")
            await it.transactions.prepare(prepared)
            told(caplog)
            await it.restart()
            fields = {"aborted": 1, "aborted_of": ["left"], "prepared": 1, "prepared_ids": [prepared]}
            assert told(caplog) == [("INFO", "transactions taken up", fields)]


@on_a_loop
async def test_who_is_fenced_hears_by_whom_and_what_to_do() -> None:
    async with bench() as it:
        old = await it.transactions.init("x", instance="one")
        await it.transactions.init("x", instance="other")
        with pytest.raises(ProducerFenced) as refused:
            it.transactions.producers.check(old.producer_id, old.epoch)
        assert str(refused.value) == (
            "another process has started with transactional_id 'x' (epoch 1); this one has epoch 0: "
            "stop it, or give each process an id of its own"
        )
        with pytest.raises(ProducerFenced, match=r"transactional_id 'x' \(epoch 1\): stop it"):
            await it.transactions.init("x", instance="one", again=True)


@on_a_loop
async def test_an_id_that_is_named_twice_is_named() -> None:
    async with bench() as it:
        one, other = await it.prepared(b"a"), await it.prepared(b"b")
        with pytest.raises(InvalidRequest, match=f"'{other}' is named more than once"):
            await it.transactions.keys.commit_many("key", [one, other, other])
