"""The native server as a client sees it that speaks the protocol byte by byte."""

from __future__ import annotations

import asyncio

import pytest
from behaviour.faulty_files import FaultyFiles, of_topic
from doubles.async_tests import until
from doubles.frames import wire
from native_client import NativeClient, Serve, error_in

from goqueue.wire.batch import parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.native.message import HEADER, PREFACE, VERSION, Message, MessageFlag
from goqueue.wire.native.operations import Operation
from goqueue.wire.native.publish import EntryKind, dump_publish
from goqueue.wire.native.read import dump_credit, load_read
from goqueue.wire.proto import goqueue_pb2 as pb


def values_in(message: Message) -> list[bytes]:
    return [each.value for each in decode_run(parse_batch(message.payload))[0]] if len(message.payload) else []


# The greeting


async def test_a_client_that_greets_is_told_the_limits(serve: Serve) -> None:
    async with serve(max_requests=9, idle_timeout_ms=5_000) as served:
        client = await served.connect(greet=False)
        welcome = pb.Welcome.FromString(bytes((await client.greet()).payload))
        assert (welcome.version, welcome.max_requests, welcome.idle_timeout_ms) == (VERSION, 9, 5_000)


async def test_a_client_of_other_versions_is_refused_with_those_that_are_spoken(serve: Serve) -> None:
    async with serve() as served:
        client = await served.connect(greet=False)
        error = error_in(await client.greet(min_version=2, max_version=7))
        assert (error.code, "versions 2 to 7" in error.message) == ("unsupported_feature", True)
        assert [each async for each in client.rest()] == []


async def test_the_first_message_must_be_the_greeting(serve: Serve) -> None:
    async with serve() as served:
        client = await served.connect(greet=False)
        client.writer.write(PREFACE)
        client.publish(1, ("t", 0, wire(b"v")))
        assert error_in(await client.receive()).code == "invalid_request"
        assert [each async for each in client.rest()] == []
        assert served.broker.topic("t").partition(0).high_watermark == 0


async def test_a_greeting_that_cannot_be_read_is_refused(serve: Serve) -> None:
    async with serve() as served:
        client = await served.connect(greet=False)
        client.writer.write(PREFACE)
        client.send(Operation.HELLO, 1, payload=b"\xff\xff")
        error = error_in(await client.receive())
        assert (error.code, "the greeting cannot be read" in error.message) == ("invalid_request", True)
        assert [each async for each in client.rest()] == []


@pytest.mark.parametrize(
    ("request_", "spoken"),
    [
        (b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"gRPC"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"TLS"),
    ],
)
async def test_a_client_of_another_protocol_is_told_what_is_spoken_here(
    serve: Serve, request_: bytes, spoken: bytes
) -> None:
    async with serve() as served:
        client = await served.connect(greet=False)
        client.writer.write(request_)
        answer = await client.reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"the other side speaks " + spoken in answer


# Publishing


async def test_batches_are_answered_with_their_places(serve: Serve) -> None:
    async with serve() as served:
        client = await served.connect()
        client.publish(7, ("t", 0, wire(b"a", b"b")), ("t", 1, wire(b"c")), ("t", 0, wire(b"d")))
        entries = await client.published(7)
        assert [(each.kind, each.first_offset, each.messages) for each in entries] == [(0, 0, 2), (0, 0, 1), (0, 2, 1)]


async def test_a_batch_that_is_refused_does_not_hold_up_the_others(serve: Serve) -> None:
    async with serve(topic={"max_message_bytes": 1_024}) as served:
        client = await served.connect()
        client.publish(
            3,
            ("t", 0, wire(b"first")),
            ("nope", 0, wire(b"v")),
            ("t", 9, wire(b"v")),
            ("t", 0, wire(b"x" * 2_000)),
            ("t", 0, b"no batch"),
            ("t", 0, wire(b"last")),
        )
        entries = await client.published(3)
        codes = [pb.Error.FromString(each.content).code if each.content else "" for each in entries]
        assert codes == ["", "topic_not_found", "partition_not_found", "message_too_large", "invalid_frame", ""]
        assert [each.first_offset for each in entries if each.kind == EntryKind.STORED] == [0, 1]


async def test_answers_wait_for_the_disk_unless_the_client_does_not(serve: Serve) -> None:
    files = FaultyFiles()
    async with serve(files=files) as served:
        client = await served.connect()
        with files.hanging(of_topic("t")):
            client.publish(1, ("t", 0, wire(b"durable")))
            client.publish(2, ("t", 1, wire(b"at once")), acks=pb.ACKS_NONE)
            await client.published(2)
        await client.published(1)


async def test_a_failed_disk_is_told_as_the_answer(serve: Serve) -> None:
    files = FaultyFiles()
    async with serve(files=files) as served:
        client = await served.connect()
        files.fails = of_topic("t")
        client.publish(1, ("t", 0, wire(b"lost")))
        [entry] = await client.published(1)
        assert pb.Error.FromString(entry.content).code == "storage_failed"


