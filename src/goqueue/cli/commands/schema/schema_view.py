"""Draws schemas: tables, texts, differences and verdicts; in colour for a terminal, plain for a pipe."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from goqueue.cli.commands.schema.schema_calls import Schema, Verdict
from goqueue.cli.terminal.styled_lines import Line
from goqueue.cli.terminal.tables import GAP, table
from goqueue.observe.logs import escape
from goqueue.schemas.base import Incompatibility

_REASON = re.compile(r"(\S+) at (.+?)( \(version \d+\))?: (.+)", re.DOTALL)
_DIFF_STYLES = {"-": "red", "+": "green", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """A subject as it is listed. ``latest`` is its latest version."""

    latest: Schema
    versions: list[int]
    compatibility: str
    deleted: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reading:
    """Whether what was written with one version can be read with another."""

    reader: int
    writer: int
    reasons: list[Incompatibility]

    @property
    def is_possible(self) -> bool:
        return not self.reasons


def subjects(rows: Sequence[SubjectRow], *, deleted: bool) -> Iterator[Line]:
    """A line for each subject."""
    titles = ["subject", "kind", "versions", *(["deleted"] if deleted else []), "latest id", "compatibility"]
    cells = []
    for row in rows:
        gone = [ranges(row.deleted)] if deleted else []
        latest = str(row.latest.schema_id)
        cells.append([row.latest.subject, row.latest.kind, ranges(row.versions), *gone, latest, row.compatibility])
    return table(titles, cells)


def versions(schemas: Sequence[Schema], *, deleted: bool) -> Iterator[Line]:
    """A line for each version of a subject."""
    titles = ["version", "id", "kind", *(["deleted"] if deleted else []), "references"]
    cells = []
    for each in schemas:
        gone = ["yes" if each.deleted else ""] if deleted else []
        references = ", ".join(map(str, each.references))
        cells.append([str(each.version), str(each.schema_id), each.kind, *gone, references])
    return table(titles, cells)


def text_of(schema: Schema) -> str:
    """JSON with a line for each part, every letter of it as it was written; anything else as it is."""
    if schema.kind == "PROTOBUF":
        return schema.text
    try:
        return msgspec.json.format(schema.text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        # Avro allows the bare name of a type.
        return schema.text


def schema(found: Schema) -> Iterator[Line]:
    """For a terminal: which one it is, and its text."""
    place = f"{escape(found.subject)} version {found.version}" if found.subject else "schema"
    gone = ", deleted" if found.deleted else ""
    yield [(place, "bold"), (f"{GAP}id {found.schema_id}, {escape(found.kind)}{gone}", "dim")]
    for each in found.references:
        yield [(f"reference {escape(str(each))}", "dim")]
    yield []
    for line in _split(text_of(found)):
        yield [(_printable(line), "")]


def difference(old: Schema, new: Schema) -> Iterator[Line]:
    """Their texts, and what they refer to, as a unified diff; nothing if they are the same."""
    before, after = (f"{each.subject} version {each.version} (id {each.schema_id})" for each in (old, new))
    for number, line in enumerate(difflib.unified_diff(_lines(old), _lines(new), before, after, lineterm="")):
        style = "bold" if number < 2 else _DIFF_STYLES.get(line[:1], "")
        yield [(_printable(line), style)]


def verdict(subject: str, level: str, found: Verdict, compared: Sequence[int]) -> Iterator[Line]:
    """Whether a schema fits to the versions that it was compared with, and if not, why."""
    name, level = escape(subject), escape(level)
    if not found.is_compatible:
        yield [("incompatible", "bold red"), (f" with {name} ({level}):", "")]
        yield from reasons(found.messages)
    elif not compared:
        yield [("compatible", "green"), (f": {name} has no schema yet", "")]
    elif level == "NONE":
        yield [("compatible", "green"), (f": the compatibility of {name} is NONE, and nothing is compared", "")]
    else:
        word = "version" if len(compared) == 1 else "versions"
        yield [("compatible", "green"), (f" with {word} {ranges(compared)} of {name} ({level})", "")]


def readings(found: Iterable[Reading]) -> Iterator[Line]:
    for each in found:
        verdict = ("yes", "green") if each.is_possible else ("no", "bold red")
        yield [(f"version {each.reader} can read what version {each.writer} wrote: ", ""), verdict]
        yield from reasons(f"{reason.rule} at {reason.path}: {reason.message}" for reason in each.reasons)


def reasons(messages: Iterable[str]) -> Iterator[Line]:
    """Each on a line: the rule, where, and what would be compatible."""
    for message in messages:
        parts = _REASON.fullmatch(message)
        if parts is None:
            yield [(f"{GAP}{escape(message)}", "")]
            continue
        rule, path, version, why = (escape(part or "") for part in parts.groups())
        yield [(f"{GAP}{rule}", "red"), (" at ", ""), (path, "bold"), (version, "dim"), (f": {why}", "")]


def ranges(numbers: Iterable[int]) -> str:
    """``1-3, 5`` for 1, 2, 3 and 5."""
    spans: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1] = spans[-1][0], number
        else:
            spans.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _lines(schema: Schema) -> list[str]:
    return [*_split(text_of(schema)), *(f"reference {each}" for each in schema.references)]


def _split(text: str) -> list[str]:
    """In lines; what else Python takes for the end of one may be part of a string."""
    return re.split(r"\r?\n", text.removesuffix("\n"))


def _printable(line: str) -> str:
    """Escaped, but for what sets a line in."""
    return "\t".join(map(escape, line.split("\t")))
