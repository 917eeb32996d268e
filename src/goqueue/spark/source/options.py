"""Options of the source and of the sink: parsed and validated before anything is read or written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NoReturn

from goqueue.client.connection.config import DEFAULT_ADDRESS
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.units import parse_duration_ms, parse_instant_ns, parse_size_bytes
from goqueue.spark.source.columns import NAMES
from goqueue.spark.source.kafka_options import equivalent_of

Position = Literal["earliest", "latest"] | int | dict[str, dict[int, int]]
"""Start or end of the log, an instant (Unix nanoseconds), or offsets by topic and partition."""

MAX_OFFSET = (1 << 63) - 1
_MAX_MESSAGES = 1 << 40
_MAX_BYTES = 1 << 50
_MAX_PARTITIONS = 100_000


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Validated options of a read or a stream."""

    brokers: tuple[str, ...] | None
    """``None``: no broker, which needs a ``path``. If neither is given, the client's default address."""
    topics: tuple[str, ...]
    pattern: str | None
    path: Path | None
    starting: Position
    ending: Position
    uncommitted: bool
    max_messages: int | None
    max_bytes: int | None
    min_partitions: int
    columns: tuple[str, ...] | None
    group: str | None
    fail_on_data_loss: bool


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Validated options of a write."""

    brokers: tuple[str, ...]
    topic: str | None
    transaction_timeout_ms: int
    commit_key: str | None
    """The application key under which a batch is committed, so that repeating the write adds nothing."""
    trust_committed: bool
    """Whether to accept the earlier commit under the same key although the number of rows differs now."""


_SOURCE_NAMES = (
    "brokers", "topics", "topicPattern", "path", "startingPosition", "endingPosition", "isolation",
    "maxMessagesPerTrigger", "maxBytesPerTrigger", "minPartitions", "columns", "group", "failOnDataLoss",
)  # fmt: skip
_SINK_NAMES = ("brokers", "topic", "transactionTimeout", "commitKey", "trustCommitted")
_SPARK_OPTIONS = {"checkpointlocation", "queryname", "path"}
"""Options of Spark itself that it also passes to a sink."""


def source_options(given: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    options = _RawOptions(given, _SOURCE_NAMES, "source")
    path = options.get("path", _path)
    topics = options.get("topics", _names) or ()
    pattern = options.get("topicPattern", _pattern)
    if topics and pattern:
        raise InvalidRequest(f"there are the options topics and topicPattern ({pattern[:200]!r}); drop one of them")
    if not topics and not pattern:
        raise InvalidRequest("say what to read: the option topics ('orders,refunds'), or topicPattern ('orders-.*')")
    group = options.get("group", _text)
    if streaming is False:
        for name in ("maxMessagesPerTrigger", "maxBytesPerTrigger", "group"):
            if options.get(name, _text) is not None:
                raise InvalidRequest(f"the option {name} is for streams (readStream); this is a batch (read)")
    if streaming and options.get("endingPosition", _text) is not None:
        raise InvalidRequest(
            "the option endingPosition is for batches (read); a stream ends by its trigger, such as availableNow=True"
        )
    brokers = options.get("brokers", _names)
    if group is not None and path is not None and not brokers:
        raise InvalidRequest(
            f"the option group is {group[:200]!r}, and without the option brokers as well there is no broker that "
            "keeps it"
        )
    return SourceOptions(
        brokers=brokers if brokers or path else (DEFAULT_ADDRESS,),
        topics=topics,
        pattern=pattern,
        path=path,
        starting=options.get("startingPosition", _position, "earliest"),
        ending=options.get("endingPosition", _position, "latest"),
        uncommitted=options.get("isolation", _isolation) or False,
        max_messages=options.get("maxMessagesPerTrigger", _count(1, _MAX_MESSAGES)),
        max_bytes=options.get("maxBytesPerTrigger", _size),
        min_partitions=options.get("minPartitions", _count(1, _MAX_PARTITIONS)) or 0,
        columns=options.get("columns", _columns),
        group=group,
        fail_on_data_loss=options.get("failOnDataLoss", _flag) is not False,
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    if not given:
        # Spark hands over no options for an INSERT INTO a table: the default broker may not be the table's.
        raise InvalidRequest(
            "say where to write to: the option topic, or brokers and a column 'topic'. (INSERT INTO and CREATE TABLE … "
            "AS do not hand the table's options to a Python source; use df.write.format('goqueue').options(…))"
        )
    options = _RawOptions({k: v for k, v in given.items() if k.lower() not in _SPARK_OPTIONS}, _SINK_NAMES, "sink")
    return SinkOptions(
        brokers=options.get("brokers", _names) or (DEFAULT_ADDRESS,),
        topic=options.get("topic", _text),
        transaction_timeout_ms=options.get("transactionTimeout", _duration) or 0,
        commit_key=options.get("commitKey", _text),
        trust_committed=options.get("trustCommitted", _flag) or False,
    )


class _RawOptions:
    """Options as Spark passes them: names in lower case, all values strings."""

    def __init__(self, given: Mapping[str, str], names: Iterable[str], kind: Literal["source", "sink"]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        known = {name.lower(): name for name in names}
        for name in self._given:
            if name not in known:
                _raise_unknown(name, known, kind)
        self._known = known

    def get(self, name: str, parse: Callable[[str], Any], default: Any = None) -> Any:
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except (GoQueueError, ValueError) as error:
            raise InvalidRequest(f"the option {name} is {text[:200]!r}: {error}") from None


def _raise_unknown(name: str, known: Mapping[str, str], kind: Literal["source", "sink"]) -> NoReturn:
    near = get_close_matches(name, known, 1)
    guess = f"did you mean {known[near[0]]!r}?" if near else None
    hint = equivalent_of(name, kind) or guess
    advice = f"; {hint}" if hint else ""
    end = "" if advice.endswith("?") else "."
    raise InvalidRequest(f"the {kind} has no option {name!r}{advice}{end} There are: {', '.join(known.values())}")


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def _path(text: str) -> Path:
    """A folder, also as a ``file:`` URI, which Spark's own sources accept as well."""
    scheme, colon, rest = _text(text).partition(":")
    if not colon or "/" in scheme:
        return Path(_text(text))
    if scheme != "file":
        raise ValueError("it must be a folder that driver and executors can see as such; mount it, or copy it")
    return Path("/" + rest.lstrip("/"))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise ValueError("a name is missing between two commas")
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is not a regular expression ({error})") from None
    return text


