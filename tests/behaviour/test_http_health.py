"""What the health paths answer when something is wrong, and what the log tells of a request that failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from behaviour.clock import ManualClock
from behaviour.driver import Refused
from behaviour.faulty_files import FaultyFiles, of_metadata, of_topic
from behaviour.over_http import HttpDriver
from behaviour.waiting import until
from goqueue.broker.metrics.health import HOPELESS_FSYNC_NS, SLOW_FSYNC_NS, STUCK_FSYNC_NS
from goqueue.model.clock import NANOS_PER_MS

PATIENCE_S = 30.0
MIB = 1 << 20
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


class Patient(HttpDriver):
    """A broker whose disk and time are the test's."""

    def __init__(self, path: Path, **http: int) -> None:
        self.disk = FaultyFiles()
        super().__init__(path, files=self.disk, clock=ManualClock(), storage={"min_free_bytes": MIB}, http=http)
        self.disk.free = 100 * MIB
        # However busy the machine is.
        self.host.broker.health._loop_delay.worst_ns = lambda: 0  # type: ignore[method-assign]

    def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        # The disk is looked at anew only after a while.
        self.clock.advance_ms(100)
        answer = self.client.get(path)
        return answer.status_code, answer.json()

    def says(self, path: str) -> tuple[int, str, str]:
        status, body = self.ask(path)
        return status, body["status"], body["message"]

    def wrong(self) -> dict[str, str]:
        """Of the checks that do not pass, the status."""
        checks = self.ask("/readyz?verbose=true")[1]["checks"]
        return {name: check["status"] for name, check in checks.items() if check["status"] != "pass"}


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Patient]:
    """For what only a restart cures."""
    made = Patient(tmp_path)
    made.create_topic("t", partitions=2)
    yield made
    made.disk.fails = lambda path: False
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    made = Patient(tmp_path_factory.mktemp("health"))
    made.create_topic("t", partitions=2)
    yield made
    made.close()


@pytest.fixture
def broker(shared: Patient) -> Iterator[Patient]:
    """For what passes by itself."""
    yield shared
    shared.disk.free = 100 * MIB
    shared.disk.cannot_write = lambda path: False
    shared.clock.advance_ms(60_000)
    for partition in shared.host.broker.topic("t").partitions:
        partition.damaged.clear()


def test_a_broker_that_works_has_nothing_to_say(broker: Patient) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert broker.says(path) == (200, "pass", "")
    assert broker.wrong() == {}
    assert broker.ask("/health")[1]["status"] == "ok"


def test_a_failed_partition_is_named_everywhere_and_wants_a_restart(mortal: Patient) -> None:
    mortal.disk.fails = of_topic("t", 1)
    with pytest.raises(Refused):
        mortal.publish_one("t", b"v", partition=1)
    for path in ("/healthz", "/livez", "/readyz"):
        status, outcome, message = mortal.says(path)
        assert (status, outcome) == (503, "fail")
        assert "storage: 1 log takes no writes" in message
        assert "t/1 (fsync: Input/output error)" in message
    assert mortal.wrong() == {"storage": "fail"}
    [problem] = mortal.ask("/health")[1]["problems"]
    assert "t/1" in problem
    mortal.disk.fails = lambda path: False
    mortal.restart()
    assert mortal.says("/livez") == (200, "pass", "")


def test_a_failed_journal_says_what_stands_still(mortal: Patient) -> None:
    mortal.disk.fails = of_metadata
    with pytest.raises(Refused):
        mortal.create_topic("u")
    status, _, message = mortal.says("/livez")
    assert status == 503
    assert "topics cannot be made, changed or deleted" in message


def test_a_full_disk_is_not_ready_and_needs_no_restart(broker: Patient) -> None:
    broker.disk.free = MIB // 2
    assert broker.says("/livez") == (200, "pass", "")
    status, outcome, message = broker.says("/healthz")
    assert (status, outcome) == (200, "pass")
    assert "disk: 512.0 KiB free, less than storage.min_free_bytes (1.0 MiB)" in message
    assert broker.says("/readyz")[:2] == (503, "fail")
    assert broker.wrong() == {"disk": "fail"}
    broker.disk.free = 100 * MIB
    assert broker.says("/readyz") == (200, "pass", "")


