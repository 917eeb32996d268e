"""Dead letters as a broker lists them, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from goqueue.cli.commands.dlq.dlq_redrive import COUNTED_AT_ONCE, Tally, answer_of, redrive_all
from goqueue.model.errors import NotFound
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.connection.broker_http import BrokerHttp

_PAGE = 1_000


class NoSuchLetter(NotFound):
    """There is no dead letter at that place."""

    remedy = "'goqueue dlq list TOPIC' shows where they lie."


class Page(NamedTuple):
    """Some of those that lie in a topic of dead letters; behind the last page there may be more."""

    dlq_topic: str | None
    letters: list[dict[str, Any]]
    is_more: bool


def letter_at(broker: BrokerHttp, topic: str, partition: int, offset: int) -> tuple[str, dict[str, Any]]:
    """The topic that it lies in, and the letter."""
    place: dict[str, str | int] = {"from_partition": partition, "from_offset": offset, "limit": 1}
    answer = answer_of(broker, "GET", topic, "dead-letters", place) or {"dlq_topic": "", "messages": []}
    for letter in answer["messages"]:
        if (letter["partition"], letter["offset"]) == (partition, offset):
            return answer["dlq_topic"], letter
    raise NoSuchLetter(f"there is no dead letter of {escape(topic)} at partition {partition}, offset {offset}")


def check_named(broker: BrokerHttp, topic: str, named: list[dict[str, int]]) -> bool:
    """Raise for the first that is not there: nothing has gone back yet. False if it was stopped."""
    there = Tally()
    asked: dict[str, object] = {"messages": named, "dry_run": True}
    if not redrive_all(broker, topic, asked, COUNTED_AT_ONCE, there, what="looking for them"):
        return False
    if there.matched + there.already + there.unreachable < len(named):
        for each in named:
            letter_at(broker, topic, each["partition"], each["offset"])
    return True


def put_json(found: Iterator[Page]) -> None:
    """As the pages come. Also of those that came before an error a whole document is made."""
    from goqueue.cli.terminal.json_list import JsonList

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


def pages(broker: BrokerHttp, topic: str, wanted: dict[str, str], limit: int) -> Iterator[Page]:
    """Those that fit; the last page tells whether there are more. A topic that never had any has none."""
    place: dict[str, int] = {}
    while True:
        # One more than is wanted: whether there are more cannot be told otherwise.
        asked: dict[str, str | int] = {**wanted, **place, "limit": min(limit + 1, _PAGE)}
        answer = answer_of(broker, "GET", topic, "dead-letters", asked)
        if answer is None:
            yield Page(None, [], False)
            return
        letters, following = answer["messages"], answer.get("next")
        is_more = len(letters) > limit
        yield Page(answer["dlq_topic"], letters[:limit], is_more or following is not None)
        if is_more or following is None:
            return
        limit -= len(letters)
        place = {"from_partition": following["partition"], "from_offset": following["offset"]}
