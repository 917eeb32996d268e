"""Checking at publish over gRPC: a batch is stored whole or not at all, and the client takes it apart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest

from behaviour.over_grpc import GrpcDriver
from behaviour.waiting import until
from goqueue import AsyncClient
from goqueue.broker.partitions.topic import Topic
from goqueue.broker.publishing.schema_rejects import Refused
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.client.connection.grpc_connection import to_error
from goqueue.model.errors import NotAllStored, SchemaViolation
from goqueue.model.publish_result import Published
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.frame import encode_frame
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

NOW_NS = 1_700_000_000_000_000_000
VALUES = [b'"%d"' % number if number % 7 == 3 else b"%d" % number for number in range(100)]
GOOD = [value for value in VALUES if not value.startswith(b'"')]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcDriver]:
    driver = GrpcDriver(tmp_path_factory.mktemp("checked"))
    yield driver
    driver.close()


@pytest.fixture
def topic(driver: GrpcDriver, name: str) -> str:
    """Its values are numbers."""
    registry = driver.host.broker.schemas
    driver.host.thread.run(registry.register(f"{name}-value", SchemaDraft('{"type": "integer"}', "JSON")))
    driver.create_topic(name, partitions=1, schema_validation="on")
    return name


def batch(*values: bytes) -> bytes:
    return join_frames([encode_frame(b"", value, b"", NOW_NS) for value in values], NOW_NS).to_wire()


def test_only_those_deliveries_fail_that_do_not_fit(driver: GrpcDriver, topic: str) -> None:
    async def send() -> list[object]:
        async with AsyncClient(driver.host.address) as client:
            producer = client.producer(linger_ms=10_000)
            sent = [await producer.send(topic, value) for value in VALUES]
            await producer.flush()
            return await asyncio.gather(*sent, return_exceptions=True)

    outcomes = asyncio.run(send())
    assert [isinstance(outcome, SchemaViolation) for outcome in outcomes] == [value not in GOOD for value in VALUES]
    assert [each.offset for each in outcomes if isinstance(each, Published)] == list(range(len(GOOD)))
    assert driver.read(topic).values == GOOD
    problem = next(str(outcome) for outcome in outcomes if isinstance(outcome, SchemaViolation))
    assert problem == '/: the value is not of type "integer"'


def test_however_many_do_not_fit_the_others_are_soon_stored(driver: GrpcDriver, topic: str) -> None:
    """The broker tells which ones, a thousand at a time."""
    publisher = driver.host.broker.publisher
    asked: list[int] = []
    look = publisher.refused_frames

    async def counted(of: Topic, run: FrameRun, *, in_transaction: bool) -> Refused:
        asked.append(len(run))
        return await look(of, run, in_transaction=in_transaction)

    async def send() -> list[object]:
        async with AsyncClient(driver.host.address) as client:
            producer = client.producer(linger_ms=10_000, batch_messages=10_000)
            sent = [await producer.send(topic, b"1" if number % 1_000 == 0 else b"x") for number in range(3_500)]
            await producer.flush()
            return await asyncio.gather(*sent, return_exceptions=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "refused_frames", counted)
        outcomes = asyncio.run(send())
    assert [number for number, each in enumerate(outcomes) if isinstance(each, Published)] == [0, 1_000, 2_000, 3_000]
    assert driver.read(topic).values == [b"1"] * 4
    assert asked == [3_500, 2_500, 1_500, 500, 4]


def test_send_many_tells_which_do_not_fit_when_the_others_are_stored(driver: GrpcDriver, topic: str) -> None:
    async def send() -> None:
        async with AsyncClient(driver.host.address) as client:
            await client.producer().send_many(topic, VALUES)

    with pytest.raises(
        NotAllStored, match=r"14 of 100 messages are not stored; .* at place 3: .*not of type"
    ) as failure:
        asyncio.run(send())
    outcomes = failure.value.outcomes
    assert [isinstance(outcome, SchemaViolation) for outcome in outcomes] == [value not in GOOD for value in VALUES]
    assert [each.offset for each in outcomes if isinstance(each, Published)] == list(range(len(GOOD)))
    assert driver.read(topic).values == GOOD


def test_a_batch_is_refused_as_a_whole_and_the_stream_goes_on(driver: GrpcDriver, topic: str) -> None:
    with grpc.insecure_channel(driver.host.address) as channel:
        stub = pb_grpc.MessagesStub(channel)
        with pytest.raises(grpc.RpcError) as refusal:
            stub.Publish(pb.PublishRequest(topic=topic, batch=batch(b"1", b'"2"', b"[]", b"3")))
        error = to_error(refusal.value, "")
        assert isinstance(error, SchemaViolation)
        assert str(error).startswith("message 1 of the batch: /: ")
        assert driver.describe(topic).bounds[0] == (0, 0)
        requests = [
            pb.PublishRequest(correlation_id=number, topic=topic, batch=batch(*values))
            for number, values in enumerate(([b"1"], [b"2", b"x"], [b"3", b"4"]))
        ]
        answers = list(stub.PublishStream(iter(requests)))
    assert [(each.correlation_id, each.error.code) for each in answers] == [
        (0, ""), (1, "schema_violation"), (2, ""),
    ]  # fmt: skip
    assert list(answers[1].error.misfits) == [1]
    assert answers[2].stored.first_offset == 1
    assert driver.read(topic).values == [b"1", b"3", b"4"]


def test_what_became_a_dead_letter_is_told_to_be_stored(driver: GrpcDriver, topic: str) -> None:
    driver.change_topic(topic, schema_validation="dead_letter")
    with grpc.insecure_channel(driver.host.address) as channel:
        stub = pb_grpc.MessagesStub(channel)
        for acks in (pb.ACKS_ALL, pb.ACKS_NONE):
            answer = stub.Publish(pb.PublishRequest(topic=topic, batch=batch(b"1", b"x", b"2"), acks=acks))
            assert answer.stored.count == 3
    until(lambda: driver.read(topic).offsets == [0, 2, 3, 5])
    driver.host.thread.run(driver.host.broker._refusals.buried())
    assert driver.read(f"{topic}.dlq").values == [b"x", b"x"]
