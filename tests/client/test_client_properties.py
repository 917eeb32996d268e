"""Whatever is sent, however it is cut into batches: everything arrives, once, in order within its partition."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goqueue import AsyncClient, Outgoing, Published
from goqueue.testing import BrokerProcess

_numbers = count()

SIZES = st.one_of(st.integers(0, 200), st.integers(1_000, 70_000), st.just(300_000))
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "b", "c", "d"]),
        st.one_of(st.none(), st.none(), st.integers(0, 2)),
        SIZES,
        st.sampled_from(["send", "send", "many", "flush", "yield", "wait"]),
    ),
    max_size=60,
)
CONFIGURATIONS = st.fixed_dictionaries(
    {
        "linger_ms": st.sampled_from([0, 1, 5]),
        "batch_messages": st.sampled_from([1, 2, 100]),
        "batch_bytes": st.sampled_from([1, 1_000, 65_536]),
        "buffer_bytes": st.sampled_from([1 << 16, 1 << 20]),
        "acks": st.sampled_from(["none", "leader", "all"]),
    }
)


@pytest.fixture(scope="module")
def address(broker: BrokerProcess) -> str:
    return broker.address


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=MESSAGES, options=CONFIGURATIONS, partitions=st.integers(1, 3))
def test_any_mixture_arrives_complete_and_in_order_per_partition(
    address: str, messages: list[tuple[str | None, int | None, int, str]], options: dict[str, object], partitions: int
) -> None:
    asyncio.run(_send_and_compare(address, messages, options, partitions))


async def _send_and_compare(
    address: str, messages: list[tuple[str | None, int | None, int, str]], options: dict[str, object], partitions: int
) -> None:
    topic = f"mixture-{next(_numbers)}"
    sent: list[tuple[bytes, asyncio.Future[Published]]] = []
    async with AsyncClient(address) as client:
        await client.create_topic(topic, partitions=partitions, fsync="never")
        async with client.producer(**options) as producer:
            for number, (key, partition, size, how) in enumerate(messages):
                value = b"%d|" % number + b"x" * size
                where = None if partition is None else partition % partitions
                if how == "many":
                    (place,) = await producer.send_many(topic, [Outgoing(value, key=key, partition=where)])
                    done: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
                    done.set_result(place)
                else:
                    done = await producer.send(topic, value, key=key, partition=where)
                sent.append((value, done))
                if how == "flush":
                    await producer.flush()
                elif how == "yield":
                    await asyncio.sleep(0)
                elif how == "wait":
                    await done
        stored: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        async for record in client.read(topic):
            assert record.offset == len(stored[record.partition])
            stored[record.partition].append(record.value)
        expected: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        for value, done in sent:
            place = done.result()
            assert place.offset == len(expected[place.partition])
            expected[place.partition].append(value)
        assert stored == expected
        await client.delete_topic(topic)
