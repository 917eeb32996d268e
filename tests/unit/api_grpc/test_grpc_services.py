from __future__ import annotations

import grpc
import pytest
from api_grpc_calls import Serve, error_of
from doubles.frames import NOW_NS, publish

from goqueue import __version__
from goqueue.model.topic_settings import TopicSettings
from goqueue.wire.proto import goqueue_pb2 as pb


async def test_a_topic_is_made_described_changed_listed_and_deleted(serve: Serve) -> None:
    async with serve() as served:
        made = await served.topics.CreateTopic(
            pb.CreateTopicRequest(name="orders", settings={"partitions": "2", "retention_ms": "2h"})
        )
        assert (made.name, len(made.partitions), made.settings["retention_ms"]) == ("orders", 2, "2h")
        assert sorted(made.overrides) == ["retention_ms"]
        assert set(made.settings) == set(TopicSettings.__dataclass_fields__)
        changed = await served.topics.ChangeTopic(pb.ChangeTopicRequest(name="orders", settings={"fsync": "never"}))
        assert changed.settings["fsync"] == "never"
        assert await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="orders")) == changed
        assert list((await served.topics.ListTopics(pb.ListTopicsRequest())).names) == ["orders", "t"]
        await served.topics.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
        assert list((await served.topics.ListTopics(pb.ListTopicsRequest())).names) == ["t"]


async def test_settings_come_back_in_a_form_that_can_be_sent_again(serve: Serve) -> None:
    async with serve() as served:
        settings = {"retention_bytes": "unlimited", "max_message_bytes": "2KiB", "cleanup": "compact"}
        first = await served.topics.CreateTopic(pb.CreateTopicRequest(name="a", settings=settings))
        second = await served.topics.CreateTopic(pb.CreateTopicRequest(name="b", settings=first.settings))
        assert first.settings == second.settings


async def test_offsets_and_sizes_of_a_topic_are_told(serve: Serve) -> None:
    async with serve() as served:
        await served.messages.Publish(publish(b"a", b"b"))
        (partition,) = (await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="t"))).partitions
        assert (partition.earliest_offset, partition.latest_offset) == (0, 2)
        assert partition.size_bytes == 2 * 35


async def test_the_cluster_names_the_leader_of_every_partition(serve: Serve) -> None:
    async with serve(topic={"partitions": 3}) as served:
        answer = await served.metadata.DescribeCluster(pb.DescribeClusterRequest(topics=["t", "nope"]))
        (node,) = answer.nodes
        assert (node.address, answer.version) == (served.address, __version__)
        known, unknown = answer.topics
        assert list(known.leaders) == [0, 0, 0]
        assert known.id == served.broker.topic("t").record.topic_id
        assert (unknown.error.code, unknown.error.retriable) == ("topic_not_found", False)


async def test_a_node_that_listens_everywhere_leaves_it_to_the_client_how_to_reach_it(serve: Serve) -> None:
    async with serve(host="0.0.0.0") as served:
        (node,) = (await served.metadata.DescribeCluster(pb.DescribeClusterRequest())).nodes
        assert node.address == ""


async def test_a_node_tells_the_address_that_it_was_told_to_advertise(serve: Serve) -> None:
    async with serve(advertised_address="broker.example:1234") as served:
        (node,) = (await served.metadata.DescribeCluster(pb.DescribeClusterRequest())).nodes
        assert node.address == "broker.example:1234"


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (pb.Start(), 0),
        (pb.Start(position=pb.POSITION_EARLIEST), 0),
        (pb.Start(position=pb.POSITION_LATEST), 3),
        (pb.Start(offset=2), 2),
        (pb.Start(instant_ns=NOW_NS), 0),
        (pb.Start(instant_ns=NOW_NS + 1), 3),
        (pb.Start(instant_ns=-1), 0),
    ],
)
async def test_an_offset_is_found_for_every_kind_of_start(serve: Serve, start: pb.Start, offset: int) -> None:
    async with serve() as served:
        await served.messages.Publish(publish(b"a", b"b", b"c"))
        found = await served.metadata.FindOffset(pb.FindOffsetRequest(topic="t", partition=0, start=start))
        assert found.offset == offset


@pytest.mark.parametrize("start", [pb.Start(offset=-1), pb.Start(position=7)])
async def test_a_start_that_makes_no_sense_is_refused(serve: Serve, start: pb.Start) -> None:
    async with serve() as served:
        error = await error_of(served.metadata.FindOffset(pb.FindOffsetRequest(topic="t", start=start)))
        assert (error.status, error.code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_request")


async def test_a_publish_is_answered_with_where_it_is_and_its_correlation_id(serve: Serve) -> None:
    async with serve() as served:
        await served.messages.Publish(publish(b"a"))
        answer = await served.messages.Publish(publish(b"b", b"c", number=77))
        assert (answer.correlation_id, answer.stored.first_offset, answer.stored.count) == (77, 1, 2)


@pytest.mark.parametrize("acks", [pb.ACKS_NONE, pb.ACKS_LEADER, pb.ACKS_ALL])
async def test_every_kind_of_acknowledgement_stores_the_batch(serve: Serve, acks: pb.Acks.ValueType) -> None:
    async with serve() as served:
        assert (await served.messages.Publish(publish(b"a", acks=acks))).stored.count == 1
        await served.messages.Publish(publish(b"after"))
        assert served.broker.topic("t").partition(0).high_watermark == 2
