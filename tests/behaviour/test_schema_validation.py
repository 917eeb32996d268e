"""Values are checked at publish where a topic asks for it, whatever the way in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from behaviour.driver import Driver, Got, Refused, Result, Stored
from behaviour.groups import ALL
from behaviour.waiting import until
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.model.publishing import NewMessage

Start = Callable[..., Driver]

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "note", "type": "string"}, {"name": "count", "type": "long"}],
    }
)
JSON = json.dumps({"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]})
PROTOBUF = 'syntax = "proto2"; message Other { optional string note = 1; } message Order { required int64 count = 1; }'
FIRST_OF_PROTOBUF = 'syntax = "proto2"; message Order { required int64 count = 1; }'

GOOD_AVRO, BAD_AVRO = b"\x04hi\x02", b"\x04hi"
GOOD_JSON, BAD_JSON = b'{"count": 1}', b'{"count": "1"}'
GOOD_PROTOBUF, BAD_PROTOBUF = b"\x08\x01", b""
KINDS = {
    "AVRO": (AVRO, GOOD_AVRO, BAD_AVRO, "/count"),
    "JSON": (JSON, GOOD_JSON, BAD_JSON, "/count"),
    "PROTOBUF": (FIRST_OF_PROTOBUF, GOOD_PROTOBUF, BAD_PROTOBUF, "count"),
}


def register(driver: Driver, subject: str, text: str, kind: str) -> int:
    registry = driver.host.broker.schemas
    return driver.host.thread.run(registry.register(subject, SchemaDraft(text, kind))).record.schema_id


def framed(schema_id: int, value: bytes, message: bytes = b"") -> bytes:
    return b"\x00" + schema_id.to_bytes(4) + message + value


def topic(driver: Driver, name: str, mode: str = "on", kind: str = "JSON", **settings: object) -> int:
    """A topic of one partition whose values must fit a schema, the id of which is returned."""
    driver.create_topic(name, partitions=1, schema_validation=mode, **settings)
    return register(driver, f"{name}-value", KINDS[kind][0], kind)


def problem(driver: Driver, name: str, value: bytes | None, **fields: object) -> str:
    """What is said of a value that does not fit."""
    (result,) = driver.publish(name, [NewMessage(value, **fields)])  # type: ignore[arg-type]
    assert isinstance(result, Refused), result
    assert result.code == "schema_violation"
    assert not result.retriable
    return str(result)


def publish(driver: Driver, name: str, *values: bytes | None) -> list[Result]:
    return driver.publish(name, [NewMessage(value, partition=0) for value in values])


def offsets(results: Sequence[Result]) -> list[int | str]:
    return [each.offset if isinstance(each, Stored) else each.code for each in results]


def letters(driver: Driver, name: str) -> list[Got]:
    return driver.read(f"{name}.dlq").messages


# Refusing


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_refused_with_its_place_and_nothing_is_stored(
    shared: Driver, name: str, kind: str
) -> None:
    schema_id = topic(shared, name, "on", kind)
    _, good, bad, path = KINDS[kind]
    first = b"\x00" if kind == "PROTOBUF" else b""
    assert path in problem(shared, name, bad)
    assert path in problem(shared, name, framed(schema_id, bad, first))
    assert shared.describe(name).bounds[0] == (0, 0)
    sent = [good, framed(schema_id, good, first)]
    assert offsets(publish(shared, name, *sent)) == [0, 1]
    assert shared.read(name).values == sent


def test_nothing_is_checked_while_validation_is_off(shared: Driver, name: str) -> None:
    topic(shared, name, "off")
    shared.publish_one(name, BAD_JSON)
    assert shared.read(name).values == [BAD_JSON]


def test_of_a_batch_only_what_does_not_fit_is_refused_and_the_order_is_kept(shared: Driver, name: str) -> None:
    topic(shared, name)
    good = [b'{"count": %d}' % number for number in range(6)]
    batch = [good[0], BAD_JSON, good[1], good[2], b"no JSON", b"[]", good[3], good[4], good[5], b"{}"]
    results = publish(shared, name, *batch)
    bad = "schema_violation"
    assert offsets(results) == [0, bad, 1, 2, bad, bad, 3, 4, 5, bad]
    assert [str(each) for each in results if isinstance(each, Refused) and "/count" in str(each)] == [str(results[1])]
    assert shared.read(name).values == good


def test_tombstones_are_not_checked(shared: Driver, name: str) -> None:
    topic(shared, name)
    shared.publish_one(name, None, key=b"k")
    assert "JSON" in problem(shared, name, b"", key=b"k")
    assert shared.read(name).values == [None]


def test_a_value_that_is_too_large_is_refused_for_that(shared: Driver, name: str) -> None:
    topic(shared, name, "dead_letter", max_message_bytes=2_000)
    results = publish(shared, name, b"x" * 3_000, GOOD_JSON)
    assert offsets(results) == ["message_too_large", 0]
    assert f"{name}.dlq" not in shared.list_topics()


def test_a_refused_message_is_never_scheduled(timed: Driver, name: str) -> None:
    topic(timed, name)
    problem(timed, name, BAD_JSON, delay_ms=60_000)
    timed.publish_one(name, GOOD_JSON, delay_ms=60_000, priority=4)
    assert len(timed.delays.page(name).messages) == 1
    timed.let_pass(60_000)
    assert [(each.value, each.priority) for each in timed.read(name).messages] == [(GOOD_JSON, "background")]


# Which schema


def test_without_a_schema_nothing_fits(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1, schema_validation="on")
    assert f"'{name}-value' has no schema" in problem(shared, name, GOOD_JSON)
    shared.publish_one(name, None, key=b"k")


def test_another_subject_can_be_meant(shared: Driver, name: str) -> None:
    register(shared, f"all-{name}", JSON, "JSON")
    shared.create_topic(name, partitions=1, schema_validation="on", schema_subject=f"all-{name}")
    shared.publish_one(name, GOOD_JSON)
    problem(shared, name, BAD_JSON)


def test_plain_values_must_fit_the_latest_schema_and_framed_ones_their_own(shared: Driver, name: str) -> None:
    first = topic(shared, name)
    old = b'{"count": 1, "note": 2}'
    shared.publish_one(name, old)
    stricter = json.dumps({"type": "object", "properties": {"note": {"type": "string"}}})
    shared.host.thread.run(shared.host.broker.schemas.configure(f"{name}-value", {"compatibilityLevel": "NONE"}))
    second = register(shared, f"{name}-value", stricter, "JSON")
    assert "/note" in problem(shared, name, old)
    assert "/note" in problem(shared, name, framed(second, old))
    shared.publish_one(name, framed(first, old))
    shared.publish_one(name, b'{"count": "no longer looked at"}')


def test_a_version_that_was_deleted_is_no_longer_meant(shared: Driver, name: str) -> None:
    first = topic(shared, name, schema_framing="framed")
    registry, run = shared.host.broker.schemas, shared.host.thread.run
    run(registry.configure(f"{name}-value", {"compatibilityLevel": "NONE"}))
    second = register(shared, f"{name}-value", '{"type": "string"}', "JSON")
    shared.publish_one(name, framed(second, b'"text"'))
    run(registry.delete_version(f"{name}-value", 2, permanent=False))
    assert f"schema {second} is not one of subject" in problem(shared, name, framed(second, b'"text"'))
    shared.publish_one(name, framed(first, GOOD_JSON))
    run(registry.delete_subject(f"{name}-value", permanent=False))
    assert "has no schema" in problem(shared, name, framed(first, GOOD_JSON))


def test_framed_values_must_begin_with_an_id_of_the_subject(shared: Driver, name: str) -> None:
    schema_id = topic(shared, name, schema_framing="framed")
    other = register(shared, f"other-{name}", '{"type": "string"}', "JSON")
    shared.publish_one(name, framed(schema_id, GOOD_JSON))
    assert "does not begin with the id" in problem(shared, name, GOOD_JSON)
    assert "does not begin with the id" in problem(shared, name, b"\x00\x00")
    assert f"schema {other} is not one of subject '{name}-value'" in problem(shared, name, framed(other, b'"text"'))


def test_an_id_of_another_subject_is_pointed_out(shared: Driver, name: str) -> None:
    topic(shared, name)
    other = register(shared, f"other-{name}", '{"type": "string"}', "JSON")
    assert f"begins like one of schema {other}" in problem(shared, name, framed(other, b'"text"'))
    assert "begins like" not in problem(shared, name, BAD_JSON)


def test_plain_avro_may_begin_with_a_zero(shared: Driver, name: str) -> None:
    """An empty text is a zero. Only what could be the id of one of the subject's schemas is taken for one."""
    schema_id = topic(shared, name, "on", "AVRO")
    plain = b"\x00\x02"
    shared.publish_one(name, plain)
    numbers = f"numbers-{name}"
    record = {"type": "record", "name": "N", "fields": [{"name": f"n{at}", "type": "int"} for at in range(6)]}
    shared.create_topic(numbers, partitions=1, schema_validation="on", schema_framing="plain")
    schema_id = register(shared, f"{numbers}-value", json.dumps(record), "AVRO")
    looks_framed = framed(schema_id, b"\x02")
    shared.publish_one(numbers, looks_framed)
    shared.change_topic(numbers, schema_framing="auto")
    problem(shared, numbers, looks_framed)


