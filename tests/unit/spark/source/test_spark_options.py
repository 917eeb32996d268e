"""Every option is checked before anything happens, and the error says what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.client.connection.config import DEFAULT_ADDRESS
from goqueue.model.errors import InvalidRequest
from goqueue.spark.source.columns import NAMES
from goqueue.spark.source.options import SinkOptions, SourceOptions, sink_options, source_options

INSTANT_NS = 1_794_729_600 * 10**9


def source(**given_: str) -> SourceOptions:
    return source_options({"topics": "orders"} | given_)


def test_what_is_not_given_has_a_default() -> None:
    assert source() == SourceOptions(
        brokers=(DEFAULT_ADDRESS,),
        topics=("orders",),
        pattern=None,
        path=None,
        starting="earliest",
        ending="latest",
        uncommitted=False,
        max_messages=None,
        max_bytes=None,
        min_partitions=0,
        columns=None,
        group=None,
        fail_on_data_loss=True,
    )
    assert sink_options({"brokers": DEFAULT_ADDRESS}) == SinkOptions((DEFAULT_ADDRESS,), None, 0, None, False)


def test_everything_can_be_given_in_any_case() -> None:
    given_ = {
        "BROKERS": "one:9090, two:9090",
        "topicpattern": "orders-.*",
        "path": "/data",
        "startingPosition": "latest",
        "EndingPosition": '{"orders": {"0": 12, "1": 7}}',
        "isolation": "read_uncommitted",
        "maxMessagesPerTrigger": "1000",
        "maxBytesPerTrigger": "64MiB",
        "minPartitions": "8",
        "columns": "value, offset",
        "group": "lag",
        "failOnDataLoss": "False",
    }
    assert source_options(given_) == SourceOptions(
        brokers=("one:9090", "two:9090"),
        topics=(),
        pattern="orders-.*",
        path=Path("/data"),
        starting="latest",
        ending={"orders": {0: 12, 1: 7}},
        uncommitted=True,
        max_messages=1_000,
        max_bytes=64 << 20,
        min_partitions=8,
        columns=("value", "offset"),
        group="lag",
        fail_on_data_loss=False,
    )
    told = {
        "Brokers": "one:9090",
        "topic": "out",
        "transactionTimeout": "5m",
        "commitKey": "run-7",
        "TrustCommitted": "true",
    }
    assert sink_options(told) == SinkOptions(("one:9090",), "out", 300_000, "run-7", True)


def test_topics_are_named_once_each_and_may_have_spaces_around_them() -> None:
    assert source(topics=" b,a , b").topics == ("b", "a")


def test_a_folder_alone_needs_no_broker() -> None:
    assert source(path="/data").brokers is None
    assert source(path="/data", brokers="one:1").brokers == ("one:1",)


def test_a_group_needs_a_broker() -> None:
    with pytest.raises(InvalidRequest, match="the option group is 'lag', and without the option brokers"):
        source(path="/data", group="lag")
    assert source(path="/data", group="lag", brokers="one:1").group == "lag"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", "earliest"),
        (" latest ", "latest"),
        ("2026-11-15T08:00:00Z", INSTANT_NS),
        ("2026-11-15T09:00:00+01:00", INSTANT_NS),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59Z", -(10**9)),
        ('{"a": {"0": 0}}', {"a": {0: 0}}),
        ("{}", {}),
    ],
)
def test_a_position_is_an_end_an_instant_or_offsets(text: str, position: object) -> None:
    assert source(startingPosition=text).starting == position
    assert source(endingPosition=text).ending == position


SHAPE = r"offsets are JSON such as {\"orders\": {\"0\": 12, \"1\": 7}}"


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("brokers", "one:1,,two:2", "a name is missing between two commas"),
        ("topics", "a,", "a name is missing"),
        ("path", " ", "it is empty"),
        ("group", "", "it is empty"),
        ("startingPosition", "first", "use 'earliest', 'latest', an instant with its zone"),
        ("startingPosition", "2026-11-15 08:00", "an instant with its zone such as '2026-11-15T08:00:00Z'"),
        ("startingPosition", "17", "use 'earliest'"),
        ("endingPosition", "{", SHAPE),
        ("endingPosition", '{"a": 5}', f"'a' has no partitions; {SHAPE}"),
        ("endingPosition", '{"a": {}}', "'a' has no partitions"),
        ("endingPosition", '{"a": {"x": 1}}', "'a' has 'x': 1; offsets are JSON"),
        ("endingPosition", '{"a": {"²": 1}}', "'a' has '²': 1; offsets are JSON"),
        ("endingPosition", '{"a": {"0": -1}}', "'a' has '0': -1"),
        ("endingPosition", '{"a": {"0": 1.5}}', "'a' has '0': 1.5"),
        ("endingPosition", '{"a": {"0": true}}', "'a' has '0': True"),
        ("endingPosition", '{"a": {"0": 9223372036854775808}}', "'a' has '0': 9223372036854775808"),
        ("isolation", "committed", "there are read_committed and read_uncommitted"),
        ("maxMessagesPerTrigger", "0", "it must be a whole number from 1 to"),
        ("maxMessagesPerTrigger", "-5", "it must be a whole number from 1 to"),
        ("maxMessagesPerTrigger", "1e6", "it must be a whole number"),
        ("maxMessagesPerTrigger", "²", "it must be a whole number"),
        ("maxBytesPerTrigger", "0", "it must be from 1 to"),
        ("maxBytesPerTrigger", "many", "is not a size; write it like '4096', '64MiB'"),
        ("minPartitions", "0", "it must be a whole number from 1 to 100000"),
        ("minPartitions", "100001", "it must be a whole number from 1 to 100000"),
        ("columns", "value,offest", "there is no column 'offest'; there are key, value"),
        ("columns", "", "a name is missing"),
        ("failOnDataLoss", "no", "it must be true or false"),
    ],
)
def test_a_wrong_value_is_refused_with_its_option_and_what_would_be_right(name: str, value: str, right: str) -> None:
    with pytest.raises(InvalidRequest, match=f"the option {name} is .*: .*{right}") as refused:
        source_options({"topics": "orders"} | {name: value})
    assert repr(value) in str(refused.value)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"the option topicPattern is 'a\(': it is not a regular expression"):
        source_options({"topicPattern": "a("})


@pytest.mark.parametrize("value", ["0s", "5", "soon"])
def test_a_time_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest, match=f"the option transactionTimeout is '{value}': "):
        sink_options({"transactionTimeout": value})


@pytest.mark.parametrize("name", ["brokers", "topic", "commitKey"])
def test_an_empty_option_of_the_sink_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"the option {name} is ' ': "):
        sink_options({name: " "})


def test_what_to_read_must_be_said_once() -> None:
    with pytest.raises(InvalidRequest, match=r"topics \('orders,refunds'\), or topicPattern"):
        source_options({})
    with pytest.raises(InvalidRequest, match=r"the options topics and topicPattern \('o.*'\); drop one"):
        source(topicPattern="o.*")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("topic", "use 'topics'"),
        ("subscribe", "use 'topics'"),
        ("subscribePattern", "use 'topicPattern'"),
        ("kafka.bootstrap.servers", "use 'brokers'"),
        ("kafka.security.protocol", "leave it out: it configures Kafka's client"),
        ("kafka.group.id", "use 'group'"),
        ("startingOffsets", "use 'startingPosition'"),
        ("startingOffsetsByTimestamp", "use 'startingPosition' with an instant such as '2026-11-15T08:00:00Z'"),
        ("endingTimestamp", "use 'endingPosition' with an instant"),
        ("maxOffsetsPerTrigger", "use 'maxMessagesPerTrigger'"),
        ("includeHeaders", "leave it out: the column headers is always there"),
        ("failOnDataLos", "did you mean 'failOnDataLoss'?"),
        ("min_partitions", "did you mean 'minPartitions'?"),
        ("zzz", "'zzz'. There are: brokers, topics, topicPattern, path"),
        ("checkpointLocation", "give it to the writer (writeStream). There are: brokers"),
    ],
)
def test_an_option_of_the_source_that_does_not_exist_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        source(**{name: "x"})
    text = str(refused.value)
    assert f"the source has no option '{name.lower()}'" in text
    assert hint in text
    assert "failOnDataLoss" in text


def test_an_option_of_the_sink_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match=r"the sink has no option 'topics'; did you mean 'topic'\? There are"):
        sink_options({"topics": "a"})
    with pytest.raises(InvalidRequest, match=r"the sink has no option 'zzz'\. There are: brokers, topic"):
        sink_options({"zzz": "a"})
    with pytest.raises(InvalidRequest, match=r"'kafka.bootstrap.servers'; use 'brokers'\. There are: brokers, topic"):
        sink_options({"kafka.bootstrap.servers": "a"})
    with pytest.raises(InvalidRequest, match="'includeheaders'; leave it out: the column headers is written"):
        sink_options({"includeHeaders": "true"})


def test_a_sink_without_any_option_is_refused_for_it_may_be_an_insert_into_a_table_of_another_broker() -> None:
    with pytest.raises(InvalidRequest, match=r"the option topic, or brokers and a column 'topic'\. \(INSERT INTO"):
        sink_options({})


def test_what_spark_hands_to_every_sink_is_no_error() -> None:
    assert sink_options({"checkpointLocation": "/c", "queryName": "q", "path": "/p", "topic": "t"}).topic == "t"


@pytest.mark.parametrize("name", ["maxMessagesPerTrigger", "maxBytesPerTrigger", "group"])
def test_options_of_streams_are_refused_in_batches(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"the option {name} is for streams"):
        source_options({"topics": "a", name: "1"}, streaming=False)
    source_options({"topics": "a", name: "1"}, streaming=True)


def test_a_stream_has_no_ending_position() -> None:
    with pytest.raises(InvalidRequest, match=r"endingPosition is for batches \(read\).*availableNow"):
        source_options({"topics": "a", "endingPosition": "latest"}, streaming=True)
    source_options({"topics": "a", "endingPosition": "latest"}, streaming=False)


@settings(max_examples=40)
@given(
    st.dictionaries(st.sampled_from(["topics", "columns", "startingPosition", "path", "group"]), st.text(max_size=9))
)
def test_any_text_is_taken_or_refused_as_invalid(given_: dict[str, str]) -> None:
    try:
        found = source_options(given_)
    except InvalidRequest:
        return
    assert found.topics
    assert set(found.columns or ()) <= set(NAMES)
