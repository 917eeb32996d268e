"""How fast one consumer polls and acks a topic in which five lanes are mixed, over one in which all is normal.

Once as five services publish it, each with a priority of its own, a hundred messages at a time; and once in the
least convenient way, with another lane for every message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from bench.client_under_test import ClientUnderTest, Work, measure_figures
from bench.harness import Measured, note, rounded
from bench.queue_roundtrip import consume
from bench.workload import byte_batches
from goqueue.client.messages.outgoing_message import Outgoing
from goqueue.model.message import Priority

BY_BATCH, BY_MESSAGE = "priority_ratio", "priority_ratio_by_message"
_MESSAGES = 100_000
_TOGETHER = 100
_RUNS = 5
_TOPICS = {"single": 0, BY_BATCH: _TOGETHER, BY_MESSAGE: 1}
"""How many messages of a lane follow each other; 0: there is one lane only."""


def measure(_wanted: Collection[str]) -> Mapping[str, Measured]:
    return measure_figures("interval", _measure)


async def _measure(under: ClientUnderTest) -> dict[str, Measured]:
    for topic, in_a_row in _TOPICS.items():
        await under.client.create_topic(topic, partitions=3, fsync="interval")
        note(f"writing {_MESSAGES:,} messages for {topic}")
        async with under.client.producer(acks="leader") as producer:
            for batch in _batches(in_a_row):
                await producer.send_many(topic, batch)
    rates: dict[str, list[float]] = {topic: [] for topic in _TOPICS}
    cost: dict[str, dict[str, object]] = {}
    # Side by side, so that whatever else the machine does slows all.
    for number in range(_RUNS + 1):
        for topic, found in rates.items():
            work = Work(under.broker)
            found.append(_MESSAGES / await consume(under, f"{topic}-{number}", _MESSAGES, topic))
            cost[topic] = {name: value for name, value in work.per_message(_MESSAGES).items() if "_us_" in name}
        note(f"{BY_BATCH}: run {number} of {_RUNS}: {rounded(rates[BY_BATCH][-1] / rates['single'][-1])}")
    shown = {name: [rounded(each) for each in found[1:]] for name, found in rates.items()}
    details = {"messages": _MESSAGES, "batch_messages": _TOGETHER, "messages_per_s": shown}
    return {
        name: Measured(
            [mixed / single for mixed, single in zip(rates[name][1:], rates["single"][1:], strict=True)],
            {**details, "in_a_row": _TOPICS[name], **cost[name]},
        )
        for name in (BY_BATCH, BY_MESSAGE)
    }


def _batches(in_a_row: int) -> Iterator[list[Outgoing]]:
    values = [value for batch in byte_batches() for value in batch]
    lanes = tuple(Priority)
    for first in range(0, _MESSAGES, _TOGETHER):
        yield [
            Outgoing(
                values[place % len(values)],
                priority=lanes[place // in_a_row % len(lanes)] if in_a_row else Priority.NORMAL,
            )
            for place in range(first, first + _TOGETHER)
        ]