def test_a_framed_protobuf_value_tells_which_message_it_is(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=1, schema_validation="on")
    schema_id = register(shared, f"{name}-value", PROTOBUF, "PROTOBUF")
    shared.publish_one(name, framed(schema_id, b"", b"\x00"))
    shared.publish_one(name, framed(schema_id, b"\x08\x01", b"\x02\x02"))
    assert "count" in problem(shared, name, framed(schema_id, b"", b"\x02\x02"))
    assert "no such message" in problem(shared, name, framed(schema_id, b"", b"\x02\x10"))
    assert "which message" in problem(shared, name, framed(schema_id, b""))


def test_a_setting_that_is_changed_counts_from_then_on(shared: Driver, name: str) -> None:
    topic(shared, name, "off")
    shared.publish_one(name, BAD_JSON)
    shared.change_topic(name, schema_validation="on")
    problem(shared, name, BAD_JSON)
    shared.change_topic(name, schema_validation="dead_letter")
    assert shared.publish_one(name, BAD_JSON).offset == 1
    shared.change_topic(name, schema_validation="off")
    assert shared.publish_one(name, BAD_JSON).offset == 2
    assert shared.read(name).offsets == [0, 2]


def test_schemas_and_settings_are_there_after_a_restart(start: Start) -> None:
    driver = start()
    schema_id = topic(driver, "t", "dead_letter")
    publish(driver, "t", GOOD_JSON, BAD_JSON)
    driver.restart()
    assert offsets(publish(driver, "t", framed(schema_id, GOOD_JSON), BAD_JSON)) == [2, 3]
    assert driver.read("t").offsets == [0, 2]
    assert [each.value for each in letters(driver, "t")] == [BAD_JSON] * 2


