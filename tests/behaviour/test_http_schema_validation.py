"""Checking at publish as HTTP tells of it: outcomes, frames, dead letters, stories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import zstandard

from behaviour.http_member import Member, answered, refused
from behaviour.load import FRAMES
from behaviour.traced import SECOND_MS, Traced, kinds, states, traced
from behaviour.waiting import until
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.wire.batch import join_frames
from goqueue.wire.frame import Flag, encode_frame
from goqueue.wire.trace_context import derived_trace_id

NUMBERS, ANYTHING = '{"type": "object", "properties": {"n": {"type": "integer"}}}', "{}"
GOOD, BAD = '{"n": 1}', '{"n": "one"}'
NOT_INTEGER = '/n: the value is not of type "integer"'


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with traced(tmp_path_factory.mktemp("checked")) as it:
        yield it


@pytest.fixture
def broker(shared_broker: Traced) -> Traced:
    """Time begins anew, at a tick."""
    shared_broker.clock.advance_to_tick()
    shared_broker.begun_ns = shared_broker.clock.now_ns()
    return shared_broker


def make(broker: Traced, name: str, mode: str) -> None:
    broker.topic(name, schema_validation=mode)
    register(broker, name, NUMBERS)


def register(broker: Traced, name: str, text: str) -> None:
    registry, run = broker.host.broker.schemas, broker.host.thread.run
    run(registry.configure(f"{name}-value", {"compatibilityLevel": "NONE"}))
    run(registry.register(f"{name}-value", SchemaDraft(text, "JSON")))


def batch(*values: bytes, flags: int = 0) -> bytes:
    now_ns = 1_700_000_000_000_000_000
    return join_frames([encode_frame(b"", value, b"", now_ns, flags=flags) for value in values], now_ns).to_wire()


def test_each_message_has_its_own_outcome(broker: Traced, name: str) -> None:
    make(broker, name, "on")
    outcomes = broker.publish(name, GOOD, BAD, "no JSON", GOOD)
    assert [each.get("offset") for each in outcomes] == [0, None, None, 1]
    assert outcomes[1] == {"error": NOT_INTEGER, "code": "schema_violation", "retriable": False}
    assert outcomes[2]["code"] == "schema_violation"
    assert "no JSON" in outcomes[2]["error"]


def test_if_nothing_fits_the_answer_as_a_whole_says_so(broker: Traced, name: str) -> None:
    make(broker, name, "on")
    answer = broker.client.post(f"/topics/{name}/messages", json={"messages": [{"value": BAD}]})
    body = answer.json()
    assert (answer.status_code, body["code"], body["error"]) == (422, "schema_violation", NOT_INTEGER)
    assert [each["code"] for each in body["results"]] == ["schema_violation"]


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_batch_of_frames_is_refused_as_a_whole(broker: Traced, name: str, is_packed: bool) -> None:
    make(broker, name, "on")
    values = [GOOD.encode(), BAD.encode(), GOOD.encode(), b"x"]
    flags = int(Flag.COMPRESSED) if is_packed else 0

    def send(values: list[bytes]) -> Any:
        packed = [zstandard.compress(value) if is_packed else value for value in values]
        path = f"/topics/{name}/partitions/0/messages"
        return broker.client.post(path, content=batch(*packed, flags=flags), headers={"content-type": FRAMES})

    assert refused(send(values), 422, "schema_violation") == (
        f"message 1 of the batch: {NOT_INTEGER}; 1 more does not fit either"
    )
    assert broker.host.broker.topic(name).partitions[0].log.end_offset == 0
    assert send([values[0], values[2]]).status_code == 200


def test_dead_letters_of_nobody_can_be_looked_at_and_chosen(broker: Traced, name: str) -> None:
    make(broker, name, "dead_letter")
    broker.publish(name, BAD, GOOD, "no JSON", key="k")
    register(broker, name, ANYTHING)
    member = Member(broker.client, f"{name}-g", name)
    settled = broker.host.broker.groups.settling.tally.dead_letters
    broker.settle("reject", member.receipts(), reason="unwanted")
    broker.until_dead(settled + 1)
    path = f"/topics/{name}/dead-letters"
    found = answered(broker.client.get(path))["messages"]
    assert [(each["value"], each["key"], each["group"], each["deliveries"]) for each in found] == [
        (BAD, "k", "", 0),
        ("no JSON", "k", "", 0),
        (GOOD, "k", f"{name}-g", 1),
    ]
    assert answered(broker.client.get(path, params={"error": "not of type"}))["messages"] == found[:1]
    assert (found[0]["error"], found[0]["topic"], found[0]["origin_offset"]) == (NOT_INTEGER, name, 0)


def test_the_story_of_a_message_that_did_not_fit(broker: Traced, name: str) -> None:
    make(broker, name, "dead_letter")
    dead = f"{name}.dlq"
    member = Member(broker.client, f"{name}-g", name)
    broker.publish(name, GOOD, BAD)
    story = broker.at(name, 1)
    place = {"topic": dead, "partition": 0, "offset": 0}
    assert broker.timeline(story) == [(0, "publish", {}), (0, "dlq", {"reason": NOT_INTEGER, "to": place})]
    assert (story["status"], states(story)) == ("error", [])
    assert broker.at(dead, 0) == story
    assert kinds(broker.at(name, 0)) == ["publish"]

    register(broker, name, ANYTHING)
    broker.let_pass(SECOND_MS)
    answered(broker.client.post(f"/topics/{name}/redrive", json={}))
    until(lambda: broker.host.broker.topic(name).partition(0).high_watermark == 3)
    story = broker.at(name, 1)
    assert kinds(story) == ["publish", "dlq", "redriven"]
    assert (story["status"], states(story)) == ("pending", [(f"{name}-g", "waiting")])
    broker.settle("ack", member.receipts())
    story = broker.at(name, 1)
    assert kinds(story) == ["publish", "dlq", "redriven", "consume", "ack"]
    assert (story["status"], states(story)) == ("completed", [(f"{name}-g", "settled")])
    assert broker.at(name, 2) == broker.trace(derived_trace_id(dead, 0, 0)) == story
    broker.restart()
    assert broker.at(name, 1) == story
