"""Whole batches of frames over HTTP, in and out."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from behaviour.host import Host, config_for
from behaviour.load import FRAMES, envelope, wire_batch
from goqueue.model.message import Message
from goqueue.model.units import format_instant_ns
from goqueue.wire.batch import MAX_BATCH_BYTES, parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_frame, encode_headers

NOW_NS = 1_700_000_000_000_000_000
HOUR_NS = 3_600_000_000_000


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(config_for(tmp_path_factory.mktemp("http")), http=True)
    yield host
    host.stop()


@pytest.fixture(scope="module")
def client(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def topic(client: httpx.Client, name: str) -> str:
    settings = {"segment_bytes": "64KiB"}
    assert client.post("/topics", json={"name": name, "num_partitions": 1, "settings": settings}).status_code == 201
    return name


def publish(client: httpx.Client, topic: str, batch: bytes, prefix: str = "") -> httpx.Response:
    path = f"{prefix}/topics/{topic}/partitions/0/messages"
    return client.post(path, content=batch, headers={"content-type": FRAMES})


def read(client: httpx.Client, topic: str, **query: object) -> httpx.Response:
    path = f"/topics/{topic}/partitions/0/messages"
    return client.get(path, params={name: str(value) for name, value in query.items()}, headers={"accept": FRAMES})


def messages_in(answer: httpx.Response) -> list[Message]:
    assert answer.status_code == 200
    assert answer.headers["content-type"] == FRAMES
    messages, damaged = decode_run(parse_batch(answer.content))
    assert not damaged
    return messages


def latest(client: httpx.Client, topic: str) -> int:
    return int(client.get(f"/topics/{topic}").json()["partition_offsets"]["0"]["latest"])


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_batch_is_stored_whole_and_comes_back_byte_for_byte(client: httpx.Client, topic: str, prefix: str) -> None:
    headers = encode_headers((("h", b"\x00"), ("h", b"1")))
    frames = [
        encode_frame(b"key", b"\xff\x00", headers, NOW_NS, 0),
        encode_frame(b"", b"", b"", NOW_NS + 1, 4),
        encode_frame(b"gone", b"", b"", 0, 2, int(Flag.TOMBSTONE)),
    ]
    answer = publish(client, topic, envelope(frames), prefix)
    assert (answer.status_code, answer.json()) == (200, {"partition": 0, "first_offset": 0, "count": 3})
    back = read(client, topic)
    assert messages_in(back) == [
        Message(0, NOW_NS, b"key", b"\xff\x00", (("h", b"\x00"), ("h", b"1")), 0),
        Message(1, NOW_NS + 1, None, b"", (), 4),
        Message(2, 0, b"gone", b"", (), 2, tombstone=True),
    ]
    assert back.headers["goqueue-next-offset"] == "3"
    assert back.headers["goqueue-high-watermark"] == "3"


def test_a_batch_can_be_read_in_json_and_json_as_a_batch(client: httpx.Client, topic: str) -> None:
    publish(client, topic, wire_batch([b"framed"]))
    client.post(f"/topics/{topic}/messages", json={"messages": [{"value": "in json"}]})
    in_json = client.get(f"/topics/{topic}/partitions/0/messages").json()["messages"]
    assert [each["value"] for each in in_json] == ["framed", "in json"]
    assert [each.value for each in messages_in(read(client, topic))] == [b"framed", b"in json"]


def test_a_batch_that_was_read_can_be_published_again(client: httpx.Client, topic: str) -> None:
    publish(client, topic, wire_batch([b"a", b"b"]))
    assert publish(client, topic, read(client, topic).content).json()["first_offset"] == 2
    assert [(each.offset, each.value) for each in messages_in(read(client, topic))] == [
        (0, b"a"), (1, b"b"), (2, b"a"), (3, b"b"),
    ]  # fmt: skip


def test_nothing_to_read_is_204_and_says_where_to_go_on(client: httpx.Client, topic: str) -> None:
    answer = read(client, topic)
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-type" not in answer.headers
    assert answer.headers["goqueue-next-offset"] == "0"
    publish(client, topic, wire_batch([b"a"]))
    assert read(client, topic, offset=1).status_code == 204
    assert read(client, topic, offset=1, wait="20ms").status_code == 204


def test_errors_of_frame_reads_are_json(client: httpx.Client, topic: str) -> None:
    answer = read(client, topic, offset=5)
    assert (answer.status_code, answer.json()["code"]) == (416, "offset_out_of_range")


def test_reading_frames_is_bounded_by_bytes_and_goes_on_at_the_next_offset(client: httpx.Client, topic: str) -> None:
    for _ in range(5):
        publish(client, topic, wire_batch([b"x" * 1_000] * 60))
    offset, seen = 0, []
    while (answer := read(client, topic, offset=offset, max_bytes=10_000)).status_code == 200:
        assert len(answer.content) < 10_500
        seen += [each.offset for each in messages_in(answer)]
        offset = int(answer.headers["goqueue-next-offset"])
    assert seen == list(range(300))


def test_a_limit_bounds_a_read_of_frames_as_well(client: httpx.Client, topic: str) -> None:
    publish(client, topic, wire_batch([b"x"] * 300))
    assert len(messages_in(read(client, topic))) == 300
    assert len(messages_in(read(client, topic, limit=7))) == 7


def test_frames_can_be_read_from_an_instant(client: httpx.Client, topic: str) -> None:
    frames = [encode_frame(b"", b"%d" % at, b"", NOW_NS + at * 1_000_000_000) for at in range(5)]
    publish(client, topic, envelope(frames))
    answer = read(client, topic, from_time="2023-11-14T22:13:23Z")
    assert [each.value for each in messages_in(answer)] == [b"3", b"4"]


def corrupt_batches() -> dict[str, bytes]:
    good = wire_batch([b"first", b"second", b"third"])
    position_table = 12 + 3 * 4
    flipped = bytearray(good)
    flipped[-1] ^= 1
    second = bytearray(good)
    second[position_table + 40 + 4] ^= 0x80
    swapped = bytearray(good)
    swapped[16:20], swapped[20:24] = good[20:24], good[16:20]
    return {
        "empty": b"",
        "cut in the envelope": good[:7],
        "cut in the table": good[:15],
        "cut in a frame": good[:-1],
        "one byte more": good + b"\0",
        "a bit of the last value": bytes(flipped),
        "a bit in the second frame": bytes(second),
        "positions out of order": bytes(swapped),
        "another magic": b"XX" + good[2:],
        "another version": good[:2] + b"\x09" + good[3:],
        "no messages": good[:4] + b"\0\0\0\0" + good[8:],
        "a count of four thousand million": good[:4] + b"\xff\xff\xff\xff" + good[8:],
        "json": b'{"messages": [{"value": "v"}]}',
        "control": envelope([encode_frame(b"", b"ok", b"", NOW_NS), encode_frame(b"", b"", b"", NOW_NS, 2, 8)]),
        "unknown flag": envelope([encode_frame(b"", b"", b"", NOW_NS, 2, 128)]),
        "priority 5": envelope([encode_frame(b"", b"", b"", NOW_NS, 5)]),
        "tombstone with a value": envelope([encode_frame(b"k", b"v", b"", NOW_NS, 2, int(Flag.TOMBSTONE))]),
        "tombstone without a key": envelope([encode_frame(b"", b"", b"", NOW_NS, 2, int(Flag.TOMBSTONE))]),
        "reserved header": envelope([encode_frame(b"", b"", encode_headers((("goqueue-x", b""),)), NOW_NS)]),
        "headers cut short": envelope([encode_frame(b"", b"", b"\x00\x01\x00", NOW_NS)]),
        "ahead of the clock": envelope([encode_frame(b"", b"", b"", time.time_ns() + 2 * HOUR_NS)]),
        "before 1970": envelope([encode_frame(b"", b"", b"", -1)]),
        "larger than a batch": envelope([encode_frame(b"", b"x" * MAX_BATCH_BYTES, b"", NOW_NS)] * 2),
    }


@pytest.mark.parametrize("what", corrupt_batches())
def test_a_batch_with_anything_wrong_is_refused_whole(client: httpx.Client, topic: str, what: str) -> None:
    answer = publish(client, topic, corrupt_batches()[what])
    assert answer.status_code == 400, (what, answer.text)
    assert answer.json()["code"] in {"invalid_frame", "timestamp_out_of_range", "invalid_message"}
    assert latest(client, topic) == 0


def test_transactional_frames_need_a_transaction(client: httpx.Client, topic: str) -> None:
    answer = publish(client, topic, envelope([encode_frame(b"", b"", b"", NOW_NS, 2, int(Flag.TRANSACTIONAL))]))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_frame")
    assert latest(client, topic) == 0


@pytest.mark.parametrize("relative", [False, True])
def test_delayed_frames_wait_and_readers_of_frames_do_not_see_them(
    client: httpx.Client, topic: str, relative: bool
) -> None:
    due_ns = HOUR_NS if relative else time.time_ns() + HOUR_NS
    header = encode_headers((("h", b"1"), due_header(due_ns, relative=relative)))
    delayed = encode_frame(b"k", b"later", header, NOW_NS, 1, int(Flag.DELAYED))
    batch = envelope([encode_frame(b"", b"a", b"", NOW_NS), delayed, encode_frame(b"", b"b", b"", NOW_NS)])
    answer = publish(client, topic, batch)
    assert answer.json() == {"partition": 0, "first_offset": 0, "count": 3}
    assert [(each.offset, each.value) for each in messages_in(read(client, topic))] == [(0, b"a"), (2, b"b")]
    (listed,) = client.get(f"/topics/{topic}/delayed").json()["messages"]
    assert (listed["offset"], listed["key"], listed["headers"], listed["priority"]) == (1, "k", {"h": "1"}, "high")
    if not relative:
        assert listed["deliver_at"] == format_instant_ns(due_ns)


def test_a_delayed_frame_that_is_due_already_is_a_plain_message(client: httpx.Client, topic: str) -> None:
    header = encode_headers((due_header(NOW_NS),))
    publish(client, topic, envelope([encode_frame(b"", b"v", header, NOW_NS, 2, int(Flag.DELAYED))]))
    (message,) = messages_in(read(client, topic))
    assert (message.value, message.headers) == (b"v", ())
    assert client.get(f"/topics/{topic}/delayed").json()["total"] == 0


@pytest.mark.parametrize("wrong", ["no time", "no flag", "time before another header", "before 1970", "beyond 2200"])
def test_a_delayed_frame_that_is_wrong_refuses_the_batch(client: httpx.Client, topic: str, wrong: str) -> None:
    due = due_header(time.time_ns() + HOUR_NS)
    headers, flags = {
        "no time": ((), Flag.DELAYED),
        "no flag": ((due,), 0),
        "time before another header": ((due, ("h", b"")), Flag.DELAYED),
        "before 1970": ((due_header(-1),), Flag.DELAYED),
        "beyond 2200": ((due_header(9 * 10**18),), Flag.DELAYED),
    }[wrong]
    frame = encode_frame(b"", b"v", encode_headers(headers), NOW_NS, 2, int(flags))
    answer = publish(client, topic, envelope([encode_frame(b"", b"a", b"", NOW_NS), frame]))
    assert answer.status_code == 400, answer.text
    assert "message 1 of the batch" in answer.json()["error"]
    assert latest(client, topic) == 0


def test_a_value_larger_than_the_topic_takes_refuses_the_batch(client: httpx.Client, topic: str) -> None:
    client.patch(f"/topics/{topic}", json={"settings": {"max_message_bytes": 1_024}})
    answer = publish(client, topic, wire_batch([b"small", b"x" * 1_025]))
    assert (answer.status_code, answer.json()["code"]) == (413, "message_too_large")
    assert latest(client, topic) == 0


def test_a_compacted_topic_wants_a_key_on_every_frame(client: httpx.Client, topic: str) -> None:
    client.patch(f"/topics/{topic}", json={"settings": {"cleanup": "compact"}})
    assert publish(client, topic, wire_batch([b"v"])).json()["code"] == "invalid_message"


def test_one_message_may_be_larger_than_a_batch(client: httpx.Client, topic: str) -> None:
    assert publish(client, topic, wire_batch([b"x" * (MAX_BATCH_BYTES + 1)])).status_code == 200
    (message,) = messages_in(read(client, topic))
    assert len(message.value) == MAX_BATCH_BYTES + 1


def test_a_batch_for_a_partition_that_does_not_exist_is_refused(client: httpx.Client, topic: str) -> None:
    path = f"/topics/{topic}/partitions/1/messages"
    answer = client.post(path, content=wire_batch([b"v"]), headers={"content-type": FRAMES})
    assert (answer.status_code, answer.json()["code"]) == (404, "partition_not_found")


def test_a_compressed_value_is_unpacked_for_json_and_left_alone_in_frames(client: httpx.Client, topic: str) -> None:
    import zstandard

    packed = zstandard.compress(b"plain text" * 100)
    publish(client, topic, envelope([encode_frame(b"", packed, b"", NOW_NS, 2, int(Flag.COMPRESSED))]))
    (in_json,) = client.get(f"/topics/{topic}/partitions/0/messages").json()["messages"]
    assert in_json["value"] == "plain text" * 100
    (framed,) = messages_in(read(client, topic))
    assert (framed.value, framed.compressed) == (packed, True)


def test_a_value_that_only_claims_to_be_compressed_is_shown_as_it_is(client: httpx.Client, topic: str) -> None:
    publish(client, topic, envelope([encode_frame(b"", b"not zstd", b"", NOW_NS, 2, int(Flag.COMPRESSED))]))
    (in_json,) = client.get(f"/topics/{topic}/partitions/0/messages").json()["messages"]
    assert (in_json["encoding"], in_json["compressed"]) == ("base64", True)
