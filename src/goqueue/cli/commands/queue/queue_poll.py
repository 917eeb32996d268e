"""``goqueue queue poll``: polls messages, prints them, and acks them or keeps them in flight."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from goqueue.cli.commands.queue.queue_member import MOST_VISIBLE_MS, StayingMember, Target, join, leave
from goqueue.cli.commands.queue.queue_member import poll as poll_once
from goqueue.cli.commands.queue.queue_settle import settle
from goqueue.cli.commands.queue.queue_view import failures_table, message_lines
from goqueue.cli.terminal.failures import EXIT_FAILED
from goqueue.cli.terminal.output import plain_text, print_lines
from goqueue.cli.terminal.times import Times
from goqueue.model.clock import NANOS_PER_MS
from goqueue.model.errors import GoQueueError
from goqueue.model.units import format_duration_ms, format_instant_ns

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

_AT_ONCE = 1_000
_WAIT_AT_ONCE_MS = 20_000
_SESSION_MS = 30_000


@dataclass(frozen=True, slots=True)
class PollOptions:
    """The options of a poll."""

    limit: int
    wait_ms: int
    visibility_ms: int | None
    as_json: bool


def poll_and_ack(broker: BrokerHttp, target: Target, options: PollOptions) -> int:
    """Poll, print and ack. Messages that were not printed are given back by leaving the group."""
    session_ms = max(_SESSION_MS, options.visibility_ms or 0)
    member_id = join(broker, target, session_ms)
    found = failed = 0
    try:
        # Page by page: later messages are not in flight while the first are printed.
        for messages in _poll_pages(
            broker, lambda most, wait: poll_once(broker, target.group, member_id, most, wait), options
        ):
            _extend(broker, messages, options.visibility_ms)
            _print_messages(messages, as_json=options.as_json, with_receipts=False)
            receipts = [each["receipt_handle"] for each in messages]
            results = settle(broker, "ack", receipts, {})
            found += len(messages)
            bad = [each for each in results if not each.get("ok")]
            if bad:
                failed += len(bad)
                typer.echo("these were printed and could not be acked; they come again:", err=True)
                typer.echo(plain_text(failures_table(receipts, results)), err=True)
    except GoQueueError:
        if found:
            typer.echo(f"{found - failed} acked; what was printed behind them may come again", err=True)
        raise
    finally:
        leave(broker, target.group, member_id)
    if not found:
        _print_no_message(options)
    elif not options.as_json:
        typer.echo(f"{found - failed} acked", err=True)
    return EXIT_FAILED if failed else 0


def poll_and_stay(broker: BrokerHttp, target: Target, options: PollOptions) -> int:
    """Poll and print with receipts, which are valid until the time that is printed on standard error."""
    visibility_ms = options.visibility_ms or min(target.own_visibility_ms, MOST_VISIBLE_MS)
    # Extend to the visibility asked for, or down to the longest that the member's session allows.
    extend_ms = visibility_ms if options.visibility_ms or visibility_ms != target.own_visibility_ms else None
    member = StayingMember(broker, target, visibility_ms)
    found, until = 0, ""
    try:
        for messages in _poll_pages(broker, member.poll, options):
            until = _extend(broker, messages, extend_ms) or until
            found += len(messages)
            _print_messages(messages, as_json=options.as_json, with_receipts=True)
    finally:
        if not found:
            member.leave_if_idle()
    if not found:
        _print_no_message(options)
        if member.in_flight and member.in_flight >= target.max_in_flight:
            typer.echo(
                f"{member.in_flight} that were polled from here before are in flight, the most that the group allows "
                "(max_in_flight): settle them, or 'goqueue queue leave' gives them back",
                err=True,
            )
        return 0
    typer.echo(_in_flight_notice(found, visibility_ms, until), err=True)
    return 0


def _in_flight_notice(found: int, visibility_ms: int, until: str) -> str:
    now_ns = time.time_ns()
    # Only the broker knows the exact time; this is slightly before it.
    end = Times().later(until or format_instant_ns(now_ns + visibility_ms * NANOS_PER_MS), now_ns)
    them = "it is" if found == 1 else f"these {found} are"
    return (
        f"{them} in flight for {format_duration_ms(visibility_ms)}, until {end}; "
        "then others get what is not settled: goqueue queue ack RECEIPT"
    )


def _poll_pages(
    broker: BrokerHttp, poll: Callable[[int, int], list[dict[str, Any]]], options: PollOptions
) -> Iterator[list[dict[str, Any]]]:
    """Wait for a first message, then yield what is there, up to the limit."""
    deadline = time.monotonic() + options.wait_ms / 1_000
    # The wait must end before the HTTP timeout.
    longest_ms = min(_WAIT_AT_ONCE_MS, int(broker.timeout_s * 500))
    left = options.limit
    while left:
        wait_ms = 0
        if left == options.limit:
            wait_ms = max(0, min(longest_ms, int((deadline - time.monotonic()) * 1_000)))
        messages = poll(min(left, _AT_ONCE), wait_ms)
        if messages:
            left -= len(messages)
            yield messages
        elif left < options.limit or time.monotonic() >= deadline or not wait_ms:
            return


def _extend(broker: BrokerHttp, messages: Sequence[dict[str, Any]], span_ms: int | None) -> str:
    """Change the messages' visibility timeout, and return the new deadline; empty if the group's own applies."""
    if span_ms is None:
        return ""
    receipts = [each["receipt_handle"] for each in messages]
    results = settle(broker, "visibility", receipts, {"timeout": f"{span_ms}ms"})
    return next((str(each["until"]) for each in results if each.get("ok")), "")


def _print_messages(messages: Sequence[dict[str, Any]], *, as_json: bool, with_receipts: bool) -> None:
    """Print messages, and flush: they may be acked next."""
    for message in messages:
        if as_json:
            typer.echo(msgspec.json.encode(message))
        else:
            print_lines(message_lines(message, with_receipt=with_receipts))
    sys.stdout.flush()


def _print_no_message(options: PollOptions) -> None:
    typer.echo(f"no message came within {format_duration_ms(options.wait_ms)}", err=True)
