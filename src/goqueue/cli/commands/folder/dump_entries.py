"""Decodes files of a data folder into entries of plain values."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from struct import Struct
from typing import Any

import msgspec

from goqueue.delivery.delay_index import PendingDelays
from goqueue.model.errors import CorruptData, InvalidFrame, InvalidRequest
from goqueue.model.message import HIDDEN, Priority
from goqueue.storage.files.checkpoint import RecoveryPoint
from goqueue.storage.files.files import OsFile
from goqueue.storage.log.index_file import (
    GAPS_MAGIC,
    INDEX_MAGIC,
    LANE_ENTRY,
    LANE_MAGIC,
    OFFSET,
    POSITION,
    TIME_ENTRY,
    TIME_MAGIC,
    read_entries,
    read_offsets,
    read_positions,
    verified_count,
)
from goqueue.storage.log.lane_index import NO_LANE
from goqueue.storage.reader.frame_walk import NoFrames, WalkedFrame, walk
from goqueue.storage.reader.reader_files import DISK, read_whole
from goqueue.wire.frame import Flag, decode_headers
from goqueue.wire.internal_headers import DUE_AT, PRODUCER, producer_stamp

_SHORT = 120
_JOURNAL = "__"
_REPLACED_WHOLE = {"FORMAT", "checkpoint", "delays", "producers"}
_SNAPSHOTS = "snapshots"
_HIDDEN = "(hidden; --full shows it)"
_MAKE_KEYS = {"receipt_key_made", "id_key_made"}
_CONVERTED_IDS = "ids_converted"
_IDS, _PART = "ids", 3
"""A part of a snapshot, by its name, and how much is said of a part."""
_WITH_HELD = b"GQD2"
_DURABLE = Struct(">Q")
_WORDS = {
    Flag.COMPRESSED: "compressed",
    Flag.TOMBSTONE: "tombstone",
    Flag.DELAYED: "delayed",
    Flag.TRANSACTIONAL: "transactional",
    Flag.FIRED: "was delayed",
}
Entry = dict[str, Any]


class UnknownFile(InvalidRequest):
    """The file is none whose contents can be shown."""

    remedy = (
        "Give a partition's folder, a segment (.log), one of its index files, checkpoint, delays, producers, a "
        "snapshot, or a trace file (.jsonl)."
    )


def file_entries(path: Path, first: int, *, full: bool) -> Iterator[Entry]:
    """The entries of a file, decoded according to its name."""
    if not path.is_file():
        raise UnknownFile(f"{path} is not a file that dump knows")
    readers: dict[str, Callable[[Path], Iterator[Entry]]] = {
        ".index": _positions,
        ".timeindex": _times,
        ".lanes": _lanes,
    }
    if path.suffix in readers:
        return readers[path.suffix](path)
    if ".log" in path.suffixes or path.suffix.startswith(".damaged-"):
        return frame_entries(path, first, full=full)
    if path.suffix == ".jsonl":
        return _events(path)
    return _whole_file_entries(path, full=full)


def frame_entries(path: Path, first: int, *, full: bool) -> Iterator[Entry]:
    is_journal = path.absolute().parent.parent.name.startswith(_JOURNAL)
    for each in walk(path, first):
        if isinstance(each, NoFrames):
            what = "no whole message: a write that was interrupted or is going on" if each.is_end else "no messages"
            yield {"kind": "torn" if each.is_end else "damaged", **_location(path, each), "what": what}
        else:
            yield _journal_entry(path, each, full=full) if is_journal else _message_entry(path, each, full=full)


def _location(path: Path, each: WalkedFrame | NoFrames) -> Entry:
    return {"segment": path.name, "position": each.position, "size": each.size}


def _message_entry(path: Path, frame: WalkedFrame, *, full: bool) -> Entry:
    entry: Entry = {
        "kind": "message",
        "offset": frame.offset,
        **_location(path, frame),
        "time": format_time(frame.timestamp_ns),
    }
    entry["key"] = _display_text(frame.key, full=full) if frame.key else None
    entry["lane"] = _lane(frame.priority)
    entry["flags"] = _flags(frame.flags)
    entry["headers"] = _headers(frame.headers, full=full)
    entry["value"] = None if frame.flags & Flag.TOMBSTONE else _display_text(frame.value, full=full)
    return entry


def _journal_entry(path: Path, frame: WalkedFrame, *, full: bool) -> Entry:
    """A record of a broker's journal: events that were decided together."""
    entry: Entry = {
        "kind": "events",
        "offset": frame.offset,
        **_location(path, frame),
        "time": format_time(frame.timestamp_ns),
    }
    if len(frame.key) == _DURABLE.size:
        entry["durable_below"] = _DURABLE.unpack(frame.key)[0]
    try:
        entry["events"] = _without_secrets(msgspec.json.decode(frame.value), full=full)
    except msgspec.MsgspecError:
        entry["value"] = _display_text(frame.value, full=True)
    return entry


def _without_secrets(content: Any, *, full: bool) -> Any:
    """The same without keys: who has that of receipts can settle any message, who has that of producer ids can take any
    producer's place."""
    if full:
        return content
    if isinstance(content, list):
        if len(content) == _PART and content[0] == _IDS and isinstance(content[-1], list):
            return [*content[:-1], _without_texts(content[-1])]
        return [_without_secrets(each, full=full) for each in content]
    if not isinstance(content, dict):
        return content
    if content.get("type") == _CONVERTED_IDS:
        return {**content, _IDS: _without_texts(content[_IDS])}
    secret = "key" if content.get("type") in _MAKE_KEYS else "receipt_key"
    return {name: _HIDDEN if name == secret else _without_secrets(each, full=full) for name, each in content.items()}


