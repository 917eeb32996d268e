"""``goqueue txn``: lists, shows and aborts transactions."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.connection.target import BrokerOptions, on_broker
from goqueue.cli.terminal import tables
from goqueue.cli.terminal.output import print_json, print_lines
from goqueue.cli.terminal.plain_help import command_group
from goqueue.cli.terminal.tables import shortened
from goqueue.cli.terminal.times import Times, duration
from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.model.units import parse_instant_ns
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from goqueue.cli.terminal.output import Line

_EXAMPLES = """\b
Examples:
  goqueue txn list              see what has not ended, the oldest first
  goqueue txn list --topic T    see only those that have written to a topic
  goqueue txn show ID           see where it has written and what it acks, or how it ended
  goqueue txn abort ID          end it; nothing of it is ever seen
  goqueue txn stats             see how many there are and were
"""

_ID = re.compile(r"[0-9]+-[0-9]+-[0-9a-f]{16}")
_MOST = 10_000
_WIDTH = 100
_NARROWEST = 8
COUNT_LABELS = {
    "active_transactions": "open",
    "prepared_transactions": "of these prepared",
    "begun_total": "begun",
    "committed_total": "committed",
    "aborted_total": "aborted",
    "timed_out_total": "of these timed out",
    "fenced_total": "fenced",
    "avg_duration": "took on average until committed",
}

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="As 'list' shows it.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=_MOST, metavar="N", help="How many at the most.")]
TopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="Only those that have written to this topic.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="The reason reported to its producer.")
]

app = command_group("See the transactions that are open, and abort those that hang.", _EXAMPLES)


class NoTransactionId(InvalidRequest):
    """The text cannot be a transaction id."""

    remedy = "Ids look like 4514783002117349-0-f40b0548fafd4da8; 'goqueue txn list' shows those that are open."


@app.command("list")
@on_broker
def list_transactions(options: BrokerOptions, topic: TopicOption = None, limit: LimitOption = 100) -> int:
    """List open transactions, the oldest first.

    Read-committed readers stop before the first message of an open transaction, so the oldest is the one to look at.
    """

    answer = options.broker().get("/transactions", {"limit": limit if topic is None else _MOST})
    if topic is not None:
        fitting = [each for each in answer["transactions"] if topic in each["topics"]]
        answer = {"transactions": fitting[:limit], "total": len(fitting)}
    if options.as_json:
        print_json(answer)
        return 0
    found = answer["transactions"]
    if not found:
        of_topic = "" if topic is None else f" that has written to {shown(topic)}"
        typer.echo(f"no transaction is open{of_topic}", err=True)
        return 0
    print_lines(_transactions_table(found, time.time_ns()))
    if answer["total"] > len(found):
        typer.echo(f"{answer['total'] - len(found)} more; --limit shows more of them", err=True)
    return 0


@app.command(short_help="Show what a transaction has written and acks, or how it ended.")
@on_broker
def show(options: BrokerOptions, transaction_id: IdArgument) -> int:
    """Show where a transaction has written and what it acks so far, or how it ended."""

    _check_id(transaction_id)
    answer = options.broker().send("GET", ["transactions", transaction_id])
    return options.show(answer, _detail_lines(answer, time.time_ns()))


@app.command(short_help="Abort any producer's transaction and discard what it wrote.")
@on_broker
def abort(options: BrokerOptions, transaction_id: IdArgument, reason: ReasonOption = None) -> int:
    """Abort any producer's transaction: nothing it wrote is ever visible, and readers held back by it go on."""
    _check_id(transaction_id)
    body = {} if reason is None else {"reason": reason}
    answer = options.broker().send("POST", ["transactions", transaction_id, "abort"], body=body)
    return options.show(answer, f"{transaction_id} is aborted")


@app.command(short_help="Show counts of transactions, open and ended.")
@on_broker
def stats(options: BrokerOptions) -> int:
    """Show how many transactions are open, and how many ended since the broker started."""
    answer = options.broker().get("/transactions/stats")
    rows = [[COUNT_LABELS.get(name, name.replace("_", " ")), str(value)] for name, value in answer.items()]
    return options.show(answer, tables.table(["transactions", ""], rows))


def _check_id(transaction_id: str) -> None:
    """Refuse a malformed id before calling the broker: it could form another path."""
    if not _ID.fullmatch(transaction_id):
        raise NoTransactionId(f"{shown(transaction_id)} is not the id of a transaction")


def _transactions_table(found: Sequence[dict[str, Any]], now_ns: int) -> Iterator[Line]:
    """The table of transactions. Names are cut where a line would be too long; ``--json`` has them in full."""
    from rich.cells import cell_len

    titles = ["id", "name", "state", "age", "ends in", "messages", "topics"]
    rows = [
        [
            each["transaction_id"],
            escape(each.get("transactional_id") or _application_key(each)),
            each["state"].replace("_", " "),
            duration(max(0, now_ns - parse_instant_ns(each["started_at"]))),
            duration(max(0, parse_instant_ns(each["deadline"]) - now_ns)),
            str(each["messages"]),
            escape(", ".join(each["topics"])),
        ]
        for each in found
    ]
    widths = [max(cell_len(row[column]) for row in [titles, *rows]) for column in range(len(titles))]
    names, topics = 1, len(titles) - 1
    room = _WIDTH - len(tables.GAP) * topics - sum(widths) + widths[names] + widths[topics]
    # Half of the room for each, and what one does not need for the other.
    for_names = max(min(widths[names], max(room // 2, room - widths[topics])), len(titles[names]))
    for row in rows:
        row[names] = shortened(row[names], for_names, "...")
        row[topics] = shortened(row[topics], max(room - for_names, _NARROWEST), "...")
    yield from tables.table(titles, rows)


def _application_key(each: dict[str, Any]) -> str:
    """The application key of a transaction without a name; it shows which job holds up readers."""
    return f"for {each['for_key']}" if "for_key" in each else ""


def _detail_lines(answer: dict[str, Any], now_ns: int) -> Iterator[Line]:
    def moment(instant: str) -> str:
        at_ns = parse_instant_ns(instant)
        span = duration(abs(at_ns - now_ns))
        return f"{Times().later(instant, now_ns)} ({f'{span} ago' if at_ns <= now_ns else f'in {span}'})"

    named = {
        "transactional_id": "transactional id",
        "for_key": "to be committed under",
        "started_at": "began",
        "deadline": "aborted at the latest",
    }
    yield [(escape(answer["transaction_id"]), "bold")]
    for name, value in answer.items():
        if name not in ("transaction_id", "partitions", "groups"):
            text = value.replace("_", " ") if name == "state" else str(value)
            if name in ("started_at", "deadline"):
                text = moment(value)
            yield [(f"{tables.GAP}{named.get(name, name.replace('_', ' '))}: ", "dim"), (escape(text), "")]
    if answer.get("groups"):
        yield [(f"{tables.GAP}groups: ", "dim"), (escape(", ".join(answer["groups"])), "")]
    if answer.get("partitions"):
        rows = [
            [each["topic"], str(each["partition"]), str(each["first_offset"]), str(each["end_offset"])]
            for each in answer["partitions"]
        ]
        yield from tables.table(["topic", "partition", "from offset", "to before"], rows)
