"""Ids of producers: each tells by itself whether it was given."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from goqueue.coordination.catalog import Catalog, CatalogEvent
from goqueue.coordination.issued_ids import AT_ONCE, NUMBERS, OF_EARLIER_IDS, IdsEvent, IdsSkipped, IssuedIds
from goqueue.model.errors import Overloaded

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
SHARD = 7
JSON_MAX = (1 << 53) - 1
"""What a reader of JSON keeps exactly that has floating point numbers only."""


def apply(ids: IssuedIds, events: list[IdsEvent]) -> None:
    for event in events:
        ids.apply(event)


def made(key: bytes = KEY, blocks: int = 1) -> IssuedIds:
    ids = IssuedIds()
    apply(ids, ids.decide_key(key))
    for _ in range(blocks):
        apply(ids, ids.decide_reserve())
    return ids


def test_every_number_has_an_id_of_its_own_that_json_keeps_and_that_tells_the_number() -> None:
    ids = made(blocks=20)
    given = [ids.id_of(number, SHARD) for number in range(1, ids.reserved)]
    assert len(set(given)) == len(given)
    assert all(0 < each <= JSON_MAX for each in given)
    assert [ids.number_of(each) for each in given] == list(range(1, ids.reserved))
    # Also when none of them is remembered.
    assert [made(blocks=20).number_of(each) for each in given] == list(range(1, ids.reserved))


def test_no_id_leads_to_another() -> None:
    ids = made()
    given = {ids.id_of(number, SHARD) for number in range(1, ids.reserved)}
    near = {each + step for each in given for step in range(-64, 65)} - given
    turned = {each ^ 1 << bit for each in given for bit in range(63)} - given
    assert not [each for each in near | turned if ids.number_of(each) is not None]
    assert not [each for each in given if made(OTHER).number_of(each) is not None]


def test_guesses_and_numbers_and_what_is_no_id_at_all_were_never_given() -> None:
    ids, rng = made(), Random(7)
    wrong = [*range(-2, 3_000), NUMBERS, 1 << 52, JSON_MAX, 1 << 53, (1 << 63) - 1, -(1 << 63)]
    wrong += [rng.randrange(1 << 63) for _ in range(1_000)] + [1 << 52 | rng.randrange(NUMBERS) for _ in range(1_000)]
    assert not [each for each in wrong if ids.number_of(each) is not None]


def test_an_id_that_is_not_reserved_yet_was_not_given() -> None:
    ids = made()
    later = ids.id_of(ids.reserved, SHARD)
    assert ids.number_of(later) is None
    apply(ids, ids.decide_reserve())
    assert ids.number_of(later) == AT_ONCE + 1


def test_an_id_tells_its_shard_and_is_good_in_no_other() -> None:
    ids = made()
    for shard in (1, SHARD, 23):
        given = [ids.id_of(number, shard) for number in range(1, 100)]
        assert {ids.shard_of(each) for each in given} == {shard}
        assert [ids.number_of(each) for each in given] == list(range(1, 100))
        moved = [each ^ shard << 44 ^ other << 44 for each in given for other in (0, 2, 22)]
        assert not [each for each in moved if ids.number_of(each) is not None]


def earlier(key: bytes) -> tuple[IssuedIds, list[int]]:
    """Ids as earlier versions gave them, which knew of no shards."""
    ids = IssuedIds()
    if key:
        apply(ids, ids.decide_key(key))
    apply(ids, ids.decide_reserve())
    return ids, [ids.id_of(number, 0) for number in range(1, ids.reserved)]


@pytest.mark.parametrize("key", [b"", KEY], ids=["from before there was a key", "with a key"])
def test_ids_of_earlier_versions_stay_good_and_no_more_of_their_kind_are(key: bytes) -> None:
    before, given = earlier(key)
    if not key:
        assert given[:3] == [1, 2, 3]
    ids = IssuedIds()
    apply(ids, [before.converted({given[2]: 5, given[3]: 6})])
    apply(ids, ids.decide_key(KEY))
    apply(ids, ids.decide_reserve())
    assert ids.decide_key(OTHER) == []
    assert [ids.number_of(each) for each in given] == list(range(1, AT_ONCE + 1))
    never = before.id_of(AT_ONCE + 1, 0)
    assert ids.number_of(never) is None and ids.number_of(0) is None
    fresh = ids.id_of(AT_ONCE + 1, SHARD)
    assert (ids.number_of(fresh), ids.shard_of(fresh)) == (AT_ONCE + 1, SHARD)
    # The id that an earlier one's number would have today was never given.
    assert ids.number_of(made().id_of(5, SHARD)) is None
    # Those that had a name are of its shard, all others of one shard; their next epochs are counted anew.
    assert [ids.shard_of(each) for each in given[:5]] == [OF_EARLIER_IDS, OF_EARLIER_IDS, 5, 6, OF_EARLIER_IDS]
    assert [ids.is_for_a_name(each, at) for at, each in enumerate(given[:4], 1)] == [True, False, True, True]
    assert not ids.keeps_its_epochs(given[2]) and ids.keeps_its_epochs(fresh)


@pytest.mark.parametrize("snapshot", [b"1001", b"[1001,0]"])
def test_snapshots_of_before_there_was_a_key_are_read(snapshot: bytes) -> None:
    ids = IssuedIds()
    ids.restore(snapshot)
    assert (ids.reserved, ids.number_of(1_000), ids.number_of(1_001)) == (1_001, 1_000, None)
    apply(ids, ids.decide_key(KEY))
    assert (ids.number_of(1_000), ids.number_of(1_001)) == (1_000, None)


def test_a_journal_and_a_snapshot_both_tell_everything() -> None:
    before, _ = earlier(KEY)
    live, replayed, restored = Catalog(), Catalog(), Catalog()
    events: list[CatalogEvent] = []
    assert live.parts() == ["catalog"]
    for decide in (
        lambda: [before.converted({before.id_of(3, 0): 4})],
        live.ids.decide_reserve,
        lambda: live.ids.decide_skip(77),
    ):
        for event in decide():
            assert live.part_of(event) == "ids"
            live.apply(event)
            events.append(event)
    for event in msgspec.json.decode(msgspec.json.encode(events), type=list[CatalogEvent]):
        replayed.apply(event)
    assert "ids" in live.parts()
    restored.restore("ids", live.dump("ids"))
    for other in (replayed, restored):
        assert other.ids.dump() == live.ids.dump()
        for number in (1, 1_000, 1_001, 2_000, 2_077):
            assert other.ids.id_of(number, SHARD) == live.ids.id_of(number, SHARD)
        assert other.ids.shard_of(before.id_of(3, 0)) == 4


def test_of_ids_from_before_numbers_were_skipped_the_epochs_may_be_in_use_elsewhere() -> None:
    ids = made()
    own = ids.id_of(3, SHARD)
    assert ids.keeps_its_epochs(own)
    apply(ids, [IdsSkipped(5_000)])
    assert not ids.keeps_its_epochs(own) and ids.number_of(own) == 3


def test_when_all_ids_are_given_none_is_given_again() -> None:
    ids = made()
    apply(ids, ids.decide_skip(NUMBERS - AT_ONCE))
    assert ids.reserved == NUMBERS
    with pytest.raises(Overloaded, match="have been given"):
        ids.decide_reserve()
