"""Topics, and where things are."""

from __future__ import annotations

from dataclasses import asdict

from goqueue.api.grpc.calls import Calls, answered, caller_of
from goqueue.api.grpc.errors import Context, to_error
from goqueue.api.grpc.messages import settings_of, start_at
from goqueue.broker.operations import Caller, Operations, TopicDescription, described
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.fields import specs
from goqueue.model.topic_settings import TopicSettings
from goqueue.version import __version__
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

_MAX_TOPICS = 1_000
"""In one request about the cluster."""


class TopicsService(pb_grpc.TopicsServicer):
    """Commands to topics, as the broker knows them."""

    def __init__(self, operations: Operations, calls: Calls) -> None:
        self._operations = operations
        self.calls = calls

    @answered
    async def CreateTopic(self, request: pb.CreateTopicRequest, context: Context) -> pb.Topic:
        settings = settings_of(request.settings)
        return _describe(described(await self._operations.topics.create(caller_of(context), request.name, settings)))

    @answered
    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        return pb.ListTopicsResponse(names=self._operations.topics.names(caller_of(context)))

    @answered
    async def DescribeTopic(self, request: pb.DescribeTopicRequest, context: Context) -> pb.Topic:
        return _describe(self._operations.topics.describe(caller_of(context), request.name))

    @answered
    async def ChangeTopic(self, request: pb.ChangeTopicRequest, context: Context) -> pb.Topic:
        settings = settings_of(request.settings)
        unset = list(request.unset)
        topic = await self._operations.topics.change(caller_of(context), request.name, settings, unset)
        return _describe(described(topic))

    @answered
    async def DeleteTopic(self, request: pb.DeleteTopicRequest, context: Context) -> pb.DeleteTopicResponse:
        await self._operations.topics.delete(caller_of(context), request.name)
        return pb.DeleteTopicResponse()

    @answered
    async def PurgeTopic(self, request: pb.PurgeTopicRequest, context: Context) -> pb.PurgeTopicResponse:
        purged = await self._operations.topics.purge(
            caller_of(context),
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


class MetadataService(pb_grpc.MetadataServicer):
    """One node leads everything, today."""

    def __init__(self, operations: Operations, address: str, calls: Calls) -> None:
        self._operations = operations
        self.calls = calls
        self._address = address

    @answered
    async def DescribeCluster(self, request: pb.DescribeClusterRequest, context: Context) -> pb.DescribeClusterResponse:
        if len(request.topics) > _MAX_TOPICS:
            raise InvalidRequest(f"the request names {len(request.topics)} topics; at most {_MAX_TOPICS} are allowed")
        caller = caller_of(context)
        return pb.DescribeClusterResponse(
            nodes=[pb.Node(id=self._operations.node_id, address=self._address)],
            topics=[self._leaders(caller, name) for name in dict.fromkeys(request.topics)],
            version=__version__,
        )

    @answered
    async def FindOffset(self, request: pb.FindOffsetRequest, context: Context) -> pb.FindOffsetResponse:
        start = start_at(request.start)
        offset = self._operations.reading.find_offset(caller_of(context), request.topic, request.partition, start)
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