def _position(text: str) -> Position:
    text = text.strip()
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if text.startswith("{"):
        return _offsets(text)
    try:
        return parse_instant_ns(text)
    except GoQueueError:
        raise ValueError(
            "use 'earliest', 'latest', an instant with its zone such as '2026-11-15T08:00:00Z', or offsets as JSON: "
            '{"orders": {"0": 12, "1": 7}}'
        ) from None


def _offsets(text: str) -> dict[str, dict[int, int]]:
    shape = 'offsets are JSON such as {"orders": {"0": 12, "1": 7}}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{error}; {shape}") from None
    result: dict[str, dict[int, int]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f"{topic!r} has no partitions; {shape}")
        for number, offset in partitions.items():
            if not number.isdecimal() or type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
                raise ValueError(f"{topic!r} has {number!r}: {offset!r}; {shape}")
            result.setdefault(topic, {})[int(number)] = offset
    return result


def _isolation(text: str) -> bool:
    if text not in ("read_committed", "read_uncommitted"):
        raise ValueError("there are read_committed and read_uncommitted")
    return text == "read_uncommitted"


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _count(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.strip().isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"it must be a whole number from {least} to {most}")
        return int(text)

    return parse


def _size(text: str) -> int:
    size = parse_size_bytes(text)
    if not 1 <= size <= _MAX_BYTES:
        raise ValueError(f"it must be from 1 to {_MAX_BYTES} bytes")
    return size


def _duration(text: str) -> int:
    duration_ms = parse_duration_ms(text)
    if duration_ms < 1:
        raise ValueError("it must be more than nothing")
    return duration_ms


def _columns(text: str) -> tuple[str, ...]:
    names = _names(text)
    for name in names:
        if name not in NAMES:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(NAMES)}")
    return names
