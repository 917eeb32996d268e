"""What users get for their own tests, and the broker that is embedded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from goqueue import Broker, Client, Config, NewMessage, Published
from goqueue.broker.partitions.read import Bounds
from goqueue.model.config import StorageConfig
from goqueue.model.errors import BrokerUnavailable, TopicNotFound
from goqueue.testing import BrokerProcess, running_broker


def test_a_broker_for_a_test_starts_works_and_leaves_nothing_behind() -> None:
    with running_broker() as broker:
        with broker.client() as client:
            client.create_topic("orders")
            assert client.list_topics() == ["orders"]
        folder = broker.data
        assert folder.exists()
    assert not folder.exists()
    assert broker.process.returncode == 0


def test_a_broker_on_a_given_folder_keeps_its_messages_and_may_keep_its_ports(tmp_path: Path) -> None:
    with running_broker(tmp_path) as first, first.client() as client, client.producer() as producer:
        client.create_topic("t", partitions=1)
        producer.send("t", "kept").result()
    with (
        running_broker(tmp_path, http_port=first.http_port, grpc_port=first.grpc_port) as second,
        Client(first.address) as client,
    ):
        assert second.address == first.address
        assert [record.value for record in client.read("t")] == [b"kept"]


def test_settings_reach_the_broker() -> None:
    with running_broker(settings={"topic.partitions": 7}) as broker, broker.client() as client:
        assert len(client.create_topic("t").partitions) == 7


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with running_broker(tmp_path) as first:
        with pytest.raises(BrokerUnavailable, match="in use by another broker"):
            BrokerProcess(tmp_path)
        with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{first.grpc_port}"):
            BrokerProcess(tmp_path / "other", grpc_port=first.grpc_port)
    with pytest.raises(BrokerUnavailable, match="nonsense"):
        BrokerProcess(tmp_path, settings={"nonsense": 1})


def test_a_broker_that_a_test_has_killed_is_no_problem(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.kill()
    assert broker.process.returncode == -9


def test_the_fixtures_work_in_a_project_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["goqueue.testing.fixtures"]\n')
    (tmp_path / "test_mine.py").write_text(
        dedent(
            """
            def test_one(goqueue_client):
                goqueue_client.create_topic("one")

            def test_the_broker_is_shared_by_the_session(goqueue_client, goqueue_broker):
                assert goqueue_client.list_topics() == ["one"]
                assert goqueue_broker.url.startswith("http://127.0.0.1:")
            """
        )
    )
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout


async def test_a_broker_can_be_embedded_with_no_network_at_all(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data") as broker:
        await broker.create_topic("t", {"partitions": 1})
        assert await broker.publish("t", [NewMessage(b"a"), NewMessage(b"b", key=b"k")]) == [
            Published(0, 0, 2),
            Published(0, 1, 2),
        ]
        found = await broker.read("t", 0, Bounds(max_bytes=1 << 20))
        assert [(message.key, message.value) for message in found.messages] == [(None, b"a"), (b"k", b"b")]
        with pytest.raises(TopicNotFound):
            await broker.publish("nope", [NewMessage(b"v")])
    async with Broker(Config(storage=StorageConfig(path=str(tmp_path / "data")))) as broker:
        assert broker.topic_names() == ["t"]


def test_the_plugin_and_the_module_say_what_they_are_for() -> None:
    import goqueue.testing as testing
    from goqueue.testing import fixtures

    for documented in (testing, testing.BrokerProcess, testing.running_broker, fixtures):
        assert documented.__doc__
