"""``goqueue serve`` as a process: how it starts, stops, dies and comes back."""

from __future__ import annotations

import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from doubles.patience import PATIENCE_S

from behaviour.process import BrokerProcess, DidNotStart, broker_process
from behaviour.raw import RawConnection, ask, request

ONE = json.dumps({"messages": [{"value": "v", "partition": 0}]}).encode()


def publish(broker: BrokerProcess, count: int = 1, topic: str = "t") -> None:
    with broker.client() as client:
        client.post("/topics", json={"name": topic, "num_partitions": 1})
        body = {"messages": [{"value": f"{number}"} for number in range(count)]}
        assert client.post(f"/topics/{topic}/messages", json=body).status_code == 200


def values(broker: BrokerProcess, topic: str = "t") -> list[str]:
    with broker.client() as client:
        answer = client.get(f"/topics/{topic}/partitions/0/messages", params={"limit": 10_000})
        return [each["value"] for each in answer.json()["messages"]]


def test_a_stop_finishes_what_was_accepted_and_ends_with_status_0(tmp_path: Path) -> None:
    """Publishers that go on until they are refused: what was acknowledged up to the last moment is there."""
    with broker_process(tmp_path) as broker:
        publish(broker)

        def publish_until_refused(who: int) -> list[str]:
            acknowledged: list[str] = []
            with RawConnection(broker.port) as connection:
                for number in range(100_000):
                    value = f"{who}-{number}"
                    body = json.dumps({"messages": [{"value": value, "partition": 0}]}).encode()
                    try:
                        connection.send(request("POST", "/topics/t/messages", body))
                        answer = connection.answer()
                    except OSError:
                        return acknowledged
                    if answer.status != 200:
                        assert answer.json["code"] == "shutting_down"
                        assert answer.json["retriable"] is True
                        assert answer.headers["retry-after"]
                        return acknowledged
                    acknowledged.append(value)
            raise AssertionError("the broker did not stop")

        with ThreadPoolExecutor(4) as pool:
            publishers = [pool.submit(publish_until_refused, who) for who in range(4)]
            with broker.client() as client:
                while client.get("/topics/t").json()["total_messages"] < 200:
                    pass
            assert broker.stop() == 0
            acknowledged = [value for each in publishers for value in each.result()]
        assert not broker.complaints()
    with broker_process(tmp_path) as broker:
        assert sorted(values(broker)[1:]) == sorted(acknowledged)


def test_reads_that_wait_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        publish(broker)
        with RawConnection(broker.port) as connection:
            connection.send(request("GET", "/topics/t/partitions/0/messages?offset=1&wait=25s"))
            # A second request on another connection is answered after the first was taken in.
            assert ask(broker.port, request("GET", "/health")).status == 200
            broker.terminate()
            answer = connection.answer()
            assert (answer.status, answer.json["messages"]) == (200, [])
        assert broker.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_stop_it_with_status_0(tmp_path: Path, number: signal.Signals) -> None:
    with broker_process(tmp_path) as broker:
        broker.process.send_signal(number)
        assert broker.wait() == 0


def test_an_idle_connection_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker, RawConnection(broker.port) as idle, RawConnection(broker.port) as half:
        idle.send(request("GET", "/health"))
        assert idle.answer().status == 200
        half.send(b"GET /health HTTP/1.1\r\nHost:")
        broker.terminate()
        assert broker.wait() == 0


def test_a_client_that_stops_in_the_middle_of_its_body_holds_up_a_stop_only_until_the_timeout(tmp_path: Path) -> None:
    with (
        broker_process(tmp_path, "--set", "http.shutdown_timeout_ms=1s") as broker,
        RawConnection(broker.port) as connection,
    ):
        publish(broker)
        connection.send(request("POST", "/topics/t/messages", ONE)[:-5])
        assert ask(broker.port, request("GET", "/health")).status == 200
        assert broker.stop() == 0
    with broker_process(tmp_path) as broker:
        assert values(broker) == ["0"]


