"""How traces are drawn: stories, and the exact text that comes of them."""

from __future__ import annotations

import textwrap
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from goqueue.cli.commands.trace.event_words import is_settled
from goqueue.cli.commands.trace.trace_answers import Story, parse_page, parse_story
from goqueue.cli.commands.trace.trace_view import OutputFormat, stories_table, story_lines
from goqueue.cli.connection.broker_http import NoBroker
from goqueue.cli.terminal.output import plain_text
from goqueue.cli.terminal.times import Times, duration
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.units import parse_instant_ns

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
DAY = "2030-01-01T"
PIPE = OutputFormat(Times(UTC))
BILLING = {"group": "billing", "member": "worker-1", "attempt": 1}
PLACE = {"topic": "orders", "partition": 0, "offset": 17}
COPY = {"topic": "orders", "partition": 0, "offset": 99}
LETTER = {"topic": "orders.dlq", "partition": 0, "offset": 4}


def event(clock: str, kind: str, **details: Any) -> dict[str, Any]:
    if "until" in details:
        details["until"] = f"{DAY}{details['until']}Z"
    return {"timestamp": f"{DAY}{clock}Z", "event_type": kind, "attributes": details}


def group(state: str, name: str = "billing", **more: Any) -> dict[str, Any]:
    return {"group": name, "state": state, **PLACE, **more}


def story(*events: dict[str, Any], status: str = "completed", **more: Any) -> Story:
    return parse_story(
        {"trace_id": TRACE, **PLACE, "status": status, "in_log": True, "events": events, "groups": [], **more}
    )


def body(told: Story, paper: OutputFormat = PIPE) -> str:
    """All but which message it is."""
    return "\n".join(plain_text(story_lines(told, paper)).splitlines()[2:]) + "\n"


PUBLISHED = event("09:00:00", "publish")
DELIVERED = event("09:00:00.25", "consume", **BILLING, until="09:00:30.25")

OPEN = {"producer_id": 12, "transaction_id": "12-0-f40b0548fafd4da8", "deadline": f"{DAY}09:01:00Z"}