def test_a_disk_that_fills_up_is_a_warning_before_it_is_full(broker: Patient) -> None:
    broker.disk.free = MIB * 3 // 2
    for path in ("/healthz", "/readyz"):
        status, outcome, message = broker.says(path)
        assert (status, outcome) == (200, "pass")
        assert "disk: 1.5 MiB free" in message
    assert broker.wrong() == {"disk": "warn"}


def test_a_write_that_found_no_room_makes_the_broker_not_ready_whatever_the_disk_says(broker: Patient) -> None:
    broker.disk.cannot_write = of_topic("t")
    with pytest.raises(Refused):
        broker.publish_one("t", b"v")
    assert broker.says("/readyz")[:2] == (503, "fail")
    assert broker.wrong() == {"disk": "fail"}
    assert broker.says("/livez") == (200, "pass", "")


def test_an_fsync_that_hangs_is_told_while_it_hangs(broker: Patient) -> None:
    with broker.disk.hanging(of_topic("t")) as begun:
        publishing = broker.background(broker.publish_one, "t", b"v")
        assert begun.wait(PATIENCE_S)
        broker.clock.advance_ms(SLOW_FSYNC_NS // NANOS_PER_MS)
        assert broker.wrong() == {"fsync": "warn"}
        assert broker.says("/readyz")[0] == 200
        broker.clock.advance_ms(STUCK_FSYNC_NS // NANOS_PER_MS)
        status, _, message = broker.says("/readyz")
        assert status == 503
        assert "fsync: an fsync has been running for 12 s" in message
        assert broker.says("/livez") == (200, "pass", "")
        broker.clock.advance_ms(HOPELESS_FSYNC_NS // NANOS_PER_MS)
        status, _, message = broker.says("/livez")
        assert status == 503
        assert "restart the broker" in message
    publishing.result(PATIENCE_S)
    assert broker.says("/readyz") == (200, "pass", "")


def test_a_broker_that_has_as_much_to_do_as_it_may_is_alive_and_says_so(tmp_path: Path) -> None:
    busy = Patient(tmp_path, max_concurrent_requests=2)
    busy.create_topic("t", partitions=1)
    with busy.disk.hanging(of_topic("t")):
        publishing = [busy.background(busy.publish_one, "t", b"v") for _ in range(2)]
        until(lambda: busy.ask("/topics")[0] == 503)
        for path in ("/livez", "/healthz", "/readyz"):
            assert busy.says(path) == (200, "pass", "")
    for each in publishing:
        each.result(PATIENCE_S)
    busy.close()


def test_damage_is_a_warning_in_words(broker: Patient) -> None:
    broker.host.broker.topic("t").partitions[0].note_damage([7])
    for path in ("/healthz", "/readyz?verbose=true"):
        status, outcome, message = broker.says(path)
        assert (status, outcome) == (200, "pass")
        assert "damage: messages are damaged or gone: t/0: offset 7 fails its checksum" in message
        assert "after 'goqueue doctor --repair'" in message
    assert broker.wrong() == {"damage": "warn"}


def test_a_broker_that_stops_is_not_ready_and_alive(mortal: Patient) -> None:
    mortal.host.broker.stop_accepting()
    assert mortal.says("/readyz") == (503, "fail", "shutdown: the broker is stopping and takes nothing new")
    assert mortal.says("/livez") == (200, "pass", "")


# Requests that fail


@pytest.mark.parametrize("path", ["/topics/t/messages", "/topics"])
@pytest.mark.parametrize(
    ("headers", "trace_id"),
    [
        ({"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}, TRACE_ID),
        ({"traceparent": "00-nonsense"}, None),
        ({}, None),
    ],
    ids=["traced", "nonsense", "untraced"],
)
def test_a_request_that_fails_is_logged_with_the_trace_that_it_belongs_to(
    broker: Patient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    headers: dict[str, str],
    trace_id: str | None,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("why")

    monkeypatch.setattr(broker.host.broker.publisher, "publish", fail)
    monkeypatch.setattr(broker.host.broker, "topic_names", fail)
    if path == "/topics":
        answer = broker.client.get(path, headers=headers)
    else:
        answer = broker.client.post(path, headers=headers, json={"messages": [{"value": "v"}]})
    assert answer.status_code == 500
    [line] = [each for each in caplog.records if getattr(each.msg, "event", "") == "request failed"]
    assert line.fields.get("trace_id") == trace_id  # type: ignore[attr-defined]
    assert line.exc_info is not None
