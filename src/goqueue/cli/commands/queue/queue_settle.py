"""Settles messages by their receipts, in batches."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from goqueue.cli.commands.queue.queue_view import failures_table
from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_FAILED, EXIT_INTERRUPTED
from goqueue.cli.terminal.output import print_json, print_lines
from goqueue.model.errors import GoQueueError
from goqueue.model.fields import shown

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

MOST_RECEIPTS = 100_000
_AT_ONCE = 1_000
_RECEIPT = re.compile(r"\S{1,1000}")
_LONGEST_LINE = 128 << 20
"""In bytes. A line of ``poll --json`` holds the whole value, of up to 64 MiB."""


class _PolledLine(msgspec.Struct):
    """The receipt in a line printed by ``poll --json``."""

    receipt_handle: str


def read_receipts(given: Sequence[str]) -> list[str]:
    """The receipts given, or for ``-`` those on standard input, one a line; each once, in order."""
    if "-" in given and len(given) > 1:
        raise typer.BadParameter("write receipts, or - for those on standard input; not both", param_hint="RECEIPT")
    texts = _read_lines() if list(given) == ["-"] else (text.encode(errors="surrogateescape") for text in given)
    receipts: dict[str, None] = {}
    for count, text in enumerate(texts):
        # Nothing is settled yet, and the rest is not read.
        if count == MOST_RECEIPTS:
            raise typer.BadParameter(f"at most {MOST_RECEIPTS:,} receipts at a time", param_hint="RECEIPT")
        receipts[_parse_receipt(text)] = None
    if not receipts:
        raise typer.BadParameter("there is no receipt on standard input", param_hint="RECEIPT")
    return list(receipts)


def _read_lines() -> Iterable[bytes]:
    while line := sys.stdin.buffer.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise typer.BadParameter(
                f"a line on standard input has more than {_LONGEST_LINE >> 20} MiB", param_hint="RECEIPT"
            )
        if text := line.strip():
            yield text


def _parse_receipt(text: bytes) -> str:
    """Parse a receipt, or a line printed by ``goqueue queue poll --json``."""
    try:
        is_json = text.startswith(b"{")
        found = msgspec.json.decode(text, type=_PolledLine).receipt_handle if is_json else text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = ""
    if not _RECEIPT.fullmatch(found) or not found.isprintable():
        beginning = text[:100].decode(errors="backslashreplace")
        raise typer.BadParameter(
            f"{shown(beginning)} is no receipt; 'goqueue queue poll' prints one for each message", param_hint="RECEIPT"
        )
    return found


def settle(broker: BrokerHttp, verb: str, receipts: Sequence[str], more: Mapping[str, object]) -> list[dict[str, Any]]:
    """Settle up to 10,000 receipts. Returns a result for each: ``{"ok": true}`` or an error."""
    answer = broker.send("POST", ["messages", verb], body={"receipt_handles": list(receipts), **more})
    results: list[dict[str, Any]] = answer["results"]
    if "new_deadline" in answer:
        results = [{**each, "until": answer["new_deadline"]} if each.get("ok") else each for each in results]
    return results


def settle_all(
    broker: BrokerHttp,
    verb: str,
    done: str,
    receipts: Sequence[str],
    more: Mapping[str, object],
    *,
    as_json: bool,
    remark: Callable[[Sequence[dict[str, Any]]], str] = lambda _: "",
) -> int:
    """Settle in batches, and report how many succeeded and why the others failed, also before an error is raised."""
    results: list[dict[str, Any]] = []
    failure: GoQueueError | None = None
    with (
        progress.stoppable() as stop,
        progress.progress_bar(verb, len(receipts), "receipts", is_enabled=not as_json) as bar,
    ):
        while len(results) < len(receipts) and not stop.is_set():
            batch = receipts[len(results) : len(results) + _AT_ONCE]
            try:
                results += settle(broker, verb, batch, more)
            except GoQueueError as error:
                if not results:
                    raise
                failure = error
                break
            bar.advance(len(batch))
        was_stopped = len(results) < len(receipts)
    good = sum(1 for each in results if each.get("ok"))
    if as_json:
        results_json = [{"receipt_handle": receipt, **each} for receipt, each in zip(receipts, results, strict=False)]
        print_json({"settled": good, "failed": len(results) - good, "results": results_json})
    else:
        if good < len(results):
            print_lines(failures_table(receipts[: len(results)], results))
        if good:
            typer.echo(f"{good} {done}{remark(results)}")
        if good < len(results):
            typer.echo(f"{len(results) - good} of {len(results)} could not be {done}", err=True)
    if failure is not None:
        left = len(receipts) - len(results)
        typer.echo(f"it broke off; {left} receipts are left, some may have been used: do it again with them", err=True)
        raise failure
    if was_stopped:
        typer.echo(f"stopped; {len(receipts) - len(results)} receipts were not used: do it again with them", err=True)
        return EXIT_INTERRUPTED
    return 0 if good == len(results) else EXIT_FAILED
