"""Compressed values in JSON: what they unpack to is bounded, and nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from behaviour.host import Host, config_for
from behaviour.load import FRAMES, envelope, wire_batch
from goqueue.wire.frame import Flag, encode_frame

NOW_NS = 1_700_000_000_000_000_000
PAGE_BYTES = 100_000
VALUE = b"x" * 30_000
ONE = "/topics/t/partitions/0/messages"
BY_QUERY = "/topics/t/messages?partition=0"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    host = Host(config_for(tmp_path, http={"max_read_bytes": PAGE_BYTES}), http=True)
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        create(client, "t", num_partitions=2)
        yield client
    host.stop()


def create(client: httpx.Client, name: str, **more: Any) -> None:
    assert client.post("/topics", json={"name": name, **more}).status_code == 201


def publish(client: httpx.Client, *packed: bytes, topic: str = "t", partition: int = 0) -> None:
    frames = [encode_frame(b"", each, b"", NOW_NS, 2, int(Flag.COMPRESSED)) for each in packed]
    path = f"/topics/{topic}/partitions/{partition}/messages"
    answer = client.post(path, content=envelope(frames), headers={"content-type": FRAMES})
    assert answer.status_code == 200


def pages(client: httpx.Client, path: str) -> list[list[int]]:
    """The offsets in each page until there are no more."""
    found: list[list[int]] = []
    offset = 0
    while True:
        answer = client.get(path, params={**dict(httpx.URL(path).params), "offset": offset, "limit": 1_000}).json()
        if not answer["messages"]:
            return found
        found.append([each["offset"] for each in answer["messages"]])
        offset = answer["next_offset"]


@pytest.mark.parametrize("path", [ONE, BY_QUERY])
def test_a_page_ends_where_unpacking_would_take_it_over_its_bound(client: httpx.Client, path: str) -> None:
    publish(client, *[zstandard.compress(VALUE)] * 8)
    assert pages(client, path) == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_a_value_that_is_larger_than_a_page_has_one_of_its_own(client: httpx.Client) -> None:
    large = zstandard.compress(b"y" * (PAGE_BYTES + 1))
    publish(client, zstandard.compress(b"v"), large, large, zstandard.compress(b"v"))
    assert pages(client, ONE) == [[0], [1], [2], [3]]
    (message,) = client.get(f"{ONE}?offset=1&limit=10").json()["messages"]
    assert len(message["value"]) == PAGE_BYTES + 1


def test_all_partitions_together_have_one_bound_and_nothing_is_left_out(client: httpx.Client) -> None:
    for partition in (0, 1):
        publish(client, *[zstandard.compress(VALUE)] * 2, partition=partition)
    answer = client.get("/topics/t/messages").json()
    assert [(each["partition"], each["offset"]) for each in answer["messages"]] == [(0, 0), (0, 1), (1, 0)]
    assert answer["next_offsets"] == {"0": 2, "1": 1}


def test_what_is_not_compressed_counts_as_well(client: httpx.Client) -> None:
    frames = {"content-type": FRAMES}
    assert client.post(ONE, content=wire_batch([VALUE]), headers=frames).status_code == 200
    publish(client, *[zstandard.compress(VALUE)] * 4)
    assert pages(client, ONE) == [[0, 1, 2], [3, 4]]


def test_values_that_cannot_be_unpacked_share_a_page(client: httpx.Client) -> None:
    publish(client, b"not zstd", zstandard.compress(VALUE)[:-2], b"not zstd", zstandard.compress(b"v"))
    messages = client.get(ONE).json()["messages"]
    assert [each.get("compressed", False) for each in messages] == [True, True, True, False]


def test_a_value_may_unpack_to_the_size_that_its_own_topic_allows(client: httpx.Client) -> None:
    create(client, "small", num_partitions=1, settings={"max_message_bytes": "1KiB"})
    publish(client, zstandard.compress(b"x" * 1_024), zstandard.compress(b"x" * 1_025), topic="small")
    fits, too_large = client.get("/topics/small/partitions/0/messages").json()["messages"]
    assert fits["value"] == "x" * 1_024
    assert (too_large["encoding"], too_large["compressed"]) == ("base64", True)
