"""What a gRPC call asks for passes the gate, with the call's other end as its caller."""

from __future__ import annotations

import pytest
from api_grpc_calls import Serve

from goqueue.broker.operations import Caller, CallerProtocol, Gate, Operation
from goqueue.wire.proto import goqueue_pb2 as pb


async def test_calls_pass_the_gate_with_their_caller(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Caller, str, object]] = []

    def admit(_: Gate, caller: Caller, operation: Operation, resource: object) -> None:
        if operation.name != "broker.problems":
            seen.append((caller, operation.name, resource))

    async with serve() as served:
        monkeypatch.setattr(Gate, "admit", admit)
        await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="t"))
        await served.groups.Join(pb.JoinRequest(group="g", client_id="c", topics=["t"]))
        async for _ in served.messages.Fetch(pb.FetchRequest(topic="t")):
            pass
    assert [(name, resource) for _, name, resource in seen] == [
        ("topics.describe", "t"),
        ("groups.join", "g"),
        ("messages.find_offset", "t"),
        ("messages.fetch", "t"),
    ]
    [caller] = {caller for caller, _, _ in seen}
    assert caller.protocol is CallerProtocol.GRPC
    host, _, port = caller.address.rpartition(":")
    assert host == "127.0.0.1"
    assert port.isdigit()