STORIES = {
    "behind a transaction": (
        story(
            PUBLISHED,
            status="pending",
            groups=[group("waiting")],
            waits_for={"own": False, "transactional_id": "app", **OPEN},
        ),
        """\
        status  pending: waiting for group billing, behind a transaction that has not ended: \
12-0-f40b0548fafd4da8 of 'app', aborted at 09:01:00 unless it ends before

        2030-01-01, UTC
        09:00:00.000                     | published

        now     billing  waiting: not delivered yet
        """,
    ),
    "in a transaction": (
        story(
            event("09:00:00", "publish", reason="in a transaction of producer 12"),
            status="pending",
            waits_for={"own": True, **OPEN},
        ),
        """\
        status  pending: its transaction has not ended: 12-0-f40b0548fafd4da8 of producer 12, \
aborted at 09:01:00 unless it ends before

        2030-01-01, UTC
        09:00:00.000                     | published in a transaction of producer 12
        """,
    ),
    "in a transaction of which little is known": (
        story(PUBLISHED, status="pending", waits_for={"own": True, "producer_id": 12}),
        """\
        status  pending: its transaction has not ended: one of producer 12

        2030-01-01, UTC
        09:00:00.000                     | published
        """,
    ),
    "aborted, and why": (
        story(PUBLISHED, event("09:00:01", "aborted", reason="its transaction was aborted: too late"), status="error"),
        """\
        status  aborted after 1.00 s

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:01.000   +1.00 s   1.00 s  | aborted with its transaction (too late): nobody ever sees it
        """,
    ),
    "the end of a transaction": (
        story(event("09:00:00", "transaction_end", reason="a transaction of producer 12 was committed", source="log")),
        """\
        status  no message, but the end of a transaction

        2030-01-01, UTC
        09:00:00.000                     | a transaction of producer 12 was committed here
        """,
    ),
    "settled at once": (
        story(PUBLISHED, DELIVERED, event("09:00:01.3125", "ack", **BILLING), groups=[group("settled")]),
        """\
        status  completed in 1.31 s

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:00.250   +250 ms   250 ms  | delivered to worker-1 of group billing, attempt 1, until 09:00:30
        09:00:01.312   +1.06 s   1.31 s  | acked by worker-1 of group billing

        now     billing  done
        """,
    ),
    "tried, put off and given up": (
        story(
            PUBLISHED,
            event("09:00:00.0004", "consume", **BILLING, until="09:00:30"),
            event("09:00:00.0074", "nack", **BILLING, reason="declined", until="09:00:10.0074"),
            event("09:00:10.1", "redelivered", **BILLING | {"attempt": 2, "member": "worker-2"}, until="09:00:40.1"),
            event("09:00:12", "extended", **BILLING | {"attempt": 2, "member": "worker-2"}, until="09:01:40"),
            event("09:01:40.1", "expired", **BILLING | {"attempt": 2}, reason="its visibility timed out"),
            event("09:01:41", "redelivered", **BILLING | {"attempt": 3}, until="09:02:11"),
            event("09:01:42", "released", **BILLING | {"attempt": 3}, reason="its consumer left"),
            event("09:01:43", "redelivered", **BILLING | {"attempt": 4}, until="09:02:13"),
            event("09:01:44", "reject", **BILLING | {"attempt": 4}, reason="bad number"),
            event("09:01:44.01", "dlq", **BILLING | {"attempt": 4}, reason="bad number", to=LETTER),
            status="error",
            groups=[group("dead-lettered", reason="bad number"), group("waiting", "mail")],
        ),
        """\
        status  dead-lettered after 1m44s

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:00.000   +0.4 ms   0.4 ms  | delivered to worker-1 of group billing, attempt 1, until 09:00:30
        09:00:00.007   +7.0 ms   7.4 ms  | nacked by worker-1 of group billing: declined; again from 09:00:10.007 on
        09:00:10.100   +10.1 s   10.1 s  | redelivered to worker-2 of group billing, attempt 2, until 09:00:40
        09:00:12.000   +1.90 s   12.0 s  | kept longer by worker-2 of group billing, until 09:01:40
        09:01:40.100    +1m28s    1m40s  | not settled in time by worker-1 of group billing
        09:01:41.000   +900 ms    1m41s  | redelivered to worker-1 of group billing, attempt 3, until 09:02:11
        09:01:42.000   +1.00 s    1m42s  | given back by worker-1 of group billing: its consumer left
        09:01:43.000   +1.00 s    1m43s  | redelivered to worker-1 of group billing, attempt 4, until 09:02:13
        09:01:44.000   +1.00 s    1m44s  | rejected by worker-1 of group billing: bad number
        09:01:44.010    +10 ms    1m44s  | dead-lettered to orders.dlq/0/4 for group billing: bad number

        now     billing  dead-lettered: bad number
                mail     waiting: not delivered yet
        """,
    ),
    "redriven, while another group has it": (
        story(
            PUBLISHED,
            event("09:00:01", "dlq", **BILLING, reason="no", to=LETTER),
            event("09:00:02", "redriven", **LETTER, to=COPY),
            event("09:00:03", "consume", group="mail", member="m", attempt=1),
            event("09:00:04", "consume", **BILLING, **COPY),
            status="pending",
            groups=[
                group("dead-lettered", reason="no"),
                group("in flight", "mail", member="m", until=f"{DAY}09:00:33Z"),
                group("in flight", **COPY, member="worker-1", until="2030-01-02T00:00:01Z"),
            ],
        ),
        """\
        status  pending: in flight in groups billing, mail

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:01.000   +1.00 s   1.00 s  | dead-lettered to orders.dlq/0/4 for group billing: no
        09:00:02.000   +1.00 s   2.00 s  | redriven to orders/0/99
        09:00:03.000   +1.00 s   3.00 s  | delivered to m of group mail, attempt 1 (orders/0/17)
        09:00:04.000   +1.00 s   4.00 s  | delivered to worker-1 of group billing, attempt 1 (orders/0/99)

        now     billing  in flight to worker-1 until 2030-01-02 00:00:01
                mail     in flight to m until 09:00:33
        """,
    ),
    "delayed": (
        story(
            PUBLISHED,
            event("09:00:00", "delay", until="10:00:00"),
            event("09:00:05", "rescheduled", until="11:30:00"),
            status="pending",
        ),
        """\
        status  pending: delayed until 11:30:00

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:00.000     +0 ms     0 ms  | delayed until 10:00:00
        09:00:05.000   +5.00 s   5.00 s  | rescheduled to 11:30:00
        """,
    ),
    "delayed and taken back": (
        story(PUBLISHED, event("09:00:00", "delay"), event("09:30:00", "cancelled")),
        """\
        status  cancelled after 30m00s

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:00.000     +0 ms     0 ms  | delayed
        09:30:00.000   +30m00s   30m00s  | cancelled before it was due
        """,
    ),
    "due, and read by a stream": (
        story(
            PUBLISHED,
            event("11:00:00", "fired", to=COPY),
            event("11:00:01", "consume", group="audit", member="a", attempt=1, **COPY),
            event("11:00:02", "committed", group="audit", member="a", attempt=1, **COPY),
            in_log=False,
        ),
        """\
        status  completed in 2h00m, and the log does not have it any more

        2030-01-01, UTC
        09:00:00.000                     | published
        11:00:00.000    +2h00m    2h00m  | became visible as orders/0/99
        11:00:01.000   +1.00 s    2h00m  | delivered to a of group audit, attempt 1
        11:00:02.000   +1.00 s    2h00m  | committed by a of group audit
        """,
    ),
    "too old for its group": (
        story(
            PUBLISHED,
            event("09:00:09", "expired", group="billing", reason="its time to live was over"),
            status="error",
            groups=[group("expired", reason="its time to live was over")],
        ),
        """\
        status  expired after 9.00 s

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:09.000   +9.00 s   9.00 s  | expired for group billing: its time to live was over

        now     billing  expired: its time to live was over
        """,
    ),
    "removed by retention before its retry": (
        story(PUBLISHED, event("09:00:09", "lost", **BILLING), status="error"),
        """\
        status  lost after 9.00 s

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:09.000   +9.00 s   9.00 s  | lost for group billing: the log does not have it any more
        """,
    ),
    "set back, skipped and deleted": (
        story(
            PUBLISHED,
            event("09:00:01", "reset", **BILLING, reason="the group's offsets were reset"),
            event("09:00:02", "skipped", **BILLING, reason="the group's offsets were reset"),
            event("09:00:03", "cut", group="mail", reason="a crash took it from the end of the log"),
            event("09:00:04", "deleted"),
            status="error",
        ),
        """\
        status  deleted after 4.00 s

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:01.000   +1.00 s   1.00 s  | to be delivered again to group billing: the group's offsets were reset
        09:00:02.000   +1.00 s   2.00 s  | skipped by group billing: the group's offsets were reset
        09:00:03.000   +1.00 s   3.00 s  | lost for group mail: a crash took it from the end of the log
        09:00:04.000   +1.00 s   4.00 s  | deleted with its topic
        """,
    ),
    "a dead letter that is given up": (
        story(
            PUBLISHED,
            event("09:00:01", "nack", **BILLING, reason="no"),
            event("09:00:01", "discarded", **BILLING, reason="no"),
            status="error",
        ),
        """\
        status  given up after 1.00 s

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:01.000   +1.00 s   1.00 s  | nacked by worker-1 of group billing: no
        09:00:01.000     +0 ms   1.00 s  | given up by group billing: no
        """,
    ),
    "without events": (
        story(
            event("09:00:00", "publish", source="log"),
            status="pending",
            groups=[
                group("retry", reason="no", until=f"{DAY}09:05:00Z"),
                group("moving", "mail", reason="never"),
            ],
        ),
        """\
        status  pending: to be redelivered to group billing

        2030-01-01, UTC
        09:00:00.000                     | published (the log says so; no event is kept)

        now     billing  to be redelivered from 09:05:00 on: no
                mail     on its way to the dead letters: never
        """,
    ),
    "of nobody": (
        story(PUBLISHED, status="pending"),
        """\
        status  pending: no group is done with it

        2030-01-01, UTC
        09:00:00.000                     | published
        """,
    ),
    "from a newer broker": (
        story(PUBLISHED, event("09:00:01", "teleported\x1b[2J", **BILLING, to=COPY, reason="why\nnot"), status="odd\a"),
        r"""        status  odd\x07

        2030-01-01, UTC
        09:00:00.000                     | published
        09:00:01.000   +1.00 s   1.00 s  | teleported\x1b[2J by worker-1 of group billing to orders/0/99: why\nnot
        """,
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_drawn_a_line_for_each_event(name: str) -> None:
    told, text = STORIES[name]
    assert body(told) == textwrap.dedent(text)


def test_the_heading_says_which_message_it_is() -> None:
    told = story(PUBLISHED, key="c-17")
    assert plain_text(story_lines(told, PIPE)).splitlines()[:2] == ["message orders/0/17  key c-17", f"trace   {TRACE}"]


@pytest.mark.parametrize(
    ("key", "shown"),
    [(None, ""), ("", "  key ''"), ("a\x1b[31mb\u202e", r"  key a\x1b[31mb\u202e"), ("k" * 50, f"  key {'k' * 37}...")],
)
def test_a_key_is_shown_whatever_it_is(key: str | None, shown: str) -> None:
    assert plain_text(story_lines(story(PUBLISHED, key=key), PIPE)).splitlines()[0] == f"message orders/0/17{shown}"


def test_nothing_that_others_wrote_draws_on_the_screen() -> None:
    evil = "\x1b]0;x\x07\r\n\u2028"
    told = story(
        PUBLISHED,
        event("09:00:01", "nack", group=evil, member=evil, attempt=1, reason=evil),
        key=evil,
        status="pending",
        groups=[group("in flight", evil, member=evil, reason=evil)],
    )
    assert all(line.isprintable() for line in plain_text(story_lines(told, PIPE)).split("\n"))
    assert all(line.isprintable() for line in plain_text(stories_table([told], PIPE, 0)).split("\n"))


def test_other_messages_of_the_trace_are_named() -> None:
    others = [{"topic": "orders", "partition": 1, "offset": number} for number in range(5)]
    elsewhere = event("09:00:01", "publish", topic="orders", partition=1, offset=0)
    lines = plain_text(story_lines(story(PUBLISHED, elsewhere, also=others), PIPE)).splitlines()
    assert lines[2] == "also    orders/1/0, orders/1/1, orders/1/2 and 2 more"
    assert lines[-1].endswith("| published (orders/1/0)")


def test_times_are_local_and_a_new_day_is_told() -> None:
    marquesas = OutputFormat(Times(timezone(timedelta(hours=-9, minutes=-30))))
    told = story(PUBLISHED, event("09:29:59.9995", "ack", group="g"), event("09:30:00", "ack", group="h"))
    assert plain_text(story_lines(told, marquesas)).splitlines()[4:] == [
        "2029-12-31, UTC-09:30",
        "23:30:00.000                     | published",
        "23:59:59.999   +30m00s   30m00s  | acked by group g",
        "2030-01-01",
        "00:00:00.000   +0.5 ms   30m00s  | acked by group h",
    ]


@pytest.mark.parametrize("width", [40, 80, 100, 132])
def test_in_a_terminal_every_line_fits_and_nothing_is_lost(width: int) -> None:
    reason = "the bank answered: 「残高不足」 " + "x" * 150 + " and that was that"
    told = story(
        PUBLISHED,
        event("09:00:01", "nack", **BILLING, reason=reason),
        event("09:00:02", "dlq", **BILLING, reason=reason, to=LETTER),
        status="error",
        groups=[group("dead-lettered", reason=reason)],
    )
    lines = plain_text(story_lines(told, OutputFormat(Times(UTC), width, is_ascii=False))).splitlines()
    room = max(width, 35 + 20) if width < 80 else width
    assert [line for line in lines if cell_len(line) > room] == []
    drawn_text = "".join("".join(lines).split()).replace("│", "")
    wanted = "".join(reason.split())
    assert drawn_text.count(wanted) == 3


def test_a_terminal_has_a_rail_that_stays_open_while_there_is_more_to_come() -> None:
    paper = OutputFormat(Times(UTC), 60, is_ascii=False)
    done = story(PUBLISHED, DELIVERED, event("09:00:01", "ack", **BILLING))
    assert plain_text(story_lines(done, paper)).splitlines()[4:] == [
        "2030-01-01, UTC",
        "09:00:00.000                     ┌ published",
        "09:00:00.250   +250 ms   250 ms  ├ delivered to worker-1 of",
        "                                 │   group billing, attempt",
        "                                 │   1, until 09:00:30",
        "09:00:01.000   +750 ms   1.00 s  └ acked by worker-1 of",
        "                                     group billing",
    ]
    waiting = story(PUBLISHED, DELIVERED, status="pending")
    assert "└" not in plain_text(story_lines(waiting, paper))


def test_the_page_about_traces_shows_what_a_terminal_shows() -> None:
    reason = "no such customer, and the order has no address either"
    first, second = BILLING | {"member": "desk-1"}, BILLING | {"member": "desk-2", "attempt": 2}
    told = story(
        PUBLISHED,
        event("09:00:00.007", "consume", **first, until="09:00:30.007"),
        event("09:00:30.009", "expired", **first, reason="its visibility timed out"),
        event("09:00:30.0102", "redelivered", **second, until="09:01:00.0102"),
        event("09:00:30.42", "reject", **second, reason=reason),
        event("09:00:30.431", "dlq", **second, reason=reason, to=LETTER),
        status="error",
        key="c-17",
        groups=[group("waiting", "audit"), group("dead-lettered", reason=reason)],
    )
    page = (Path(__file__).parents[4] / "docs" / "traces.md").read_text()
    assert f"```text\n{plain_text(story_lines(told, OutputFormat(Times(UTC), 100, is_ascii=False)))}\n```\n" in page


def test_many_are_a_table_with_the_time_of_the_last_event() -> None:
    told = [
        story(PUBLISHED, DELIVERED, status="pending", key="c-17"),
        story(PUBLISHED, event("09:00:01.5", "ack", **BILLING), key="a-key-of-many-letters", offset=123456),
    ]
    today = parse_instant_ns(f"{DAY}23:00:00Z")
    assert plain_text(stories_table(told, PIPE, today)).splitlines() == [
        "time          message          key               status     duration  last event",
        "09:00:00.250  orders/0/17      c-17              pending    250 ms    delivered to worker-1 of group billing, "
        "attempt 1, until 09:00:30",
        "09:00:01.500  orders/0/123456  a-key-of-many...  completed  1.50 s    acked by worker-1 of group billing",
    ]
    narrow = plain_text(
        stories_table(told, OutputFormat(Times(UTC), 100, is_ascii=False), today + 86_400 * NANOS_PER_SECOND)
    ).splitlines()
    assert narrow[1].startswith("2030-01-01 09:00  orders/0/17 ")
    assert narrow[1].endswith(" delivered to worker-1 of …")
    assert max(map(cell_len, narrow)) <= 100


@pytest.mark.parametrize(
    ("span_ns", "text"),
    [
        (0, "0 ms"),
        (1, "0.0 ms"),
        (149_000, "0.1 ms"),
        (9_949_999, "9.9 ms"),
        (9_950_000, "10 ms"),
        (999_499_999, "999 ms"),
        (999_500_000, "1.00 s"),
        (9_994_000_000, "9.99 s"),
        (9_995_000_000, "10.0 s"),
        (59_949_000_000, "59.9 s"),
        (59_950_000_000, "1m00s"),
        (3_599_000_000_000, "59m59s"),
        (3_599_600_000_000, "1h00m"),
        (86_399_000_000_000, "23h59m"),
        (30 * 3_600 * NANOS_PER_SECOND, "1d06h"),
        (-7_000_000, "-7.0 ms"),
    ],
)
def test_a_duration_has_about_three_digits(span_ns: int, text: str) -> None:
    assert duration(span_ns) == text


@pytest.mark.parametrize(
    ("status", "states", "settled"),
    [
        ("pending", [], False),
        ("completed", ["settled"], True),
        ("error", ["dead-lettered", "expired"], True),
        ("error", ["dead-lettered", "waiting"], False),
    ],
)
def test_a_message_is_settled_when_every_group_is_done(status: str, states: list[str], settled: bool) -> None:
    told = story(PUBLISHED, status=status, groups=[group(state, f"g{n}") for n, state in enumerate(states)])
    assert is_settled(told) is settled


@pytest.mark.parametrize("answer", [None, [], {}, {"traces": [{}], "complete": True}, {"traces": 3, "complete": True}])
def test_an_answer_of_something_else_is_refused(answer: Any) -> None:
    with pytest.raises(NoBroker, match="not one of a broker"):
        parse_page(answer)


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(NoBroker, match="is not an instant"):
        story({"timestamp": "soon", "event_type": "publish", "attributes": {}})
