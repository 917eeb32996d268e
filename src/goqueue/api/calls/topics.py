"""Topics, and where things are."""

from __future__ import annotations

from dataclasses import asdict

from goqueue.api.calls.conversion import settings_of, start_at, to_error
from goqueue.broker.operations import Caller, Operations, TopicDescription, described
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.fields import specs
from goqueue.model.topic_settings import TopicSettings
from goqueue.version import __version__
from goqueue.wire.proto import goqueue_pb2 as pb

_MAX_TOPICS = 1_000
"""In one request about the cluster."""


class TopicCalls:
    """The service ``Topics``."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def CreateTopic(self, caller: Caller, request: pb.CreateTopicRequest) -> pb.Topic:
        settings = settings_of(request.settings)
        return _describe(described(await self._operations.topics.create(caller, request.name, settings)))

    async def ListTopics(self, caller: Caller, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        return pb.ListTopicsResponse(names=self._operations.topics.names(caller))

    async def DescribeTopic(self, caller: Caller, request: pb.DescribeTopicRequest) -> pb.Topic:
        return _describe(self._operations.topics.describe(caller, request.name))

    async def ChangeTopic(self, caller: Caller, request: pb.ChangeTopicRequest) -> pb.Topic:
        settings = settings_of(request.settings)
        unset = list(request.unset)
        topic = await self._operations.topics.change(caller, request.name, settings, unset)
        return _describe(described(topic))

    async def DeleteTopic(self, caller: Caller, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
        await self._operations.topics.delete(caller, request.name)
        return pb.DeleteTopicResponse()

    async def PurgeTopic(self, caller: Caller, request: pb.PurgeTopicRequest) -> pb.PurgeTopicResponse:
        purged = await self._operations.topics.purge(
            caller,
            request.name,
            request.partition if request.HasField("partition") else None,
            request.before_ns if request.HasField("before_ns") else None,
        )
        return pb.PurgeTopicResponse(
            partitions=[
                pb.PurgedPartition(
                    partition=each.partition,
                    earliest_before=each.earliest_before,
                    earliest=each.earliest,
                    removed=each.removed,
                    delayed=each.delayed,
                )
                for each in purged
            ]
        )


class MetadataCalls:
    """The service ``Metadata``. One node leads everything, today."""

    def __init__(self, operations: Operations, address: str) -> None:
        self._operations = operations
        self._address = address

    async def DescribeCluster(self, caller: Caller, request: pb.DescribeClusterRequest) -> pb.DescribeClusterResponse:
        if len(request.topics) > _MAX_TOPICS:
            raise InvalidRequest(f"the request names {len(request.topics)} topics; at most {_MAX_TOPICS} are allowed")
        return pb.DescribeClusterResponse(
            nodes=[pb.Node(id=self._operations.node_id, address=self._address)],
            topics=[self._leaders(caller, name) for name in dict.fromkeys(request.topics)],
            version=__version__,
        )

    async def FindOffset(self, caller: Caller, request: pb.FindOffsetRequest) -> pb.FindOffsetResponse:
        start = start_at(request.start)
        offset = self._operations.reading.find_offset(caller, request.topic, request.partition, start)
        return pb.FindOffsetResponse(offset=offset)

    def _leaders(self, caller: Caller, name: str) -> pb.TopicLeaders:
        try:
            topic = self._operations.topics.locate(caller, name)
        except GoQueueError as error:
            return pb.TopicLeaders(name=name, error=to_error(error))
        return pb.TopicLeaders(name=name, id=topic.topic_id, leaders=[0] * topic.partitions)


def _describe(topic: TopicDescription) -> pb.Topic:
    declared = specs(TopicSettings)
    return pb.Topic(
        name=topic.name,
        id=topic.topic_id,
        created_at_ns=topic.created_at_ns,
        settings={name: declared[name].format(value) for name, value in asdict(topic.settings).items()},
        overrides=topic.overrides,
        partitions=[
            pb.PartitionState(
                earliest_offset=each.earliest,
                latest_offset=each.latest,
                stable_end=each.stable_end,
                size_bytes=each.size_bytes,
            )
            for each in topic.partitions
        ],
    )
