"""Settling messages over HTTP: ack, nack, reject, more time; one by one or many at once; forged and stale receipts."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from behaviour.clock import ManualClock
from behaviour.host import Host, config_for
from behaviour.http_member import Member, answered, publish, refused, settle
from behaviour.waiting import until
from goqueue.model.units import format_instant_ns

VERBS = {"ack": {}, "nack": {"delay": "0s"}, "reject": {}, "visibility": {"timeout": "10s"}}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def host(tmp_path: Path, clock: ManualClock) -> Iterator[Host]:
    host = Host(config_for(tmp_path), http=True, clock=clock)
    yield host
    host.stop()


@pytest.fixture
def client(host: Host) -> Iterator[httpx.Client]:
    """Of a broker whose topic ``t`` holds the messages a, b, c and d."""
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as client:
        assert client.post("/topics", json={"name": "t", "num_partitions": 1}).status_code == 201
        publish(client, "t", *"abcd")
        yield client


@pytest.fixture
def member(client: httpx.Client) -> Member:
    return Member(client, "g", "t")


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [message["value"] for message in messages]


def stats(client: httpx.Client) -> dict[str, int]:
    return dict(answered(client.get("/reliability/stats")))


def in_flight(client: httpx.Client) -> int:
    return int(answered(client.get("/groups/g"))["members"][0]["in_flight"])


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_each_answer_has_the_names_of_the_contract(
    client: httpx.Client, member: Member, clock: ManualClock, prefix: str
) -> None:
    first, second, third, fourth = member.receipts()
    ask = {"receipt_handle": first, "consumer_id": member.id}
    assert answered(client.post(f"{prefix}/messages/ack", json=ask)) == {"acknowledged": True}
    ask = {"receipt_handle": second, "delay": "5s"}
    assert answered(client.post(f"{prefix}/messages/nack", json=ask)) == {"requeued": True}
    ask = {"receipt_handle": third, "reason": "cannot be read"}
    assert answered(client.post(f"{prefix}/messages/reject", json=ask)) == {"rejected": True, "dlq_topic": "t.dlq"}
    ask = {"receipt_handle": fourth, "timeout": "1h"}
    deadline = format_instant_ns(clock.now_ns() + 3_600_000_000_000)
    extended = answered(client.post(f"{prefix}/messages/visibility", json=ask))
    assert extended == {"extended": True, "new_deadline": deadline}
    until(lambda: stats(client)["dlq_messages"] == 1)
    assert answered(client.get(f"{prefix}/reliability/stats")) == {
        "acks_total": 1,
        "nacks_total": 1,
        "rejects_total": 1,
        "dlq_messages": 1,
        "visibility_extensions": 1,
        "redeliveries": 0,
        "visibility_timeouts": 0,
        "redriven": 0,
        "expired": 0,
    }


@pytest.mark.parametrize(("verb", "done"), [("ack", "acknowledged"), ("nack", "requeued"), ("reject", "rejected")])
def test_many_are_settled_at_once(client: httpx.Client, member: Member, verb: str, done: str) -> None:
    answer = answered(settle(client, verb, member.receipts(), **VERBS[verb]))
    assert answer[done] is True
    assert [each["ok"] for each in answer["results"]] == [True] * 4
    assert in_flight(client) == 0


def test_many_are_given_more_time_at_once(client: httpx.Client, member: Member, clock: ManualClock) -> None:
    receipts = member.receipts()
    answer = answered(settle(client, "visibility", receipts, timeout="1h"))
    assert (answer["extended"], answer["results"]) == (True, [{"ok": True}] * 4)
    clock.advance_ms(40_000)
    assert member.poll() == []


def test_each_rejected_message_tells_where_it_goes(client: httpx.Client, member: Member) -> None:
    answer = answered(settle(client, "reject", member.receipts(max_messages=2), reason="no"))
    assert answer == {"rejected": True, "results": [{"ok": True, "dlq_topic": "t.dlq"}] * 2}


def test_receipts_that_hold_are_carried_out_whatever_becomes_of_the_others(
    client: httpx.Client, member: Member
) -> None:
    first, second, *_ = member.receipts()
    answer = answered(settle(client, "ack", [first, "forged", first, altered(second, 2, "3"), second]))
    assert answer["acknowledged"] is False
    assert [each.get("ok", each.get("code")) for each in answer["results"]] == [
        True, "invalid_receipt", True, "invalid_receipt", True,
    ]  # fmt: skip
    wrong = answer["results"][1]
    assert wrong.keys() == {"error", "code", "retriable"}
    assert wrong["retriable"] is False
    assert in_flight(client) == 2


def test_ten_thousand_receipts_are_taken_and_no_more(client: httpx.Client, member: Member) -> None:
    first, *_ = member.receipts()
    results = answered(settle(client, "ack", [first, *["forged"] * 9_999]))["results"]
    assert [each.get("ok") for each in results] == [True] + [None] * 9_999
    refused(settle(client, "ack", [first] * 10_001), 400, "invalid_request")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"receipt_handle": "x", "receipt_handles": ["x"]},
        {"receipt_handles": []},
        {"receipt_handles": "x"},
        {"receipt_handles": [1]},
        {"receipt_handle": 1},
        {"receipt_handle": "x", "receipt": "x"},
    ],
)
def test_a_request_names_one_receipt_or_many(
    client: httpx.Client, member: Member, verb: str, fields: dict[str, Any]
) -> None:
    refused(client.post(f"/messages/{verb}", json={**VERBS[verb], **fields}), 400, "invalid_request")


def altered(receipt: str, part: int, text: str) -> str:
    parts = receipt.split(":")
    assert parts[part] != text
    parts[part] = text
    return ":".join(parts)


def with_proof(receipt: str, change: Any) -> str:
    packed = receipt.rpartition(":")[2]
    proof = bytearray(urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
    change(proof)
    return altered(receipt, 4, urlsafe_b64encode(bytes(proof)).decode().rstrip("="))


def flip(place: int) -> Any:
    def change(proof: bytearray) -> None:
        proof[place] ^= 1

    return change


def for_group(name: bytes) -> Any:
    def change(proof: bytearray) -> None:
        proof[20:] = name

    return change


@pytest.mark.parametrize("verb", VERBS)
def test_a_receipt_that_was_altered_in_any_part_is_refused_and_settles_nothing(
    client: httpx.Client, member: Member, verb: str
) -> None:
    assert client.post("/topics", json={"name": "u", "num_partitions": 2}).status_code == 201
    Member(client, "g", "u")
    receipt, *_ = member.receipts()
    forged = [
        altered(receipt, 0, "u"),
        altered(receipt, 1, "7"),
        altered(receipt, 2, "1"),
        altered(receipt, 2, "00"),
        altered(receipt, 2, "-1"),
        altered(receipt, 3, "2"),
        with_proof(receipt, flip(0)),
        with_proof(receipt, flip(7)),
        with_proof(receipt, flip(8)),
        with_proof(receipt, flip(19)),
        altered(receipt, 4, ""),
        altered(receipt, 4, "AAAA"),
        altered(receipt, 4, "ü"),
        receipt + ":x",
        "",
        ":::: ",
        "x" * 2_000,
        "1" * 500 + ":" + "2" * 500,
    ]
    for each in forged:
        refused(settle(client, verb, each, **VERBS[verb]), 400, "invalid_receipt")
    assert in_flight(client) == 4
    answered(settle(client, "ack", receipt))


@pytest.mark.parametrize(
    ("name", "status"), [(b"other", 400), (b"not-there", 410), (b"__redrive", 410), (b"\xff", 400)]
)
def test_a_receipt_of_one_group_is_none_of_another(
    client: httpx.Client, member: Member, name: bytes, status: int
) -> None:
    Member(client, "other", "t").poll()
    receipt, *_ = member.receipts()
    answer = settle(client, "ack", with_proof(receipt, for_group(name)))
    assert answer.status_code == status, answer.text
    assert in_flight(client) == 4


def test_acking_twice_is_as_good_as_once(client: httpx.Client, member: Member) -> None:
    first, *_ = member.receipts()
    for _ in range(2):
        assert answered(settle(client, "ack", first)) == {"acknowledged": True}
    assert stats(client)["acks_total"] == 1


@pytest.mark.parametrize("verb", ["nack", "reject", "visibility"])
def test_a_receipt_of_an_acked_message_is_void_for_anything_else(
    client: httpx.Client, member: Member, verb: str
) -> None:
    first, *_ = member.receipts()
    answered(settle(client, "ack", first))
    assert "settled already" in refused(settle(client, verb, first, **VERBS[verb]), 410, "stale_receipt")


def test_what_was_given_back_is_not_said_to_have_timed_out(client: httpx.Client, member: Member) -> None:
    first, *_ = member.receipts()
    answered(settle(client, "nack", first, delay="1h"))
    told = refused(settle(client, "visibility", first, timeout="1m"), 410, "stale_receipt")
    assert "was given back" in told and "timed out" not in told


@pytest.mark.parametrize("verb", VERBS)
def test_a_receipt_is_void_when_the_message_was_delivered_again(
    client: httpx.Client, member: Member, verb: str
) -> None:
    old, *_ = member.receipts(max_messages=1)
    answered(settle(client, "nack", old, delay="0s"))
    new = next(each for each in member.poll() if each["offset"] == 0)
    assert new["deliveries"] == 2
    assert "delivered again" in refused(settle(client, verb, old, **VERBS[verb]), 410, "stale_receipt")
    answered(settle(client, "ack", new["receipt_handle"]))


def test_a_receipt_whose_time_is_over_holds_until_someone_else_has_the_message(
    client: httpx.Client, member: Member, clock: ManualClock
) -> None:
    first, *_ = member.receipts()
    clock.advance_ms(30_000)
    assert answered(settle(client, "ack", first)) == {"acknowledged": True}


def test_a_receipt_of_a_topic_that_was_deleted_is_void(client: httpx.Client, member: Member) -> None:
    first, *_ = member.receipts()
    client.delete("/topics/t")
    refused(settle(client, "ack", first), 410, "stale_receipt")
    assert client.post("/topics", json={"name": "t", "num_partitions": 1}).status_code == 201
    assert settle(client, "ack", first).status_code in {400, 410}


def test_a_receipt_of_a_group_that_was_made_anew_is_void(client: httpx.Client, member: Member) -> None:
    first, *_ = member.receipts()
    member.leave()
    answered(client.delete("/groups/g"))
    refused(settle(client, "ack", first), 410, "stale_receipt")
    Member(client, "g", "t").poll()
    refused(settle(client, "ack", first), 400, "invalid_receipt")


def test_receipts_hold_over_a_restart(host: Host, client: httpx.Client, member: Member) -> None:
    receipts = member.receipts()
    host.stop()
    host.start()
    with httpx.Client(base_url=host.url, timeout=30, trust_env=False) as again:
        assert answered(settle(again, "ack", receipts))["acknowledged"] is True
        assert answered(again.get("/groups/g"))["total_lag"] == 0


def test_a_nacked_message_comes_back_after_its_delay(client: httpx.Client, member: Member, clock: ManualClock) -> None:
    first, *others = member.receipts()
    answered(settle(client, "ack", others))
    answered(settle(client, "nack", first, delay="1h30m"))
    clock.advance_ms(5_399_999)
    assert member.poll() == []
    clock.advance_ms(1)
    assert values(member.poll()) == ["a"]


def test_a_nacked_message_backs_off_if_no_delay_is_given(
    client: httpx.Client, member: Member, clock: ManualClock
) -> None:
    first, *others = member.receipts()
    answered(settle(client, "ack", others))
    answered(settle(client, "nack", first))
    assert member.poll() == []
    clock.advance_ms(1_000)
    assert values(member.poll()) == ["a"]


def test_more_time_keeps_a_message_hidden_and_none_shows_it_at_once(
    client: httpx.Client, member: Member, clock: ManualClock
) -> None:
    first, *others = member.receipts()
    answered(settle(client, "ack", others))
    answered(settle(client, "visibility", first, timeout="12h"))
    clock.advance_ms(12 * 3_600_000 - 1)
    assert member.poll() == []
    answered(settle(client, "visibility", first, timeout="0s"))
    assert [each["deliveries"] for each in member.poll()] == [2]


@pytest.mark.parametrize(
    ("verb", "fields", "named"),
    [
        ("nack", {"delay": "12h1ms"}, "delay"),
        ("nack", {"delay": "-1s"}, "delay"),
        ("nack", {"delay": "10"}, "delay"),
        ("nack", {"delay": 10}, "delay"),
        ("nack", {"reason": "x" * 1_001}, "reason"),
        ("reject", {"reason": "x" * 1_001}, "reason"),
        ("visibility", {"timeout": "12h1ms"}, "timeout"),
        ("visibility", {"timeout": "soon"}, "timeout"),
        ("visibility", {}, "timeout"),
        ("ack", {"delay": "1s"}, "delay"),
    ],
)
def test_a_request_that_is_wrong_settles_nothing(
    client: httpx.Client, member: Member, verb: str, fields: dict[str, Any], named: str
) -> None:
    receipts = member.receipts()
    for receipt in (receipts[0], receipts):
        assert named in refused(settle(client, verb, receipt, **fields), 400, "invalid_request")
    assert in_flight(client) == 4
    assert {stats(client)[each] for each in ("nacks_total", "rejects_total", "visibility_extensions")} == {0}


def test_a_dead_letter_that_is_rejected_stays_where_it_lies(client: httpx.Client, member: Member) -> None:
    answered(settle(client, "reject", member.receipts()[0]))
    until(lambda: stats(client)["dlq_messages"] == 1)
    mourner = Member(client, "mourners", "t.dlq")
    (receipt,) = mourner.receipts()
    assert answered(settle(client, "reject", receipt)) == {"rejected": True}
    assert mourner.poll() == []
    assert len(answered(client.get("/topics/t.dlq/partitions/0/messages"))["messages"]) == 1


def test_rejecting_goes_where_the_topic_says(client: httpx.Client) -> None:
    settings = {"partitions": 1, "dead_letter_topic": "the-end"}
    assert client.post("/topics", json={"name": "own", "settings": settings}).status_code == 201
    publish(client, "own", "v")
    (receipt,) = Member(client, "own", "own").receipts()
    assert answered(settle(client, "reject", receipt))["dlq_topic"] == "the-end"


def test_a_reason_may_be_any_text(client: httpx.Client, member: Member) -> None:
    reason = "kaputt \U0001f4a5 \x00\n"
    answered(settle(client, "reject", member.receipts()[0], reason=reason))
    until(lambda: stats(client)["dlq_messages"] == 1)
    (letter,) = answered(client.get("/topics/t/dead-letters"))["messages"]
    assert letter["error"] == reason