# Dead letters


def test_in_place_of_a_dead_letter_lies_what_no_reader_sees(shared: Driver, name: str) -> None:
    topic(shared, name, "dead_letter")
    queue, stream = f"q-{name}", f"s-{name}"
    member = shared.groups.join(queue, [name]).member_id
    watcher = shared.groups.join(stream, [name], mode="stream").member_id
    results = publish(shared, name, BAD_JSON, GOOD_JSON, b"no", GOOD_JSON, b"none", b"never")
    assert offsets(results) == [0, 1, 2, 3, 4, 5]
    assert shared.read(name).offsets == [1, 3]
    page = shared.read(name, offset=4)
    assert (page.messages, page.next_offset) == ([], 6)
    for group, member_id in ((queue, member), (stream, watcher)):
        (lag,) = shared.groups.describe(group).lag
        assert lag.lag == 2
        polled = shared.groups.poll(group, member_id)
        assert [each.offset for each in polled] == [1, 3]
        assert shared.groups.poll(group, member_id) == []
        handles = [each.handle for each in polled]
        if group == queue:
            assert shared.groups.settle(group, "ack", handles) == [None, None]  # type: ignore[arg-type]
        else:
            shared.groups.commit(group, member_id, {name: {0: 4}})
        (lag,) = shared.groups.describe(group).lag
        assert lag.lag == 0


def test_lanes_know_nothing_of_dead_letters(shared: Driver, name: str) -> None:
    topic(shared, name, "dead_letter")
    group = f"g-{name}"
    member = shared.groups.join(group, [name]).member_id
    messages = [
        NewMessage(value, partition=0, priority=priority) for value in (GOOD_JSON, BAD_JSON) for priority in range(5)
    ]
    assert all(isinstance(each, Stored) for each in shared.publish(name, messages))
    assert sorted(each.priority for each in shared.groups.poll(group, member)) == [
        "background", "critical", "high", "low", "normal",
    ]  # fmt: skip
    assert shared.groups.poll(group, member) == []
    assert sorted(each.priority for each in letters(shared, name)) == [
        "background", "critical", "high", "low", "normal",
    ]  # fmt: skip


def test_a_dead_letter_tells_why_and_where_it_was(shared: Driver, name: str) -> None:
    topic(shared, name, "dead_letter")
    shared.publish_one(name, GOOD_JSON)
    stored = shared.publish_one(name, BAD_JSON, key=b"k", headers=(("mine", b"1"),), ttl_ms=60_000, delay_ms=3_600_000)
    assert (stored.offset, stored.deliver_at_ns) == (1, None)
    assert shared.delays.page(name).messages == []
    (letter,) = shared.groups.dead_letters(name)
    assert (letter.key, letter.value, letter.own_headers) == (b"k", BAD_JSON, (("mine", b"1"),))
    assert (letter.topic, letter.origin_partition, letter.origin_offset) == (name, 0, 1)
    assert (letter.group, letter.deliveries, letter.redriven) == ("", 0, False)
    assert "/count" in letter.error


