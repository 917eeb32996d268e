"""An id of a producer proves that it was given: those who make one up cannot take the place of whoever gets it next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from behaviour.host import config_for
from behaviour.load import FRAMES
from behaviour.over_grpc import GrpcHost
from goqueue.model.producer_sequences import Producers
from goqueue.wire.batch import join_frames
from goqueue.wire.frame import encode_frame
from goqueue.wire.internal_headers import ProducerStamp
from goqueue.wire.producer_frames import stamp_batch
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

TOPIC = "t"
NEXT = 24
"""So many ids after one of ours somebody guesses."""
JSON_MAX = (1 << 53) - 1
Publish = Callable[[int, bytes], str]
"""The first batch of a producer with this id; the answer is ``stored`` or the error's code."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GrpcHost]:
    host = GrpcHost(config_for(tmp_path), http=True)
    host.thread.run(host.broker.create_topic(TOPIC, {"partitions": 1}))
    yield host
    host.stop()


@pytest.fixture
def client(host: GrpcHost) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def channel(host: GrpcHost) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(host.address) as channel:
        yield channel


@pytest.fixture(params=["http", "grpc", "grpc stream"])
def publish(request: pytest.FixtureRequest, client: httpx.Client, channel: grpc.Channel) -> Publish:
    stub = pb_grpc.MessagesStub(channel)

    def over_http(producer_id: int, value: bytes) -> str:
        answer = client.post(
            f"/topics/{TOPIC}/partitions/0/messages",
            content=batch(producer_id, value),
            headers={"content-type": FRAMES},
        )
        return "stored" if answer.status_code == 200 else str(answer.json()["code"])

    def over_grpc(producer_id: int, value: bytes) -> str:
        try:
            stub.Publish(request_of(producer_id, value))
        except grpc.RpcError as error:
            return dict(error.trailing_metadata())["goqueue-code"]
        return "stored"

    def over_a_stream(producer_id: int, value: bytes) -> str:
        [answer] = stub.PublishStream(iter([request_of(producer_id, value)]))
        return answer.error.code or "stored"

    return {"http": over_http, "grpc": over_grpc, "grpc stream": over_a_stream}[request.param]


def batch(producer_id: int, value: bytes) -> bytes:
    frames = stamp_batch([encode_frame(b"", value, b"", 1)], ProducerStamp(producer_id, 0, 0, 1))
    return join_frames(frames, 0).to_wire()


def request_of(producer_id: int, value: bytes) -> pb.PublishRequest:
    return pb.PublishRequest(topic=TOPIC, partition=0, batch=batch(producer_id, value))


def given(client: httpx.Client) -> int:
    answer = client.post("/producers/init", json={})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["producer_id"])


def values(client: httpx.Client) -> list[str]:
    return [each["value"] for each in client.get(f"/topics/{TOPIC}/messages").json()["messages"]]


def test_whoever_guesses_the_next_ids_is_refused_and_the_batch_of_the_one_that_gets_it_is_stored(
    client: httpx.Client, publish: Publish
) -> None:
    own = given(client)
    for guessed in range(own + 1, own + 1 + NEXT):
        assert publish(guessed, b"guessed") == "unknown_producer", guessed
    real = [given(client) for _ in range(NEXT // 2)]
    for producer_id in real:
        assert publish(producer_id, b"%d" % producer_id) == "stored"
    assert values(client) == [str(each) for each in real]


def test_ids_are_whole_numbers_that_every_reader_of_json_keeps(client: httpx.Client) -> None:
    found = [given(client) for _ in range(50)]
    assert len(set(found)) == 50
    assert all(0 <= each <= JSON_MAX and int(float(each)) == each for each in found)


def test_a_guessed_id_begins_no_transaction_and_has_no_heartbeat(client: httpx.Client, channel: grpc.Channel) -> None:
    own = given(client)
    stub = pb_grpc.TransactionsStub(channel)
    for guessed in range(own + 1, own + 1 + NEXT):
        mine = {"producer_id": guessed, "epoch": 0}
        answers = [
            client.post("/transactions/begin", json=mine),
            client.post("/transactions/publish", json={**mine, "topic": TOPIC, "value": "v"}),
            client.post("/transactions/abort", json=mine),
            client.post(f"/producers/{guessed}/heartbeat", json={"epoch": 0}),
        ]
        assert [(each.status_code, each.json()["code"]) for each in answers] == [(404, "unknown_producer")] * 4
        with pytest.raises(grpc.RpcError) as refused:
            stub.BeginTransaction(pb.BeginTransactionRequest(**mine))
        assert dict(refused.value.trailing_metadata())["goqueue-code"] == "unknown_producer"
    assert client.get("/transactions").json()["transactions"] == []


def test_a_producer_that_was_forgotten_comes_back_at_any_sequence(host: GrpcHost, client: httpx.Client) -> None:
    own = given(client)
    path = f"/topics/{TOPIC}/partitions/0/messages"
    assert client.post(path, content=batch(own, b"first"), headers={"content-type": FRAMES}).status_code == 200
    producers = host.broker.topic(TOPIC).partitions[0].producers.state
    host.thread.run(_forgotten(producers))
    frames = stamp_batch([encode_frame(b"", b"later", b"", 1)], ProducerStamp(own, 0, 4_711, 1))
    answer = client.post(path, content=join_frames(frames, 0).to_wire(), headers={"content-type": FRAMES})
    assert (answer.status_code, values(client)) == (200, ["first", "later"])


async def _forgotten(producers: Producers) -> None:
    assert producers.forget(silent_since_ns=1 << 62, most=0) == 1