def _without_texts(ids: list[Any]) -> list[Any]:
    """What is known of ids has no names: any text is a key."""
    return [_HIDDEN if each and isinstance(each, str) else each for each in ids]


def _flags(flags: int) -> list[str]:
    if flags & Flag.CONTROL:
        if flags & Flag.TRANSACTIONAL:
            return ["control: commit" if flags & Flag.COMMIT else "control: abort"]
        return ["control"]
    return [word for flag, word in _WORDS.items() if flags & flag]


def _lane(priority: int) -> str:
    return Priority(priority).name.lower() if priority < HIDDEN else f"unknown ({priority})"


def _headers(packed: bytes, *, full: bool) -> Entry:
    try:
        headers = decode_headers(packed)
    except InvalidFrame as error:
        return {"damaged": str(error)}
    entry: Entry = {}
    for name, value in headers:
        if name == PRODUCER and (stamp := producer_stamp(packed)) is not None:
            entry[name] = stamp._asdict()
        elif name == DUE_AT and len(value) == _DURABLE.size:
            entry[name] = format_time(_DURABLE.unpack(value)[0])
        else:
            entry[name] = _display_text(value, full=full)
    return entry


def _display_text(data: bytes, *, full: bool) -> str:
    """Text as it is, other bytes in base64; shortened unless ``full``."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "base64:" + base64.b64encode(data).decode()
    if full or len(text) <= _SHORT:
        return text
    return f"{text[:_SHORT]}… ({len(data)} bytes)"


def format_time(time_ns: int) -> str:
    try:
        return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"


def _open_index(path: Path, magic: bytes, entry_size: int) -> tuple[OsFile, int, Entry]:
    """The file, its number of entries, and an end entry that says whether the file is closed."""
    file = DISK.open(path)
    log = path.with_suffix(".log")
    count = verified_count(file, magic, entry_size, log.stat().st_size) if log.exists() else None
    end: Entry = {"kind": "end", "closed": count is not None, "bytes": file.size()}
    return file, file.size() // entry_size if count is None else count, end


def _positions(path: Path) -> Iterator[Entry]:
    file, count, end = _open_index(path, GAPS_MAGIC, POSITION.itemsize + OFFSET.itemsize)
    offsets = read_offsets(file, count, 0, count).tolist() if end["closed"] else None
    if offsets is None:
        file, count, end = _open_index(path, INDEX_MAGIC, POSITION.itemsize)
    for index, position in enumerate(read_positions(file, 0, count).tolist()):
        extra = {} if offsets is None else {"offset": offsets[index]}
        yield {"kind": "position", "place": index, "position": position, **extra}
    yield {**end, "entries": count}


def _times(path: Path) -> Iterator[Entry]:
    file, count, end = _open_index(path, TIME_MAGIC, TIME_ENTRY.itemsize)
    for latest, appended, last_offset in read_entries(file, TIME_ENTRY, count).tolist():
        yield {
            "kind": "time",
            "last_offset": last_offset,
            "latest": format_time(latest),
            "appended": format_time(appended),
        }
    yield {**end, "entries": count}


def _lanes(path: Path) -> Iterator[Entry]:
    file, count, end = _open_index(path, LANE_MAGIC, LANE_ENTRY.itemsize)
    for index, lane in read_entries(file, LANE_ENTRY, count).tolist():
        label = "end" if lane == NO_LANE else "hidden" if lane == HIDDEN else _lane(lane)
        yield {"kind": "lane", "from_place": index, "lane": label}
    yield {**end, "entries": count}


def _whole_file_entries(path: Path, *, full: bool) -> Iterator[Entry]:
    """The content of a file that is always replaced as a whole, with its checksum verified."""
    try:
        payload = read_whole(path)
    except CorruptData:
        if path.name.partition(".")[0] in _REPLACED_WHOLE or path.absolute().parent.name == _SNAPSHOTS:
            raise
        raise UnknownFile(f"{path} is not a file that dump knows") from None
    if payload is None:
        raise InvalidRequest(f"{path} is not there any more")
    if path.name == "delays":
        yield from _delays(payload)
        return
    if path.name == "checkpoint":
        for log, point in msgspec.json.decode(payload, type=dict[str, RecoveryPoint]).items():
            yield {"kind": "recovery point", "log": log, **msgspec.structs.asdict(point)}
        return
    decoders: list[Callable[[bytes], Any]] = [msgspec.json.decode, msgspec.msgpack.decode]
    for decode in decoders:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            yield {"kind": path.name, "content": _without_secrets(decode(payload), full=full)}
            return
    yield {"kind": path.name, "content": _display_text(payload, full=True)}


def _delays(payload: bytes) -> Iterator[Entry]:
    """Pending delays, and those held until the transaction of a producer commits."""
    waiting: dict[int | None, bytes] = {None: payload}
    if payload.startswith(_WITH_HELD):
        both = msgspec.msgpack.decode(payload[len(_WITH_HELD) :])
        waiting = {None: both["pending"], **both["held"]}
    for producer_id, packed in waiting.items():
        _, pending = PendingDelays.load(packed)
        for due_ns, offset in pending.earliest(len(pending)):
            owner = {} if producer_id is None else {"held_by_producer": producer_id}
            yield {"kind": "delay", "offset": offset, "due": format_time(due_ns), **owner}


def _events(path: Path) -> Iterator[Entry]:
    """The events of a trace file."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield {"kind": "trace", **msgspec.json.decode(line, type=dict[str, Any])}
            except msgspec.MsgspecError:
                yield {"kind": "torn", "what": "no whole event", "size": len(line)}