async def test_what_comes_behind_a_batch_that_takes_long_to_check_is_written_behind_it(serve: Serve) -> None:
    async with serve(topic={"max_message_bytes": 3 << 20}) as served:
        client = await served.connect()
        # A single message of more than a mebibyte gives way to others before it is written.
        client.publish(1, ("t", 0, wire(b"x" * (2 << 20))), ("t", 0, wire(b"second")))
        client.publish(2, ("t", 0, wire(b"third")))
        client.publish(3, ("t", 0, wire(b"fourth")))
        offsets = [[each.first_offset for each in await client.published(number)] for number in (1, 2, 3)]
        assert offsets == [[0, 1], [2], [3]]


async def test_a_malformed_request_closes_the_connection_and_changes_nothing(serve: Serve) -> None:
    async with serve() as served:
        client = await served.connect()
        client.send(Operation.PUBLISH, 4, dump_publish(0, [(b"t", 0, 99)]), wire(b"v"))
        error = error_in(await client.receive())
        assert (error.code, "announces" in error.message) == ("invalid_request", True)
        assert [each async for each in client.rest()] == []
        assert served.broker.topic("t").partition(0).high_watermark == 0


async def test_a_message_that_is_too_large_closes_the_connection_before_it_is_received(serve: Serve) -> None:
    async with serve(max_message_bytes=2 << 20) as served:
        client = await served.connect()
        client.writer.write(HEADER.pack((2 << 20) + 1, Operation.PUBLISH, 0, VERSION, 1, 0))
        assert "at most 2097152" in error_in(await client.receive()).message
        assert [each async for each in client.rest()] == []


async def test_a_connection_is_not_read_while_as_many_requests_wait_as_it_may_have(serve: Serve) -> None:
    files = FaultyFiles()
    async with serve(files=files, max_requests=3) as served:
        client = await served.connect()
        with files.hanging(of_topic("t")):
            for number in range(1, 4):
                client.publish(number, ("t", 0, wire(b"%d" % number)))
            partition = served.broker.topic("t").partition(0)
            await until(lambda: partition.log.end_offset == 3)
            client.publish(4, ("t", 0, wire(b"x" * 200_000)))
            client.publish(5, ("t", 0, wire(b"5")))
            [connection] = served.server._connections
            assert not connection._transport.is_reading()
        assert [(await client.published(number))[0].first_offset for number in range(1, 6)] == [0, 1, 2, 3, 4]


# Reading


async def test_a_reader_gets_batches_to_the_end(serve: Serve) -> None:
    async with serve() as served:
        client = await served.connect()
        client.publish(1, ("t", 0, wire(b"a", b"b")))
        await client.published(1)
        client.read(2)
        first, last = await client.receive(), await client.receive()
        assert (first.flags, values_in(first)) == (MessageFlag.ANSWER | MessageFlag.MORE, [b"a", b"b"])
        assert load_read(first.head) == (2, 2, 2)
        assert (last.flags, values_in(last)) == (MessageFlag.ANSWER, [])


async def test_a_reader_without_credit_gets_nothing_more_and_others_go_on(serve: Serve) -> None:
    async with serve() as served:
        client = await served.connect()
        for number in range(1, 4):
            client.publish(number, ("t", 0, wire(b"%d" % number * 600)))
            await client.published(number)
        client.read(10, credit_bytes=700, max_batch_bytes=1_024, follow=True)
        assert values_in(await client.receive()) == [b"1" * 600]
        assert values_in(await client.receive()) == [b"2" * 600], "one batch may go beyond the credit"
        client.send(Operation.PING, 11)
        assert (await client.receive()).operation == Operation.PING
        client.send(Operation.CREDIT, 10, dump_credit(2_000))
        assert values_in(await client.receive()) == [b"3" * 600]


async def test_a_reader_that_cancels_gets_no_answer_and_makes_room(serve: Serve) -> None:
    async with serve(max_streams=1) as served:
        client = await served.connect()
        client.read(1, follow=True)
        await until(lambda: bool(served.broker.topic("t").partition(0)._waiters))
        client.read(2)
        assert error_in(await client.receive()).code == "overloaded"
        client.send(Operation.CANCEL, 1)
        await until(lambda: not served.server._streams)
        client.read(3)
        assert (await client.receive()).correlation == 3


async def test_a_reader_is_told_what_is_wrong_with_its_request(serve: Serve) -> None:
    async with serve(max_batch_bytes=4_096) as served:
        client = await served.connect()
        client.read(1, topic="nope")
        client.read(2, max_batch_bytes=5_000)
        found = {message.correlation: error_in(message) for message in [await client.receive(), await client.receive()]}
        assert found[1].code == "topic_not_found"
        assert "native.max_batch_bytes allows 4096" in found[2].message


# Calls


async def test_calls_are_those_of_grpc(serve: Serve) -> None:
    async with serve() as served:
        client = await served.connect()
        client.call("Topics.CreateTopic", 1, pb.CreateTopicRequest(name="made", settings={"partitions": "3"}))
        made = pb.Topic.FromString(bytes((await client.receive()).payload))
        assert (made.name, len(made.partitions)) == ("made", 3)
        client.call("Topics.DescribeTopic", 2, pb.DescribeTopicRequest(name="nope"))
        assert error_in(await client.receive()).code == "topic_not_found"


