"""Formats schemas: tables, texts, differences and compatibility results; in colour for a terminal, plain for a pipe."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from goqueue.cli.commands.schema.schema_calls import Schema, Verdict
from goqueue.cli.terminal.output import Line
from goqueue.cli.terminal.tables import GAP, table
from goqueue.observe.logs import escape
from goqueue.schemas.base import Incompatibility

_REASON = re.compile(r"(\S+) at (.+?)( \(version \d+\))?: (.+)", re.DOTALL)
_DIFF_STYLES = {"-": "red", "+": "green", "@": "cyan"}


class SubjectRow(msgspec.Struct, frozen=True, rename="camel"):
    """A row of the list of subjects."""

    subject: str
    schema_type: str
    versions: list[int]
    deleted_versions: list[int]
    latest_version: int
    latest_id: int
    compatibility_level: str


@dataclass(frozen=True, slots=True)
class Readability:
    """Whether data written with one version can be read with another."""

    reader: int
    writer: int
    reasons: list[Incompatibility]

    @property
    def is_possible(self) -> bool:
        return not self.reasons


def subjects_table(rows: Sequence[SubjectRow], *, deleted: bool) -> Iterator[Line]:
    """A row for each subject."""
    titles = ["subject", "kind", "versions", *(["deleted"] if deleted else []), "latest id", "compatibility"]
    cells = []
    for row in rows:
        gone = [format_ranges(row.deleted_versions)] if deleted else []
        live = format_ranges(row.versions)
        cells.append([row.subject, row.schema_type, live, *gone, str(row.latest_id), row.compatibility_level])
    return table(titles, cells)


def versions_table(schemas: Sequence[Schema], *, deleted: bool) -> Iterator[Line]:
    """A row for each version of a subject."""
    titles = ["version", "id", "kind", *(["deleted"] if deleted else []), "references"]
    cells = []
    for each in schemas:
        gone = ["yes" if each.deleted else ""] if deleted else []
        references = ", ".join(map(str, each.references))
        cells.append([str(each.version), str(each.schema_id), each.kind, *gone, references])
    return table(titles, cells)


def text_of(schema: Schema) -> str:
    """JSON indented, with its tokens unchanged; anything else as it is."""
    if schema.kind == "PROTOBUF":
        return schema.text
    try:
        return msgspec.json.format(schema.text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        # Avro allows an unquoted type name, which is not JSON.
        return schema.text


def schema_lines(found: Schema) -> Iterator[Line]:
    """A schema's identity and text, for a terminal."""
    title = f"{escape(found.subject)} version {found.version}" if found.subject else "schema"
    gone = ", deleted" if found.deleted else ""
    yield [(title, "bold"), (f"{GAP}id {found.schema_id}, {escape(found.kind)}{gone}", "dim")]
    for each in found.references:
        yield [(f"reference {escape(str(each))}", "dim")]
    yield []
    for line in _split(text_of(found)):
        yield [(_printable(line), "")]


def difference_lines(old: Schema, new: Schema) -> Iterator[Line]:
    """A unified diff of two schemas' texts and references; empty if they are the same."""
    before, after = (f"{each.subject} version {each.version} (id {each.schema_id})" for each in (old, new))
    for number, line in enumerate(difflib.unified_diff(_lines(old), _lines(new), before, after, lineterm="")):
        style = "bold" if number < 2 else _DIFF_STYLES.get(line[:1], "")
        yield [(_printable(line), style)]


def verdict_lines(subject: str, level: str, found: Verdict, compared: Sequence[int]) -> Iterator[Line]:
    """The result of a compatibility check, with the reasons if it failed."""
    name, level = escape(subject), escape(level)
    if not found.is_compatible:
        yield [("incompatible", "bold red"), (f" with {name} ({level}):", "")]
        yield from reason_lines(found.messages)
    elif not compared:
        yield [("compatible", "green"), (f": {name} has no schema yet", "")]
    elif level == "NONE":
        yield [("compatible", "green"), (f": the compatibility of {name} is NONE, and nothing is compared", "")]
    else:
        word = "version" if len(compared) == 1 else "versions"
        yield [("compatible", "green"), (f" with {word} {format_ranges(compared)} of {name} ({level})", "")]


def readability_lines(found: Iterable[Readability]) -> Iterator[Line]:
    for each in found:
        verdict = ("yes", "green") if each.is_possible else ("no", "bold red")
        yield [(f"version {each.reader} can read what version {each.writer} wrote: ", ""), verdict]
        yield from reason_lines(f"{reason.rule} at {reason.path}: {reason.message}" for reason in each.reasons)


def reason_lines(messages: Iterable[str]) -> Iterator[Line]:
    """One line for each reason: rule, path, and what would be compatible."""
    for message in messages:
        parts = _REASON.fullmatch(message)
        if parts is None:
            yield [(f"{GAP}{escape(message)}", "")]
            continue
        rule, path, version, why = (escape(part or "") for part in parts.groups())
        yield [(f"{GAP}{rule}", "red"), (" at ", ""), (path, "bold"), (version, "dim"), (f": {why}", "")]


def format_ranges(numbers: Iterable[int]) -> str:
    """Format numbers as ranges: ``1-3, 5`` for 1, 2, 3 and 5."""
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
    """Split at line feeds only: other line separators of ``str.splitlines`` may be part of a string."""
    return re.split(r"\r?\n", text.removesuffix("\n"))


def _printable(line: str) -> str:
    """Escape a line, keeping tabs for indentation."""
    return "\t".join(map(escape, line.split("\t")))
