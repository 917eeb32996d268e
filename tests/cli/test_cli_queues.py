"""``goqueue queue`` against a broker in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from typer.testing import CliRunner, Result

from goqueue.cli.app import app
from goqueue.cli.commands.queue.queue_member import StayingMember, find_target
from goqueue.cli.connection.broker_http import BrokerHttp, NoBroker
from goqueue.testing import BrokerProcess

SCRIPT = str(Path(sys.executable).with_name("goqueue"))


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30) as made:
        yield made


@pytest.fixture
def topic(http: httpx.Client) -> str:
    """With six messages in one partition."""
    name = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": name, "num_partitions": 1}).raise_for_status()
    messages = [{"value": f'{{"order":{at}}}', "key": f"c{at}", "headers": {"shop": "north"}} for at in range(6)]
    http.post(f"/topics/{name}/messages", json={"messages": messages}).raise_for_status()
    return name


@pytest.fixture
def group() -> str:
    return f"g-{uuid4().hex[:8]}"


def run(broker: BrokerProcess, *arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(app, ["queue", *arguments], env={"GOQUEUE_SERVER": broker.url}, input=given)


def done(broker: BrokerProcess, *arguments: str, given: str = "") -> Result:
    result = run(broker, *arguments, given=given)
    assert result.exit_code == 0, result.output
    return result


def polled(broker: BrokerProcess, *arguments: str) -> list[Any]:
    return [json.loads(line) for line in done(broker, "poll", *arguments, "--json").stdout.splitlines()]


def receipts(messages: list[Any]) -> list[str]:
    return [each["receipt_handle"] for each in messages]


def left(broker: BrokerProcess, group: str, *arguments: str) -> list[tuple[int, str, int]]:
    """What it has to do: offset, state, deliveries."""
    found = json.loads(done(broker, "peek", group, "-n", "100", *arguments, "--json").stdout)["messages"]
    return [(each["offset"], each["state"], each.get("deliveries", 0)) for each in found]


def test_what_one_command_polls_another_acks(broker: BrokerProcess, http: httpx.Client, topic: str, group: str) -> None:
    first = done(broker, "poll", group, "--topic", topic, "--wait", "0s")
    lines = first.stdout.splitlines()
    assert lines[0] == f"{topic}/0/0  key c0, delivery 1"
    assert "  header shop: north" in lines and '  |   "order": 0' in lines
    assert re.fullmatch(r"it is in flight for 30s, until ([0-9-]{10} )?[0-9:]{8}; then others get .*\n", first.stderr)
    receipt = lines[1].removeprefix("  receipt: ")
    # Other polls are the work of the same member, and void nothing.
    more = polled(broker, group, "-n", "2")
    assert [each["offset"] for each in more] == [1, 2]
    assert len(http.get(f"/groups/{group}").json()["members"]) == 1
    assert left(broker, group)[:4] == [(0, "in-flight", 1), (1, "in-flight", 1), (2, "in-flight", 1), (3, "waiting", 0)]
    assert done(broker, "ack", receipt, *receipts(more)).stdout == "3 acked\n"
    assert [each[0] for each in left(broker, group)] == [3, 4, 5]


def test_a_pipe_settles_what_it_gets(broker: BrokerProcess, topic: str, group: str) -> None:
    lines = done(broker, "poll", group, "--topic", topic, "-n", "2", "--json").stdout
    assert done(broker, "ack", "-", given=lines).stdout == "2 acked\n"
    plain = "\n".join(receipts(polled(broker, group, "-n", "2")))
    assert done(broker, "ack", "-", given=f"\n{plain}\n\n").stdout == "2 acked\n"
    assert left(broker, group) == [(4, "waiting", 0), (5, "waiting", 0)]


def test_receipts_that_do_not_hold_are_listed_and_the_others_carried_out(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    (message,) = polled(broker, group, "--topic", topic)
    mixed = run(broker, "ack", "nonsense", *receipts([message]))
    assert mixed.exit_code == 1
    lines = mixed.stdout.splitlines()
    assert lines[0].split() == ["receipt", "problem", "why"]
    assert lines[1].split()[:2] == ["nonsense", "invalid_receipt"] and lines[2] == "1 acked"
    assert mixed.stderr == "1 of 2 could not be acked\n"
    again = run(broker, "nack", *receipts([message]), "--json")
    told = json.loads(again.stdout)
    assert (again.exit_code, told["settled"], told["failed"]) == (1, 0, 1)
    assert told["results"][0]["receipt_handle"] == message["receipt_handle"]
    assert told["results"][0]["code"] == "stale_receipt"


def test_messages_are_given_back_rejected_and_kept_longer(broker: BrokerProcess, topic: str, group: str) -> None:
    messages = polled(broker, group, "--topic", topic, "-n", "3")
    one, two, three = receipts(messages)
    assert done(broker, "nack", one, "--delay", "1h", "--reason", "no printer").stdout == "1 given back\n"
    assert done(broker, "reject", two, "--reason", "no such city").stdout == "1 rejected\n"
    extended = json.loads(done(broker, "extend", three, "--for", "10m", "--json").stdout)
    shown = json.loads(done(broker, "peek", group, "--json").stdout)["messages"]
    held = {each["offset"]: each for each in shown}
    assert (held[0]["state"], held[0]["error"]) == ("retry", "no printer")
    # The broker counts from a moment later than it answers.
    assert held[2]["until"] >= extended["results"][0]["until"] > messages[2]["timestamp"]
    table = done(broker, "peek", group).stdout.splitlines()
    titles = ["message", "key", "value", "state", "deliveries", "last error"]
    assert re.split(r"  +", table[0]) == titles
    assert re.fullmatch(rf'{topic}/0/0 +c0 +{{"order":0}} +retry in (59m\d\ds|1h00m) +1 +no printer', table[1])
    assert f"in flight by {held[2]['member'][:10]}" in done(broker, "peek", group, "--state", "in-flight").stdout


def test_with_ack_it_is_printed_acked_and_nobody_stays(
    broker: BrokerProcess, http: httpx.Client, topic: str, group: str
) -> None:
    shown = done(broker, "poll", group, "--topic", topic, "-n", "4", "--ack")
    assert shown.stderr == "4 acked\n" and shown.stdout.count('"order"') == 4 and "receipt" not in shown.stdout
    assert left(broker, group) == [(4, "waiting", 0), (5, "waiting", 0)]
    found = http.get(f"/groups/{group}").json()
    assert (found["members"], found["settings"]["kind"]) == ([], "shared")


def test_whoever_gets_nothing_leaves_and_says_so(
    broker: BrokerProcess, http: httpx.Client, topic: str, group: str
) -> None:
    done(broker, "poll", group, "--topic", topic, "-n", "10", "--ack")
    for how in ([], ["--ack"]):
        empty = done(broker, "poll", group, "--wait", "10ms", *how)
        assert (empty.stdout, empty.stderr) == ("", "no message came within 10ms\n")
        assert http.get(f"/groups/{group}").json()["members"] == []


def test_visibility_is_as_long_as_asked_for_and_the_groups_own_setting_stays(
    broker: BrokerProcess, http: httpx.Client, topic: str, group: str
) -> None:
    before = polled(broker, group, "--topic", topic)
    result = done(broker, "poll", group, "--visibility", "20m")
    assert "in flight for 20m, until " in result.stderr
    found = http.get(f"/groups/{group}").json()
    assert found["settings"]["visibility_timeout_ms"] is None
    assert sorted(each["session_timeout"] for each in found["members"]) == ["20m10s", "40s"]
    # Another member for another span: what the first has stays good.
    done(broker, "ack", *receipts(before))
    flying = json.loads(done(broker, "peek", group, "--state", "in-flight", "--json").stdout)["messages"]
    assert [each["offset"] for each in flying] == [1]
    assert done(broker, "leave", group).stdout == "left the group; 1 message was given back\n"
    assert left(broker, group)[0][:2] == (1, "retry")
    assert done(broker, "leave", group).stderr == "nobody who polled from here is in the group\n"


def test_a_group_of_whole_partitions_is_polled_as_it_is(
    broker: BrokerProcess, http: httpx.Client, topic: str, group: str
) -> None:
    http.put(f"/groups/{group}", json={"settings": {"kind": "range", "ordering": "key"}}).raise_for_status()
    assert [each["offset"] for each in polled(broker, group, "--topic", topic)] == [0]
    found = http.get(f"/groups/{group}").json()
    assert (found["protocol"], found["settings"]["ordering"]) == ("range", "key")
    (member,) = found["members"]
    assert member["assigned_partitions"] == [f"{topic}-0"]
    done(broker, "leave", group)


def test_in_a_group_of_whole_partitions_it_takes_some_from_the_others_until_it_leaves(
    broker: BrokerProcess, http: httpx.Client, group: str
) -> None:
    name = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": name, "num_partitions": 2}).raise_for_status()
    messages = [{"value": "v", "partition": at} for at in (0, 1)]
    http.post(f"/topics/{name}/messages", json={"messages": messages}).raise_for_status()
    http.post(f"/groups/{group}/join", json={"client_id": "desk", "topics": [name], "session_timeout": "30m"})

    def owned() -> list[int]:
        members = http.get(f"/groups/{group}").json()["members"]
        return sorted(len(each["assigned_partitions"]) for each in members)

    assert owned() == [2]
    (message,) = polled(broker, group)
    assert owned() == [1, 1]
    assert done(broker, "ack", message["receipt_handle"]).stdout == "1 acked\n"
    assert done(broker, "leave", group).stdout == "left the group; 0 messages were given back\n"
    assert owned() == [2]


def test_what_cannot_be_polled_is_said_and_nothing_is_made_of_it(
    broker: BrokerProcess, http: httpx.Client, topic: str, group: str
) -> None:
    unknown = run(broker, "poll", group)
    assert unknown.exit_code == 4
    assert f"error: group '{group}' does not exist" in unknown.stderr and "--topic NAME" in unknown.stderr
    assert run(broker, "poll", group, "--topic", "nowhere").exit_code == 4
    assert http.get(f"/groups/{group}").status_code == 404
    http.put(f"/groups/{group}", json={"settings": {"mode": "stream"}}).raise_for_status()
    stream = run(broker, "poll", group, "--topic", topic)
    assert stream.exit_code == 2 and "is a stream" in stream.stderr and "goqueue consume" in stream.stderr
    other = f"{group}-2"
    polled(broker, other, "--topic", topic)
    http.post("/topics", json={"name": f"{topic}-2", "num_partitions": 1}).raise_for_status()
    foreign = run(broker, "poll", other, "--topic", f"{topic}-2")
    assert foreign.exit_code == 2 and f"does not read topic {topic}-2; it reads {topic}" in foreign.stderr
    assert [each["topic"] for each in http.get(f"/groups/{other}").json()["lag"]] == [topic]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["poll", "g", "--visibility", "30m"], ""),
        (["poll", "g", "--visibility", "10ms"], ""),
        (["poll", "g", "--wait", "soon"], ""),
        (["poll", "g", "-n", "0"], ""),
        (["peek", "g", "--partition", "0"], ""),
        (["peek", "g", "--state", "asleep"], ""),
        (["ack"], ""),
        (["ack", "-"], "\n"),
        (["ack", "-", "orders:0:0:1:x"], ""),
        (["ack", "-"], '{"value": "no receipt"}\n'),
        (["ack", "-"], "two words\n"),
        (["nack", "r", "--delay", "13h"], ""),
        (["extend", "r"], ""),
        (["extend", "r", "--for", "1y"], ""),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anyone_is_asked(arguments: list[str], given: str) -> None:
    result = CliRunner().invoke(app, ["queue", *arguments], env={"GOQUEUE_SERVER": "http://127.0.0.1:1"}, input=given)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output


def test_a_look_is_as_long_as_wanted(broker: BrokerProcess, http: httpx.Client, topic: str, group: str) -> None:
    done(broker, "poll", group, "--topic", topic, "-n", "1", "--ack")
    some = done(broker, "peek", group, "-n", "2")
    assert len(some.stdout.splitlines()) == 3 and some.stderr == "there is more; -n shows more of it\n"
    assert len(left(broker, group, "--topic", topic, "--partition", "0")) == 5
    assert done(broker, "peek", group, "--state", "moving").stderr == "the group has nothing of that kind to do\n"
    assert run(broker, "peek", "nobody").exit_code == 4
    http.put(f"/groups/{group}-s", json={"settings": {"mode": "stream"}}).raise_for_status()
    http.post(f"/groups/{group}-s/reset", json={"topic": topic, "offset": 4}).raise_for_status()
    assert left(broker, f"{group}-s") == [(4, "waiting", 0), (5, "waiting", 0)]


def test_nothing_that_a_producer_wrote_can_draw(broker: BrokerProcess, http: httpx.Client, group: str) -> None:
    name = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": name, "num_partitions": 1}).raise_for_status()
    ugly = {"value": "\x1b[2J\nsecond", "key": "\x1b]0;k", "headers": {"h": "\x1b[1m"}}
    binary = {"value": "AAEC/w==", "encoding": "base64"}
    http.post(f"/topics/{name}/messages", json={"messages": [ugly, binary, {"value": None, "key": "k"}]})
    shown = done(broker, "poll", group, "--topic", name, "-n", "3").stdout
    assert "\x1b" not in shown and "  | \\x1b[2J\n  | second\n" in shown
    assert "  | base64:AAEC/w==\n" in shown and "  | (tombstone)\n" in shown
    table = done(broker, "peek", group).stdout
    assert "\x1b" not in table and len(table.splitlines()) == 4


def test_commands_at_the_same_moment_void_nothing_of_each_other(
    broker: BrokerProcess, http: httpx.Client, topic: str, group: str
) -> None:
    command = [SCRIPT, "queue", "poll", group, "--topic", topic, "--json", "--server", broker.url]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [each.communicate(timeout=60)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0, 0]
    messages = [json.loads(line) for output in outputs for line in output.splitlines()]
    assert len(messages) == 3
    assert len(http.get(f"/groups/{group}").json()["members"]) <= 3
    assert done(broker, "ack", *receipts(messages)).stdout == "3 acked\n"


def one_message(http: httpx.Client, topic: str) -> None:
    http.post(f"/topics/{topic}/messages", json={"messages": [{"value": "v"}]}).raise_for_status()


def test_who_polls_in_vain_voids_nothing_that_another_got_as_the_same_member(
    broker: BrokerProcess, http: httpx.Client, group: str
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": topic, "num_partitions": 1}).raise_for_status()
    asked = BrokerHttp(broker.url, 30)
    first = StayingMember(asked, find_target(asked, group, [topic]), 30_000)
    assert first.poll(1, 0) == []
    second = StayingMember(asked, find_target(asked, group, []), 30_000)
    assert second.member_id == first.member_id and second.in_flight == 0
    one_message(http, topic)
    (message,) = first.poll(1, 10_000)
    assert second.poll(1, 0) == []
    second.leave_if_idle()
    assert left(broker, group) == [(0, "in-flight", 1)]
    assert done(broker, "ack", message["receipt_handle"]).stdout == "1 acked\n"
    # With nothing in flight it does leave, and whoever waits as the same member is in the group again.
    second.leave_if_idle()
    assert http.get(f"/groups/{group}").json()["members"] == []
    one_message(http, topic)
    assert len(first.poll(1, 0)) == 1


def test_who_waits_goes_on_when_another_leaves_as_the_same_member(
    broker: BrokerProcess, http: httpx.Client, group: str
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": topic, "num_partitions": 1}).raise_for_status()
    command = [SCRIPT, "queue", "poll", group, "--topic", topic, "--wait", "60s", "--json", "--server", broker.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        while not (there := http.get(f"/groups/{group}").json().get("members")):
            assert waiting.poll() is None
        assert done(broker, "poll", group, "--wait", "10ms").stdout == ""
        while http.get(f"/groups/{group}").json()["members"] in ([], there):
            assert waiting.poll() is None
        one_message(http, topic)
        output, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert done(broker, "ack", "-", given=output).stdout == "1 acked\n"


def test_a_member_leaves_if_it_is_idle_or_stays_with_what_it_has(
    broker: BrokerProcess, http: httpx.Client, topic: str, group: str
) -> None:
    (message,) = polled(broker, group, "--topic", topic)
    (member,) = http.get(f"/groups/{group}").json()["members"]
    leaving = {"member_id": member["member_id"], "if_idle": True}
    assert http.post(f"/groups/{group}/leave", json=leaving).json() == {"left": False}
    done(broker, "ack", message["receipt_handle"])
    assert http.post(f"/groups/{group}/leave", json=leaving).json() == {"left": True}


def test_only_those_who_polled_from_here_are_taken_out(
    broker: BrokerProcess, http: httpx.Client, topic: str, group: str
) -> None:
    polled(broker, group, "--topic", topic)
    (here,) = http.get(f"/groups/{group}").json()["members"]
    name = here["instance_id"][: -len("-12345678-12345678")]
    assert name == here["client_id"]
    other = {"client_id": f"{name}-2", "topics": [topic], "instance_id": f"{name}-2-12345678-12345678"}
    http.post(f"/groups/{group}/join", json=other).raise_for_status()
    told = json.loads(done(broker, "leave", group, "--json").stdout)
    assert told == {"left": [here["member_id"]], "given_back": 1}
    assert [each["client_id"] for each in http.get(f"/groups/{group}").json()["members"]] == [f"{name}-2"]


def breaks_off(monkeypatch: pytest.MonkeyPatch, last: str, good: int) -> None:
    """The connection breaks when a path with this end is asked for once more than ``good`` times."""
    send, asked = BrokerHttp.send, []

    def broken(self: BrokerHttp, method: str, path: list[str], *more: Any, **named: Any) -> Any:
        if path[-1] == last:
            asked.append(path)
            if len(asked) > good:
                raise NoBroker("the connection broke")
        return send(self, method, path, *more, **named)

    monkeypatch.setattr(BrokerHttp, "send", broken)


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_what_was_settled_is_told_before_the_error(
    broker: BrokerProcess, topic: str, group: str, how: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (message,) = polled(broker, group, "--topic", topic)
    lines = "\n".join([*receipts([message]), *(f"no-{at}" for at in range(1_200))])
    breaks_off(monkeypatch, "ack", 1)
    result = run(broker, "ack", "-", *how, given=lines)
    assert result.exit_code == 3 and "error: the connection broke" in result.stderr
    assert "201 receipts are left" in result.stderr
    if how:
        told = json.loads(result.stdout)
        assert (told["settled"], told["failed"], len(told["results"])) == (1, 999, 1_000)
    else:
        assert result.stdout.endswith("\n1 acked\n")


def test_a_page_that_came_before_an_error_is_a_whole_document(
    broker: BrokerProcess, http: httpx.Client, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": topic, "num_partitions": 1}).raise_for_status()
    for _ in range(12):
        messages = [{"value": "x" * 1_000_000}] * 3
        http.post(f"/topics/{topic}/messages", json={"messages": messages}).raise_for_status()
    done(broker, "poll", group, "--topic", topic, "--ack")
    # Values that a table does not show are not held.
    tracemalloc.start()
    table = done(broker, "peek", group, "-n", "100").stdout
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table.splitlines()) == 36 and peak < 20_000_000
    breaks_off(monkeypatch, "messages", 1)
    result = run(broker, "peek", group, "-n", "100", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 3 and 1 <= len(told["messages"]) < 35 and told["next"]


def test_a_message_cannot_look_like_a_receipt(broker: BrokerProcess, http: httpx.Client, group: str) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    http.post("/topics", json={"name": topic, "num_partitions": 1}).raise_for_status()
    forged = {"value": "x\n  receipt: evil\nreceipt: evil", "key": "k\n  receipt: evil", "headers": {"receipt": "evil"}}
    http.post(f"/topics/{topic}/messages", json={"messages": [forged]}).raise_for_status()
    lines = done(broker, "poll", group, "--topic", topic).stdout.splitlines()
    assert [at for at, line in enumerate(lines) if re.match(r" *receipt: ", line)] == [1]
    assert lines[1].startswith(f"  receipt: {topic}:0:0:1:")


def test_what_is_not_text_is_no_receipt(broker: BrokerProcess) -> None:
    command = [SCRIPT, "queue", "ack", "-", "--server", broker.url]
    result = subprocess.run(command, input=b"\xff\n", capture_output=True, timeout=60, check=False)
    assert result.returncode == 2 and b"is no receipt" in result.stderr and b"Traceback" not in result.stderr
    named = subprocess.run([*command[:3], b"\xff", *command[4:]], capture_output=True, timeout=60, check=False)
    assert named.returncode == 2 and b"is no receipt" in named.stderr and b"Traceback" not in named.stderr
