"""``goqueue consume`` against a broker in a process of its own, in a pipe and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from goqueue import AvroSerializer, Outgoing
from goqueue.cli.app import app
from goqueue.client.sync import Client
from goqueue.testing import BrokerProcess

SCRIPT = str(Path(sys.executable).with_name("goqueue"))
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Client]:
    with broker.client() as made:
        yield made


def new_topic(client: Client, messages: list[Any], **settings: Any) -> str:
    name = f"t-{uuid4().hex[:8]}"
    client.create_topic(name, **settings)
    with client.producer() as producer:
        producer.send_many(name, messages)
    return name


@pytest.fixture(scope="module")
def orders(client: Client) -> str:
    """Twelve orders in three partitions, a minute apart; each partition has every third."""
    return new_topic(
        client,
        [
            Outgoing(
                json.dumps({"order": number, "total": number * 2.5, "city": "Oslo" if number % 2 else "Bergen"}),
                key=f"c-{number % 3}",
                partition=number % 3,
                headers={"shop": "north" if number < 6 else "south"},
                priority="high" if number == 5 else "normal",
                timestamp=NOON + timedelta(minutes=number),
            )
            for number in range(12)
        ],
        partitions=3,
    )


def run(broker: BrokerProcess, *arguments: str, command: str = "consume", **given: Any) -> Result:
    return CliRunner().invoke(app, [command, *arguments], env={"GOQUEUE_SERVER": broker.url}, **given)


def numbers(broker: BrokerProcess, *arguments: str) -> list[int]:
    ran = run(broker, *arguments, "--template", "{value.order}")
    assert ran.exit_code == 0, ran.output
    return [int(line) for line in ran.stdout.splitlines()]


def test_partitions_are_read_in_the_order_of_time(broker: BrokerProcess, orders: str) -> None:
    assert numbers(broker, orders) == list(range(12))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--from", "latest"], []),
        (["--from", "2"], list(range(6, 12))),
        (["--from", "-1"], [9, 10, 11]),
        (["--from", "0:3,2:2"], [8, 9, 11]),
        (["--from", "2026-01-31T12:08:00Z"], [8, 9, 10, 11]),
        (["--until", "2026-01-31T12:02:00Z"], [0, 1]),
        (["--from", "1", "--until", "2"], [3, 4, 5]),
        (["--from", "999"], []),
        (["--partition", "0", "--partition", "2"], [0, 2, 3, 5, 6, 8, 9, 11]),
        (["--limit", "4"], [0, 1, 2, 3]),
        (["--since", "1d"], None),
        (["--key", "c-1"], [1, 4, 7, 10]),
        (["--key", "c-1", "--key", "c-2"], [1, 2, 4, 5, 7, 8, 10, 11]),
        (["--key-prefix", "c"], list(range(12))),
        (["--key-prefix", "cc"], []),
        (["--header", "shop=south"], list(range(6, 12))),
        (["--header", "shop"], list(range(12))),
        (["--header", "trace"], []),
        (["--priority", "high"], [5]),
        (["--grep", "Oslo"], [1, 3, 5, 7, 9, 11]),
        (["--grep", "Narvik"], []),
        (["--where", "total > 10", "--where", "city == Bergen"], [6, 8, 10]),
        (["--where", "city == Oslo", "--limit", "2"], [1, 3]),
    ],
)
def test_what_is_read_can_be_chosen(
    broker: BrokerProcess, orders: str, options: list[str], found: list[int] | None
) -> None:
    # How long ago the orders are depends on the day.
    expected = found if found is not None else list(range(12)) * (datetime.now(UTC) < NOON + timedelta(days=1))
    assert numbers(broker, orders, *options) == expected


def test_formats(broker: BrokerProcess, orders: str) -> None:
    one = [orders, "--where", "order == 5"]
    value = '{"order": 5, "total": 12.5, "city": "Oslo"}'
    assert run(broker, *one).stdout == value + "\n"
    assert run(broker, *one, "--format", "raw").stdout == value
    assert run(broker, *one, "--format", "line").stdout == f"2026-01-31T12:05:00.000Z  2/1  c-2  high  {value}\n"
    assert "  c-2  high  shop=north  {" in run(broker, *one, "--format", "line", "--headers").stdout
    assert run(broker, *one, "--format", "full").stdout.splitlines() == [
        f"{orders}/2 offset 1",
        "  time: 2026-01-31T12:05:00Z",
        "  priority: high",
        "  key: c-2",
        "  header shop: north",
        "  {",
        '    "order": 5,',
        '    "total": 12.5,',
        '    "city": "Oslo"',
        "  }",
        "",
    ]
    assert json.loads(run(broker, *one, "--json").stdout) == {
        "topic": orders,
        "partition": 2,
        "offset": 1,
        "timestamp": "2026-01-31T12:05:00Z",
        "key": "c-2",
        "value": value,
        "headers": {"shop": "north"},
        "priority": "high",
        "encoding": "text",
    }
    template = r"{{{partition}}}\t{offset} {priority} {headers.shop} {headers} {value.city}{value.x}"
    assert run(broker, *one, "--template", template).stdout == "{2}\t1 high north shop=north Oslo\n"


def test_what_is_no_text_is_base64_and_what_a_terminal_would_obey_is_escaped(
    broker: BrokerProcess, client: Client
) -> None:
    topic = new_topic(client, [b"\x00\xff", b"\x1b[2J", Outgoing(None, key="k")], partitions=1)
    rows = [json.loads(line) for line in run(broker, topic, "--json").stdout.splitlines()]
    assert [(row["value"], row["encoding"]) for row in rows] == [
        ("AP8=", "base64"),
        ("\x1b[2J", "text"),
        (None, "text"),
    ]
    lines = run(broker, topic, "--format", "line").stdout.splitlines()
    assert [line.split("Z  ")[1] for line in lines] == ["0/0  (2 bytes) AP8=", r"0/1  \x1b[2J", "0/2  k  (tombstone)"]


ROWS = st.fixed_dictionaries(
    {"value": st.none() | st.text(max_size=20) | st.binary(max_size=20), "key": st.text(min_size=1, max_size=5)},
    optional={
        "headers": st.dictionaries(st.text("abc", min_size=1), st.text(max_size=3) | st.lists(st.text(), min_size=2)),
        "priority": st.sampled_from(["critical", "low", "background"]),
        "partition": st.integers(0, 2),
    },
)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(ROWS, min_size=1, max_size=8))
def test_what_is_read_as_json_can_be_produced_again(broker: BrokerProcess, client: Client, rows: list[Any]) -> None:
    for row in rows:
        if isinstance(row["value"], bytes):
            row.update(value=row["value"].hex())
        if not row.get("headers", True):
            del row["headers"]
    first, second = (new_topic(client, [], partitions=3) for _ in range(2))
    sent = run(broker, first, "--jsonl", command="produce", input="\n".join(map(json.dumps, rows)))
    assert sent.exit_code == 0, sent.output
    copy = run(broker, first, "--json").stdout
    # Not splitlines: texts may have other ends of lines in them.
    read = [json.loads(line) for line in copy.split("\n") if line]
    assert sorted((row["key"], row["value"] or "") for row in read) == sorted(
        (row["key"], row["value"] or "") for row in rows
    )
    assert run(broker, second, "--jsonl", command="produce", input=copy).exit_code == 0
    again = [json.loads(line) for line in run(broker, second, "--json").stdout.split("\n") if line]
    assert [row | {"topic": first} for row in again] == read


def test_values_with_a_schema_are_shown_as_json(broker: BrokerProcess, client: Client) -> None:
    topic = new_topic(client, [], partitions=1)
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    with client.producer(serializer=AvroSerializer(client.schemas, schema)) as producer:
        producer.send(topic, {"id": 17}).result()
    with client.producer() as producer:
        producer.send_many(topic, ["plain", b"\x00\x00\x00\x99\x99not a schema"])
    ran = run(broker, topic, "--decode", "--format", "value")
    assert ran.stdout_bytes == b'{"id":17}\nplain\n\x00\x00\x00\x99\x99not a schema\n'
    assert run(broker, topic, "--decode", "--where", "id == 17").stdout == '{"id":17}\n'


def test_a_queue_gets_what_is_printed_acked(broker: BrokerProcess, client: Client) -> None:
    topic, group = new_topic(client, [f"job {number}" for number in range(5)], partitions=1), f"g-{uuid4().hex[:8]}"
    quick = ["--group", group, "--wait", "30s"]
    kept = run(broker, topic, *quick, "--limit", "2", "--no-ack")
    assert kept.stdout == "job 0\njob 1\n"
    taken = [json.loads(line) for line in run(broker, topic, *quick, "--limit", "2", "--json").stdout.splitlines()]
    assert sorted((row["value"], row["deliveries"]) for row in taken) == [("job 0", 2), ("job 1", 2)]
    # A queue promises no order to what was in somebody's hand.
    rest = run(broker, topic, *quick, "--limit", "3").stdout
    assert sorted(rest.splitlines()) == ["job 2", "job 3", "job 4"]
    described = client.describe_group(group)
    assert (described.lag, described.settings["kind"]) == (0, "shared")


def test_a_stream_goes_on_behind_what_was_printed(broker: BrokerProcess, client: Client) -> None:
    topic, group = new_topic(client, ["a", "b", "c"], partitions=1), f"g-{uuid4().hex[:8]}"
    client.configure_group(group, mode="stream")
    quick = ["--group", group, "--wait", "30s"]
    assert run(broker, topic, *quick, "--limit", "3", "--no-ack").stdout == "a\nb\nc\n"
    assert run(broker, topic, *quick, "--limit", "2").stdout == "a\nb\n"
    assert run(broker, topic, *quick, "--limit", "1").stdout == "c\n"
    ended = run(broker, topic, "--group", group, "--wait", "200ms")
    assert (ended.exit_code, ended.stdout) == (0, "")


@pytest.mark.parametrize(
    ("options", "status", "why"),
    [
        (["--from", "noon"], 2, "none of earliest, latest"),
        (["--from", "1", "--since", "5m"], 2, "use one of them"),
        (["--from", "0:1,0:2"], 2, "named twice"),
        (["--partition", "9"], 4, "partitions; there is no 9"),
        (["--where", "total"], 2, "belongs there"),
        (["--template", "{ofset}"], 2, "did you mean 'offset'"),
        (["--template", "{"], 2, "no partner"),
        (["--follow", "--until", "5"], 2, "use one of them"),
        (["--group", "g", "--key", "k"], 2, "neither with"),
        (["--no-ack"], 2, "about groups"),
        (["--json", "--format", "raw"], 2, "use one of them"),
        (["--limit", "0"], 2, "it must be at least 1"),
    ],
)
def test_a_wrong_request_is_told(broker: BrokerProcess, orders: str, options: list[str], status: int, why: str) -> None:
    ran = run(broker, orders, *options)
    assert (ran.exit_code, ran.stdout) == (status, "")
    assert why in ran.stderr
    assert run(broker, "nothing-there").exit_code == 4


def started(broker: BrokerProcess, *arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    environment |= {"GOQUEUE_SERVER": broker.url, "TERM": "xterm-256color"}
    return subprocess.Popen([SCRIPT, "consume", *arguments], env=environment, **pipes)


def test_following_goes_on_until_an_interrupt(broker: BrokerProcess, client: Client) -> None:
    topic = new_topic(client, ["a"], partitions=2)
    with started(broker, topic, "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        assert ran.stdout and ran.stderr
        assert ran.stdout.readline() == b"a\n"
        with client.producer() as producer:
            producer.send(topic, "b").result()
        assert ran.stdout.readline() == b"b\n"
        ran.send_signal(signal.SIGINT)
        assert ran.wait(30) == 0
        told = ran.stderr.read().decode()
    found = re.fullmatch(r"interrupted after 2 messages; go on with --from (0:\d,1:\d)\n", told)
    assert found is not None
    with client.producer() as producer:
        producer.send(topic, "c").result()
    assert run(broker, topic, "--from", found[1]).stdout == "c\n"


def test_an_interrupt_says_where_to_go_on_and_a_closed_pipe_nothing(broker: BrokerProcess, client: Client) -> None:
    # Several times of what a pipe holds: neither run is at its end before it is stopped.
    topic = new_topic(client, [b"%06d" % number for number in range(60_000)], partitions=1)
    with started(broker, topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        assert ran.stdout and ran.stderr
        first = ran.stdout.readline()
        ran.send_signal(signal.SIGINT)
        count = len([first, *ran.stdout.readlines()])
        assert ran.wait(30) == 130
        told = ran.stderr.read().decode()
    assert told == f"interrupted after {count:,} messages; go on with --from 0:{count}\n"
    assert run(broker, topic, "--from", f"0:{count}", "--limit", "1").stdout == f"{count:06d}\n"
    with started(broker, topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        assert ran.stdout and ran.stderr
        assert ran.stdout.readline() == b"000000\n"
        ran.stdout.close()
        assert (ran.wait(30), ran.stderr.read()) == (0, b"")


def test_lines_fit_a_terminal_and_have_colours(broker: BrokerProcess, client: Client) -> None:
    topic = new_topic(client, [Outgoing('{"note": "' + "x" * 500 + '\x1b"}', key="ada")], partitions=1)
    ours, theirs = pty.openpty()
    with started(broker, topic, stdin=theirs, stdout=theirs, stderr=theirs) as ran:
        os.close(theirs)
        output = b""
        try:
            while chunk := os.read(ours, 65_536):
                output += chunk
        except OSError:
            pass  # Linux ends the reading of a closed terminal with an error.
        os.close(ours)
    assert ran.returncode == 0
    drawn = output.decode()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", drawn).splitlines()
    assert len(plain) == 1 and len(plain[0]) == 80 and plain[0].endswith("xxx…")
    assert '\x1b[34m"note"\x1b[0m' in drawn


@pytest.mark.parametrize("follow", [[], ["--follow", "--limit", "1"]])
def test_whoever_begins_behind_the_end_is_told_where_it_is(
    broker: BrokerProcess, client: Client, follow: list[str]
) -> None:
    topic = new_topic(client, [Outgoing("a", partition=0), Outgoing("b", partition=0)], partitions=1)
    command = [SCRIPT, "consume", topic, "--server", broker.url, "--from", "99999999999999", *follow]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stderr is not None
        assert ran.stderr.readline() == "partition 0 ends at offset 2: 99999999999999 is not there yet\n"
        with client.producer() as producer:
            producer.send_many(topic, ["c"])
        output, _ = ran.communicate(timeout=60)
    assert (ran.returncode, output) == (0, "c\n" if follow else "")


def test_an_offset_behind_the_end_of_some_partitions_is_nothing_to_tell(broker: BrokerProcess, client: Client) -> None:
    messages = [Outgoing(text, partition=number) for text, number in (("a", 0), ("b", 0), ("c", 1))]
    topic = new_topic(client, messages, partitions=3)
    told = run(broker, topic, "--from", "1")
    assert (told.stdout, told.stderr) == ("b\n", "")
    assert run(broker, topic, "--from", "0:1,2:7").stderr == "partition 2 ends at offset 0: 7 is not there yet\n"


def test_it_says_why_no_more_come_to_who_acks_nothing(broker: BrokerProcess, client: Client) -> None:
    topic = new_topic(client, [b"x"] * 1_100, partitions=1)
    ran = run(broker, topic, "--group", f"g-{topic}", "--no-ack")
    assert (ran.exit_code, ran.stdout.count("x")) == (0, 1_000)
    assert ran.stderr == ("ended after 1,000 messages: so many may be in hand without an ack; they are given back\n")
