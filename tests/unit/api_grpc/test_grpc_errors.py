from __future__ import annotations

import asyncio

import grpc
import pytest
from api_grpc_calls import Serve, error_of
from behaviour.faulty_files import FaultyFiles, of_topic
from doubles.async_tests import until
from doubles.frames import publish

from goqueue.api.calls.conversion import to_error
from goqueue.client.connection.connection import to_exception
from goqueue.model.errors import GoQueueError, error_from, error_table
from goqueue.wire.proto import goqueue_pb2 as pb


@pytest.mark.parametrize("kind", error_table(), ids=lambda kind: kind.code)
def test_every_error_of_the_table_has_a_status_that_grpc_knows(kind: type[GoQueueError]) -> None:
    assert grpc.StatusCode[kind.grpc_status] is not grpc.StatusCode.OK


@pytest.mark.parametrize("kind", error_table(), ids=lambda kind: kind.code)
async def test_every_error_of_the_table_reaches_the_client_as_it_was(
    serve: Serve, kind: type[GoQueueError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise kind("naïve\nreason", retry_after_s=1.5)

    async with serve() as served:
        monkeypatch.setattr(served.broker, "topic_names", lambda: fails(None))
        error = await error_of(served.topics.ListTopics(pb.ListTopicsRequest()))
    assert (error.status.name, error.code) == (kind.grpc_status, kind.code)
    assert (error.retriable, error.retry_after_ms) == ("true" if kind.retriable else "false", "1500")
    assert error.details == "naïve\nreason"


@pytest.mark.parametrize("kind", error_table(), ids=lambda kind: kind.code)
def test_every_error_of_the_table_survives_a_stream_answer(kind: type[GoQueueError]) -> None:
    back = to_exception(to_error(kind("reason", retry_after_s=0.25)))
    assert type(back) is kind
    assert (str(back), back.retry_after_s) == ("reason", 0.25)


def test_a_code_from_a_newer_broker_is_an_unknown_error_that_keeps_it() -> None:
    error = error_from("from_the_future", "reason")
    assert (error.code, str(error), error.retriable) == ("unknown", "from_the_future: reason", False)


async def test_an_error_without_a_time_to_wait_has_no_such_metadata(serve: Serve) -> None:
    async with serve() as served:
        error = await error_of(served.topics.DescribeTopic(pb.DescribeTopicRequest(name="nope")))
        assert (error.code, error.retriable, error.retry_after_ms) == ("topic_not_found", "false", None)


@pytest.mark.parametrize(
    ("name", "settings", "code"),
    [
        ("t", {}, "topic_exists"),
        ("a b", {}, "invalid_topic_name"),
        ("__x", {}, "reserved_topic_name"),
        ("u", {"partitions": "0"}, "invalid_settings"),
        ("u", {"nonsense": "1"}, "invalid_settings"),
    ],
)
async def test_a_topic_that_cannot_be_made_says_why(
    serve: Serve, name: str, settings: dict[str, str], code: str
) -> None:
    async with serve() as served:
        request = pb.CreateTopicRequest(name=name, settings=settings)
        assert (await error_of(served.topics.CreateTopic(request))).code == code


async def test_a_defect_tells_nothing_of_the_inside(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise ZeroDivisionError("secret")

    async with serve() as served:
        monkeypatch.setattr(served.broker, "topic_names", fails)
        error = await error_of(served.topics.ListTopics(pb.ListTopicsRequest()))
    assert (error.status, error.code) == (grpc.StatusCode.INTERNAL, "internal_error")
    assert "secret" not in error.details
    assert "ZeroDivisionError" in caplog.text


async def test_a_call_that_takes_longer_than_allowed_ends(serve: Serve) -> None:
    disk = FaultyFiles()
    async with serve(files=disk, max_call_ms=100) as served:
        with disk.hanging(of_topic("t")):
            error = await error_of(served.messages.Publish(publish(b"v")))
        assert (error.status, error.code) == (grpc.StatusCode.DEADLINE_EXCEEDED, "request_timeout")
        assert "grpc.max_call_ms" in error.details
        assert (await served.messages.Publish(publish(b"w"))).stored.first_offset == 1


@pytest.mark.parametrize("connections", [1, 2])
async def test_one_call_more_than_allowed_is_refused_on_any_connection(serve: Serve, connections: int) -> None:
    async with serve(max_concurrent_calls=3) as served:
        calls = [served.messages.PublishStream() for _ in range(3)]
        reads = [asyncio.ensure_future(call.read()) for call in calls]
        publishing = served.server._messages._taking
        await until(lambda: len(publishing) == 3)
        channel = served.channel if connections == 1 else served.connect()
        listing = channel.unary_unary(
            "/goqueue.v1.Topics/ListTopics",
            pb.ListTopicsRequest.SerializeToString,
            pb.ListTopicsResponse.FromString,
        )
        for _ in range(3):
            assert (await error_of(listing(pb.ListTopicsRequest()))).status is grpc.StatusCode.RESOURCE_EXHAUSTED
        calls[0].cancel()
        await until(lambda: len(publishing) == 2)
        assert list((await listing(pb.ListTopicsRequest())).names) == ["t"]
        for call in calls:
            call.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        if channel is not served.channel:
            await channel.close()


@pytest.mark.parametrize("method", ["CreateTopic", "ChangeTopic"])
async def test_far_too_many_settings_are_refused_in_one_sentence(serve: Serve, method: str) -> None:
    async with serve() as served:
        request = getattr(pb, f"{method}Request")(name="t", settings={f"color{n}": "1" for n in range(5_000)})
        error = await error_of(getattr(served.topics, method)(request))
        assert (error.status, error.code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_settings")
        assert error.details == "there are 5000 settings; at most 100 are looked at"


async def test_more_topics_than_are_described_at_once_are_refused(serve: Serve) -> None:
    async with serve() as served:
        names = [f"topic-{number}" for number in range(1_001)]
        assert (
            len((await served.metadata.DescribeCluster(pb.DescribeClusterRequest(topics=names[:-1]))).topics) == 1_000
        )
        error = await error_of(served.metadata.DescribeCluster(pb.DescribeClusterRequest(topics=names)))
        assert (error.status, error.code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_request")


async def test_a_topic_that_is_named_often_is_described_once(serve: Serve) -> None:
    async with serve() as served:
        answer = await served.metadata.DescribeCluster(pb.DescribeClusterRequest(topics=["t", "nope", "t"]))
        assert [each.name for each in answer.topics] == ["t", "nope"]


@pytest.mark.parametrize("bounds", [{"max_fetch_streams": 2}, {"max_concurrent_calls": 4}])
async def test_readers_leave_room_for_other_calls(serve: Serve, bounds: dict[str, int]) -> None:
    async with serve(**bounds) as served:
        follow = pb.FetchRequest(topic="t", follow=True)
        calls = [served.messages.Fetch(follow) for _ in range(2)]
        reads = [asyncio.ensure_future(call.read()) for call in calls]
        await until(lambda: served.waiting_readers() == 2)
        error = await error_of(served.messages.Fetch(follow))
        assert (error.status, error.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded")
        assert (error.retriable, error.retry_after_ms) == ("true", "1000")
        assert list((await served.topics.ListTopics(pb.ListTopicsRequest())).names) == ["t"]
        calls[0].cancel()
        await until(lambda: served.waiting_readers() == 1)
        assert (await served.messages.Publish(publish(b"v"))).stored.first_offset == 0
        assert (await served.messages.Fetch(pb.FetchRequest(topic="t")).read()).next_offset == 1
        for call in calls:
            call.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
