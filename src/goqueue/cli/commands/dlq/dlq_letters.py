"""Lists and redrives dead letters page by page, and looks up single ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from goqueue.cli.terminal import progress
from goqueue.cli.terminal.output import JsonList
from goqueue.model.errors import NotFound, TopicNotFound
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

_PAGE = 1_000
DRY_RUN_PAGE = 10_000


class NoSuchLetter(NotFound):
    """There is no dead letter at that position."""

    remedy = "'goqueue dlq list TOPIC' shows where they lie."


class Page(NamedTuple):
    """Some of a topic's dead letters. ``is_more`` on the last page: the limit left some out."""

    dlq_topic: str | None
    letters: list[dict[str, Any]]
    is_more: bool


@dataclass(slots=True)
class RedriveCounts:
    """Counts of what a redrive did, or would do."""

    matched: int = 0
    redriven: int = 0
    already: int = 0
    unreachable: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)

    def add(self, report: dict[str, Any]) -> None:
        self.matched += report["matched"]
        self.redriven += report["redriven"]
        self.already += report["already"]
        self.unreachable += report["unreachable"]
        for topic, count in report["by_topic"].items():
            self.by_topic[topic] = self.by_topic.get(topic, 0) + count


def fetch_letter(broker: BrokerHttp, topic: str, partition: int, offset: int) -> tuple[str, dict[str, Any]]:
    """The dead-letter topic, and the dead letter at this position."""
    parameters: dict[str, str | int] = {"from_partition": partition, "from_offset": offset, "limit": 1}
    answer = send_if_any(broker, "GET", topic, "dead-letters", parameters) or {"dlq_topic": "", "messages": []}
    for letter in answer["messages"]:
        if (letter["partition"], letter["offset"]) == (partition, offset):
            return answer["dlq_topic"], letter
    raise NoSuchLetter(f"there is no dead letter of {escape(topic)} at partition {partition}, offset {offset}")


def check_exist(broker: BrokerHttp, topic: str, positions: list[dict[str, int]]) -> bool:
    """Raise for the first that does not exist, before anything is redriven. False if it was stopped."""
    counts = RedriveCounts()
    body: dict[str, object] = {"messages": positions, "dry_run": True}
    if not redrive_all(broker, topic, body, DRY_RUN_PAGE, counts, what="looking for them"):
        return False
    if counts.matched + counts.already + counts.unreachable < len(positions):
        for each in positions:
            fetch_letter(broker, topic, each["partition"], each["offset"])
    return True


def print_pages_json(found: Iterator[Page]) -> None:
    """Print pages as they come. After an error the document is still completed."""
    document = JsonList("messages")
    is_more = True
    try:
        for page in found:
            if not document.is_begun:
                document.begin({"dlq_topic": page.dlq_topic})
            document.add(page.letters)
            is_more = page.is_more
    finally:
        if document.is_begun:
            document.end({"more": is_more})


def fetch_pages(broker: BrokerHttp, topic: str, wanted: dict[str, str], limit: int) -> Iterator[Page]:
    """Matching dead letters; the last page says whether there are more. A topic without a dead-letter topic has
    none."""
    start: dict[str, int] = {}
    while True:
        # One more than wanted, to know whether there are more.
        parameters: dict[str, str | int] = {**wanted, **start, "limit": min(limit + 1, _PAGE)}
        answer = send_if_any(broker, "GET", topic, "dead-letters", parameters)
        if answer is None:
            yield Page(None, [], False)
            return
        letters, following = answer["messages"], answer.get("next")
        is_more = len(letters) > limit
        yield Page(answer["dlq_topic"], letters[:limit], is_more or following is not None)
        if is_more or following is None:
            return
        limit -= len(letters)
        start = {"from_partition": following["partition"], "from_offset": following["offset"]}


def redrive_all(
    broker: BrokerHttp,
    topic: str,
    body: dict[str, object],
    at_once: int,
    counts: RedriveCounts,
    *,
    what: str,
    total: int | None = None,
) -> bool:
    """Redrive everything that matches, and add it up in ``counts``. False if it was stopped between two pages."""
    start: dict[str, int] = {}
    with progress.stoppable() as stop, progress.progress_bar(what, total, "dead letters") as bar:
        while not stop.is_set():
            request = {**body, **start, "limit": at_once}
            report = send_if_any(broker, "POST", topic, "redrive", body=request)
            if report is None:
                return True
            counts.add(report)
            bar.advance(report["matched"])
            if not report["more"]:
                return True
            start = {"from_partition": report["next"]["partition"], "from_offset": report["next"]["offset"]}
    return False


def send_if_any(
    broker: BrokerHttp,
    method: str,
    topic: str,
    last: str,
    parameters: Mapping[str, str | int] | None = None,
    body: Mapping[str, object] | None = None,
) -> Any:
    """Call the broker. ``None`` for a topic without a dead-letter topic, which is created with its first dead
    letter."""
    try:
        return broker.send(method, ["topics", topic, last], parameters, body)
    except TopicNotFound:
        # Raises if the topic itself does not exist.
        broker.send("GET", ["topics", topic])
        return None
