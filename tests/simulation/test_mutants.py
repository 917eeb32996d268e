"""Places that wait for the disk, and guards against what comes from the past: schedules notice when one is missing."""

from __future__ import annotations

import pytest

import guard_sites
from goqueue.coordination.group import Group, GroupState
from goqueue.model.errors import UnknownMember
from goqueue.model.ids import GroupId
from simulate_mutants import all_sites, covers, noticed, unsimulated


@pytest.mark.parametrize(
    "site",
    [
        "broker/publishing/appending.py  Appender._acknowledged  acknowledge  1",
        "broker/queues/settlement_service.py  SettlementService._carry_out  await all_settled  1",
        "storage/log/group_commit.py  GroupCommit._carry_out  sync  1",
        "coordination/group.py  Group.member  raise UnknownMember  1",
        "delivery/claims.py  claim_message  raise _refusal  1",
    ],
)
def test_a_place_that_is_missing_is_noticed(site: str) -> None:
    """``tools/simulate_mutants.py`` goes through all of them."""
    found = noticed(site, range(1, 41))
    assert found.seed is not None, f"no schedule noticed that {site} is missing"
    assert found.problem


def test_every_place_that_no_schedule_notices_is_in_the_source_and_has_a_reason() -> None:
    known = unsimulated()
    assert known
    gone = [name for name in known if not any(covers(name, site) for site in all_sites())]
    assert gone == [], "these are not in the source any more"
    assert [site for site, reason in known.items() if len(reason.split()) < 4] == []


# Guards


def test_every_guard_can_be_taken_out() -> None:
    sites = guard_sites.in_source()
    assert len(sites) == len(set(sites)) > 40
    for site in sites:
        with guard_sites.without(site):
            pass


def test_a_guard_that_is_taken_out_lets_everything_pass_until_it_is_put_back() -> None:
    group = Group(GroupState("workers", GroupId("1"), {}, 0, 0))
    with guard_sites.without("coordination/group.py  Group.member  raise UnknownMember  1"):
        assert group.member("nobody") is None  # type: ignore[func-returns-value]
    with pytest.raises(UnknownMember):
        group.member("nobody")


def test_a_question_whether_a_shard_is_led_is_a_guard_unless_an_error_follows() -> None:
    found = {site for site in guard_sites.in_source() if site.endswith("is_leading  1")}
    assert "broker/shards/shard_map.py  ShardMap.leading  is_leading  1" in found
    assert not any("ShardMap.led_queue" in site for site in found), "its error is the guard"


def test_what_is_no_guard_cannot_be_taken_out() -> None:
    with pytest.raises(LookupError), guard_sites.without("coordination/group.py  Group.member  raise Nothing  1"):
        pass