def test_dead_letters_have_no_dead_letters_and_are_refused_there(shared: Driver, name: str) -> None:
    for dead, settings in ((f"{name}.dlq", {}), (f"{name}-graves", {})):
        shared.create_topic(dead, partitions=1, schema_validation="dead_letter", **settings)
        register(shared, f"{dead}-value", JSON, "JSON")
    shared.create_topic(name, dead_letter_topic=f"{name}-graves")
    for dead in (f"{name}.dlq", f"{name}-graves"):
        problem(shared, dead, BAD_JSON)
        shared.publish_one(dead, GOOD_JSON)
        assert f"{dead}.dlq" not in shared.list_topics()


def test_dead_letters_go_to_the_topic_that_was_chosen_for_them(shared: Driver, name: str) -> None:
    """Whatever it asks for itself."""
    graves = f"{name}-graves"
    shared.create_topic(graves, partitions=1, schema_validation="on", max_message_bytes=1_024)
    topic(shared, name, "dead_letter", dead_letter_topic=graves)
    shared.publish_one(name, b"x" * 2_000)
    assert shared.read(graves).values == [b"x" * 2_000]


def test_what_fits_after_all_goes_back_and_reaches_all_groups(shared: Driver, name: str) -> None:
    topic(shared, name, "dead_letter")
    groups = [f"{name}-a", f"{name}-b"]
    members = [shared.groups.join(group, [name]).member_id for group in groups]
    publish(shared, name, BAD_JSON, b"hopeless")
    found = shared.groups.redrive(name, ALL)
    assert (found.matched, found.redriven, found.unreachable) == (0, 0, 2)
    shared.host.thread.run(shared.host.broker.schemas.configure(f"{name}-value", {"compatibilityLevel": "NONE"}))
    register(shared, f"{name}-value", '{"type": "object"}', "JSON")
    found = shared.groups.redrive(name, ALL)
    assert (found.matched, found.redriven, found.unreachable) == (1, 1, 1)
    until(lambda: shared.read(name).values == [BAD_JSON])
    for group, member in zip(groups, members, strict=True):
        (polled,) = shared.groups.poll(group, member)
        assert (polled.value, polled.offset) == (BAD_JSON, 2)
    found = shared.groups.redrive(name, ALL)
    assert (found.matched, found.unreachable) == (0, 1)


def test_headers_make_room_for_what_a_dead_letter_tells(shared: Driver, name: str) -> None:
    topic(shared, name, "dead_letter")
    headers = (("small", b"1"), ("large", b"x" * 60_000), ("medium", b"y" * 5_400))
    shared.publish_one(name, BAD_JSON, headers=headers)
    (letter,) = shared.groups.dead_letters(name)
    assert letter.own_headers == (("small", b"1"), ("medium", b"y" * 5_400))
    assert "/count" in letter.error


def test_many_dead_letters_of_one_batch(shared: Driver, name: str) -> None:
    """Together with what they tell they are more than one batch may have."""
    topic(shared, name, "dead_letter")
    values = [b"%d" % number for number in range(4_000)]
    results = publish(shared, name, GOOD_JSON, *values, GOOD_JSON)
    assert offsets(results) == list(range(4_002))
    assert shared.read(name).offsets == [0, 4_001]
    found: list[Got] = []
    while len(found) < len(values):
        page = shared.read(f"{name}.dlq", offset=found[-1].offset + 1 if found else 0, limit=1_000)
        assert page.messages
        found += page.messages
    assert [each.value for each in found] == values
    grave = shared.host.broker.topic(f"{name}.dlq").partitions[0]
    assert sum(segment.size for segment in grave.log.segments) > 1 << 20


def test_all_partitions_have_their_dead_letters(shared: Driver, name: str) -> None:
    shared.create_topic(name, partitions=3, schema_validation="dead_letter")
    register(shared, f"{name}-value", JSON, "JSON")
    results = shared.publish(name, [NewMessage(b"%d" % at, partition=at % 3) for at in range(9)])
    assert [each.offset for each in results if isinstance(each, Stored)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [shared.read(f"{name}.dlq", at).values for at in range(3)] == [
        [b"%d" % number for number in range(at, 9, 3)] for at in range(3)
    ]
