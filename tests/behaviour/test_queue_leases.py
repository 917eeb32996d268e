"""Leases: what settles messages over gRPC, many at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from behaviour.driver import Driver
from behaviour.groups import Lease, Polled
from behaviour.groups_in_process import GroupsInProcess
from behaviour.member import Member, filled, handles, refusal

pytestmark = pytest.mark.parametrize("shared", ["grpc"], indirect=True)


def lease_of(message: Polled) -> Lease:
    assert isinstance(message.handle, Lease)
    return message.handle


def test_messages_that_are_delivered_together_have_one_lease(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    messages = Member(shared, name).poll()
    assert len({replace(lease_of(message), offset=0) for message in messages}) == 1


def test_of_a_lease_some_messages_are_settled_and_some_left(shared: Driver, name: str) -> None:
    filled(shared, name, *"abcde")
    member = Member(shared, name)
    a, b, c, d, e = member.poll()
    member.ack(a, c, e)
    member.nack(d, delay_ms=60_000)
    assert member.try_to("reject", [a, b, c]) == ["stale_receipt", None, "stale_receipt"]
    member.ack(d)


def test_a_lease_does_not_hold_for_messages_that_are_not_its_own(shared: Driver, name: str) -> None:
    filled(shared, name, *"abc")
    member = Member(shared, name)
    (mine,), (_,) = member.poll(1), member.poll(1)
    for offset in (1, 2, 500):
        (outcome,) = shared.groups.settle(name, "ack", [replace(lease_of(mine), offset=offset)])
        assert outcome is not None
        assert outcome.code == "stale_receipt"
    assert shared.groups.describe(name).members[0].in_flight == 2


def test_a_lease_of_one_group_is_none_of_another(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    one, other = Member(shared, name), Member(shared, f"{name}-other", name)
    mine, theirs = one.poll(), other.poll()
    (outcome,) = shared.groups.settle(other.group, "ack", handles(mine))
    assert outcome is not None
    assert outcome.code == "invalid_receipt"
    other.ack(*theirs)
    one.ack(*mine)


def test_leases_and_receipts_are_settled_in_one_request(shared: Driver, name: str) -> None:
    filled(shared, name, "a", "b")
    member = Member(shared, name)
    by_receipt = GroupsInProcess(shared.host).poll(name, member.id, 1)
    by_lease = member.poll()
    assert member.try_to("ack", by_lease + by_receipt) == [None, None]
    assert shared.groups.offsets(name) == {name: {0: 2}}


def test_offsets_that_are_far_apart_are_not_of_one_lease(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    mine = lease_of(member.next())
    with refusal("invalid_request"):
        shared.groups.settle(name, "ack", [mine, replace(mine, offset=1 << 40)])
    assert shared.groups.offsets(name) == {name: {0: 0}}


def test_more_time_needs_a_time(shared: Driver, name: str) -> None:
    filled(shared, name, "a")
    member = Member(shared, name)
    message = member.next()
    with refusal("invalid_request"):
        member.try_to("extend", [message])
    member.ack(message)