async def test_an_operation_that_there_is_not_is_an_error_and_the_connection_goes_on(serve: Serve) -> None:
    async with serve() as served:
        client = await served.connect()
        client.send(0xFFF, 1)
        error = error_in(await client.receive())
        assert (error.code, error.message) == ("unsupported_feature", "there is no operation 4095")
        client.send(0x100, 2, payload=b"\xff\xff")
        assert error_in(await client.receive()).code == "invalid_request"
        client.send(0x100, 3, payload=b"x" * (200 << 10))
        assert error_in(await client.receive()).code == "body_too_large"
        client.send(Operation.PING, 4)
        assert (await client.receive()).correlation == 4


async def test_a_member_subscribes_acks_and_leaves_in_one_stream(serve: Serve) -> None:
    async with serve(topic={"partitions": 1}) as served:
        client = await served.connect()
        client.publish(1, ("t", 0, wire(b"a")))
        await client.published(1)

        def send(**request: object) -> None:
            payload = pb.SubscribeRequest(**request).SerializeToString()  # type: ignore[arg-type]
            client.send(Operation.SUBSCRIBE, 2, payload=payload)

        async def answer() -> pb.SubscribeResponse:
            message = await client.receive()
            assert message.flags == MessageFlag.ANSWER | MessageFlag.MORE
            return pb.SubscribeResponse.FromString(bytes(message.payload))

        send(join=pb.JoinRequest(group="g", client_id="c", topics=["t"], credit=10))
        assert len((await answer()).assignment.assigned) == 1
        [delivery] = (await answer()).messages.deliveries
        claim = pb.LeaseClaim(
            topic="t", partition=0, lease=delivery.lease, deliveries=1, token=delivery.token, runs=[0, 1]
        )
        send(settle=pb.SettleRequest(correlation_id=5, verb=pb.VERB_ACK, leases=[claim]))
        settled = (await answer()).settled
        assert (settled.correlation_id, list(settled.refusals)) == (5, [])
        send(leave=pb.LeaveRequest())
        assert (await answer()).HasField("left")
        last = await client.receive()
        assert (last.flags, len(last.payload)) == (MessageFlag.ANSWER, 0)


# Limits and the end


async def test_a_client_that_sends_nothing_is_disconnected(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(idle_timeout_ms=60_000, hello_timeout_ms=10_000) as served:
        greeted, silent = await served.connect(), await served.connect(greet=False)
        await until(lambda: len(served.server._connections) == 2)
        now_s = asyncio.get_running_loop().time()
        for connection in list(served.server._connections):
            connection.check_heard(now_s + 30)
        assert "sent nothing for 10000 ms" in error_in(await silent.receive()).message
        greeted.send(Operation.PING, 1)
        assert (await greeted.receive()).operation == Operation.PING
        for connection in list(served.server._connections):
            connection.check_heard(now_s + 90)
        assert error_in(await greeted.receive()).code == "request_timeout"


async def test_one_connection_too_many_is_refused(serve: Serve) -> None:
    async with serve(max_connections=1) as served:
        first = await served.connect()
        second = await served.connect(greet=False)
        assert error_in(await second.receive()).code == "overloaded"
        first.send(Operation.PING, 1)
        assert (await first.receive()).operation == Operation.PING


async def test_a_client_that_reads_no_answers_is_not_served_further(serve: Serve) -> None:
    async with serve(topic={"partitions": 1}) as served:
        client = await served.connect()
        client.publish(1, ("t", 0, wire(*[b"x" * 1_000] * 900)))
        await client.published(1)
        [connection] = served.server._connections
        await _leave_unread(client)
        await until(lambda: not connection._is_writable.is_set())
        assert not connection._transport.is_reading()
        assert connection.unread_bytes < 2 << 20
        # It reads again: everything is there.
        got = 0
        while got < 20:
            message = await client.receive()
            got += message.flags == MessageFlag.ANSWER
        assert got == 20


async def _leave_unread(client: NativeClient) -> None:
    """Ask for more than the sockets' buffers hold."""
    for number in range(20):
        client.read(100 + number, max_batch_bytes=1 << 20)
    await client.writer.drain()


async def test_a_stop_answers_what_was_accepted(serve: Serve) -> None:
    files = FaultyFiles()
    async with serve(files=files) as served:
        client = await served.connect()
        with files.hanging(of_topic("t")):
            client.publish(1, ("t", 0, wire(b"accepted")))
            await until(lambda: served.broker.topic("t").partition(0).log.end_offset == 1)
            served.broker.stop_accepting()
            stopping = asyncio.create_task(served.server.stop(10))
            await until(lambda: served.server._server is None or not served.server._server.is_serving())
        [entry] = await client.published(1)
        assert entry.first_offset == 0
        await stopping
        assert [each async for each in client.rest()] == []