def test_a_start_after_a_clean_stop_scans_nothing(tmp_path: Path) -> None:
    with broker_process(tmp_path, "--set", "topic.segment_bytes=64KiB") as broker:
        publish(broker, 5_000)
        assert broker.stop() == 0
    points = (tmp_path / "checkpoint").read_bytes()
    with broker_process(tmp_path, "--log-level", "debug") as broker:
        assert len(values(broker)) == 5_000
        assert not broker.complaints()
        assert not [event for event in broker.events() if "scan" in event["event"] or "recover" in event["event"]]
        assert broker.stop() == 0
    assert (tmp_path / "checkpoint").read_bytes() == points


def test_a_broker_that_was_killed_starts_again_with_everything(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        publish(broker, 500)
        broker.kill()
    with broker_process(tmp_path) as broker:
        assert values(broker) == [str(number) for number in range(500)]


def test_a_second_broker_on_the_same_folder_ends_with_a_clear_error_and_status_1(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        with pytest.raises(DidNotStart, match="in use by another broker") as failure:
            BrokerProcess(tmp_path)
        assert failure.value.status == 1
        assert str(broker.process.pid) in failure.value.log
        assert "Traceback" not in failure.value.log
        publish(broker)
        assert values(broker) == ["0"]


def test_a_port_that_is_in_use_is_a_clear_error(tmp_path: Path) -> None:
    with broker_process(tmp_path / "one") as broker:
        with pytest.raises(DidNotStart, match=f"127.0.0.1:{broker.port}") as failure:
            BrokerProcess(tmp_path / "two", port=broker.port)
        assert failure.value.status != 0
        assert "Traceback" not in failure.value.log


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DidNotStart, match=r"storage\.path") as failure:
        BrokerProcess(tmp_path / "file")
    assert failure.value.status == 2
    assert "Traceback" not in failure.value.log


def test_while_the_disk_is_nearly_full_publishing_is_refused_with_507_and_reading_goes_on(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        publish(broker)
        assert broker.stop() == 0
    with broker_process(tmp_path, "--set", "storage.min_free_bytes=16TiB") as broker:
        answer = ask(broker.port, request("POST", "/topics/t/messages", ONE))
        assert (answer.status, answer.json["code"], answer.json["retriable"]) == (507, "disk_full", True)
        assert int(answer.headers["retry-after"]) >= 1
        assert ask(broker.port, request("POST", "/topics", b'{"name": "u"}')).status == 507
        assert values(broker) == ["0"]
        assert ask(broker.port, request("GET", "/readyz")).status == 503
        assert ask(broker.port, request("GET", "/health")).json["status"] == "degraded"
        assert ask(broker.port, request("GET", "/livez")).status == 200


def test_a_broker_that_has_not_been_asked_yet_knows_that_its_disk_is_full(tmp_path: Path) -> None:
    with broker_process(tmp_path, "--set", "storage.min_free_bytes=16TiB") as broker:
        answer = ask(broker.port, request("GET", "/readyz?verbose=true"))
        assert (answer.status, answer.json["checks"]["disk"]["status"]) == (503, "fail")


def ports_of(broker: BrokerProcess) -> tuple[int, int]:
    listening = broker.wait_for_event("listening")
    return listening["port"], listening["grpc_port"]


def is_reached(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return False
    return True


def test_rule_26_a_broker_listens_on_loopback_alone_unless_it_is_configured_otherwise(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        for port in ports_of(broker):
            assert is_reached("127.0.0.1", port)
            # An address of this machine as well: what listens everywhere would answer.
            assert not is_reached("127.0.0.2", port)
        assert not broker.complaints()


@pytest.mark.parametrize("exposed", ["http", "grpc"])
def test_rule_26_a_broker_that_others_can_reach_warns_that_there_is_no_authentication(
    tmp_path: Path, exposed: str
) -> None:
    with broker_process(tmp_path, "--set", f"{exposed}.host=0.0.0.0") as broker:
        for name, port in zip(("http", "grpc"), ports_of(broker), strict=True):
            assert is_reached("127.0.0.2", port) == (name == exposed)
        [warning] = broker.complaints()
        assert (warning["level"], warning["event"]) == ("warning", "listening without authentication")
