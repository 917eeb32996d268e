from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.coordination.catalog import (
    Catalog,
    CatalogEvent,
    CatalogState,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicPurged,
    TopicRecord,
)
from goqueue.model.errors import GoQueueError, InvalidRequest, TopicExists, TopicNotFound


def record(name: str, topic_id: str | None = None, partitions: int = 1, **overrides: object) -> TopicRecord:
    return TopicRecord(topic_id or f"id-of-{name}", name, partitions, 7, dict(overrides))


def do(catalog: Catalog, events: list[CatalogEvent]) -> list[CatalogEvent]:
    for event in events:
        catalog.apply(event)
    return events


def create(catalog: Catalog, topic: TopicRecord) -> list[CatalogEvent]:
    return do(catalog, catalog.decide_create(topic, 100, 100))


def test_deciding_changes_nothing() -> None:
    catalog = Catalog()
    assert catalog.decide_create(record("t"), 10, 10) == [TopicCreated(record("t"))]
    assert catalog.state == CatalogState()
    with pytest.raises(TopicNotFound):
        catalog.find("t")


def test_a_created_topic_is_found_by_name() -> None:
    catalog = Catalog()
    create(catalog, record("t", retention_ms=5))
    assert catalog.find("t") == record("t", retention_ms=5)


def test_a_name_is_taken_until_its_topic_is_deleted() -> None:
    catalog = Catalog()
    create(catalog, record("t", "one"))
    with pytest.raises(TopicExists):
        catalog.decide_create(record("t", "two"), 10, 10)
    do(catalog, catalog.decide_delete("t"))
    create(catalog, record("t", "two"))
    assert catalog.find("t").topic_id == "two"
    assert catalog.state.deleted == {"one": "t"}


def test_the_limits_count_what_exists_and_not_what_was_deleted() -> None:
    catalog = Catalog()
    create(catalog, record("a", partitions=3))
    with pytest.raises(InvalidRequest, match="max_topics"):
        catalog.decide_create(record("b"), 1, 100)
    with pytest.raises(InvalidRequest, match="max_total_partitions"):
        catalog.decide_create(record("b", partitions=2), 10, 4)
    assert catalog.decide_create(record("b", partitions=1), 10, 4)
    do(catalog, catalog.decide_delete("a"))
    assert catalog.decide_create(record("b", partitions=4), 1, 4)


def test_a_change_merges_with_what_was_set_before() -> None:
    catalog = Catalog()
    create(catalog, record("t", retention_ms=5))
    events = do(catalog, catalog.decide_change("t", {"fsync": "never"}))
    assert events == [TopicChanged("id-of-t", {"retention_ms": 5, "fsync": "never"})]
    assert catalog.find("t").overrides == {"retention_ms": 5, "fsync": "never"}


def test_a_change_that_changes_nothing_is_no_event() -> None:
    catalog = Catalog()
    create(catalog, record("t", retention_ms=5))
    assert catalog.decide_change("t", {"retention_ms": 5}) == []


def test_a_deleted_topic_is_remembered_until_nothing_is_left_of_it() -> None:
    catalog = Catalog()
    create(catalog, record("t"))
    assert do(catalog, catalog.decide_delete("t")) == [TopicDeleted("id-of-t")]
    assert do(catalog, catalog.decide_purged("id-of-t")) == [TopicPurged("id-of-t")]
    assert catalog.state == CatalogState()
    assert catalog.decide_purged("id-of-t") == []


@pytest.mark.parametrize("decide", ["decide_delete", "find"])
def test_what_is_not_there_cannot_be_found(decide: str) -> None:
    with pytest.raises(TopicNotFound):
        getattr(Catalog(), decide)("t")


def test_rule_3_whoever_means_a_topic_by_its_id_never_gets_a_namesake() -> None:
    catalog = Catalog()
    create(catalog, record("t", "one"))
    do(catalog, catalog.decide_delete("t", "one"))
    create(catalog, record("t", "two"))
    with pytest.raises(TopicNotFound):
        catalog.decide_delete("t", "one")
    with pytest.raises(TopicNotFound):
        catalog.decide_change("t", {"retention_ms": 1}, "one")
    assert catalog.decide_delete("t", "two") == [TopicDeleted("two")]


def test_two_catalogs_do_not_share_their_state() -> None:
    first, second = Catalog(), Catalog()
    create(first, record("t"))
    assert second.state == CatalogState()


Commands = st.lists(
    st.tuples(
        st.sampled_from(["create", "change", "delete", "purge"]),
        st.sampled_from("abc"),
        st.integers(0, 3),
    ),
    max_size=40,
)


def run(commands: list[tuple[str, str, int]]) -> tuple[Catalog, list[CatalogEvent]]:
    """Carry out what can be; returns the events as well."""
    catalog, events = Catalog(), []
    for place, (command, name, number) in enumerate(commands):
        try:
            match command:
                case "create":
                    decided = catalog.decide_create(record(name, f"{place}", number + 1), 3, 8)
                case "change":
                    decided = catalog.decide_change(name, {"retention_ms": number})
                case "delete":
                    decided = catalog.decide_delete(name)
                case _:
                    decided = [event for each in list(catalog.state.deleted) for event in catalog.decide_purged(each)]
        except GoQueueError:
            continue
        events += do(catalog, decided)
    return catalog, events


@given(Commands)
def test_replaying_the_events_gives_the_same_state(commands: list[tuple[str, str, int]]) -> None:
    catalog, events = run(commands)
    decoder = msgspec.json.Decoder(CatalogEvent)
    replayed = Catalog()
    for event in events:
        replayed.apply(decoder.decode(msgspec.json.encode(event)))
    assert replayed.state == catalog.state


@given(Commands, st.integers(0, 40))
def test_a_snapshot_and_the_events_behind_it_give_the_same_state(
    commands: list[tuple[str, str, int]], cut: int
) -> None:
    catalog, events = run(commands)
    before = Catalog()
    do(before, events[:cut])
    restored = Catalog()
    for part in before.parts():
        restored.restore(part, before.dump(part))
    do(restored, events[cut:])
    assert restored.state == catalog.state
    for topic in catalog.state.topics.values():
        assert restored.find(topic.name) == topic


@given(Commands)
def test_no_two_topics_ever_have_the_same_name(commands: list[tuple[str, str, int]]) -> None:
    catalog, _ = run(commands)
    names = [topic.name for topic in catalog.state.topics.values()]
    assert len(names) == len(set(names)) <= 3
    assert sum(topic.partitions for topic in catalog.state.topics.values()) <= 8
    assert not catalog.state.topics.keys() & catalog.state.deleted.keys()
