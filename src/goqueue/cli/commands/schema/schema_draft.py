"""Reads a schema from the user's file into a registration request."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import shown
from goqueue.schemas.base import MAX_SCHEMA_BYTES, SchemaKind
from goqueue.schemas.parsing import schema_kind

STDIN = "-"
_BY_EXTENSION: dict[str, SchemaKind] = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
_KIND_NAMES: dict[SchemaKind, str] = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


class UnreadableFile(InvalidRequest):
    """The file cannot be read as a schema."""

    remedy = "Name a file that holds one schema as UTF-8 text, or - for standard input."


def read_draft(file: str, kind: str | None, references: Sequence[str]) -> dict[str, object]:
    """The schema to register or check, as a request. Usage errors are raised before anything is read; a kind guessed by
    the file's extension is announced."""
    listed = [_reference(each) for each in references]
    extension = "" if file == STDIN else Path(file).suffix.lower()
    found = _BY_EXTENSION.get(extension) if kind is None else schema_kind(kind)
    if found is None:
        name = "standard input has no name" if file == STDIN else f"the name {shown(Path(file).name)} does not tell"
        raise typer.BadParameter(
            f"say what kind of schema it is: avro, json or protobuf ({name}; .avsc, .json and .proto would)",
            param_hint="--type",
        )
    text = _read(file)
    if kind is None:
        typer.echo(f"taken as {_KIND_NAMES[found]}, by {extension}; --type would say otherwise", err=True)
    return {"schema": text, "schemaType": found, "references": listed}


def check_version(text: str, option: str) -> str:
    """Check that a text is a version number or 'latest', and return it."""
    if text == "latest" or _VERSION.fullmatch(text):
        return text
    raise typer.BadParameter(f"{shown(text)} is no version; a number from 1 on is, and 'latest'", param_hint=option)


def _reference(text: str) -> dict[str, str | int]:
    name, _, target = text.partition("=")
    # A subject may contain colons.
    subject, _, version = target.rpartition(":")
    if not name or not subject or not (version == "latest" or _VERSION.fullmatch(version)):
        raise typer.BadParameter(
            f"{shown(text)} is not NAME=SUBJECT:VERSION, such as common.proto=common-value:2", param_hint="--reference"
        )
    return {"name": name, "subject": subject, "version": -1 if version == "latest" else int(version)}


def _read(file: str) -> str:
    name = "standard input" if file == STDIN else f"file {file!r}"
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(MAX_SCHEMA_BYTES + 1)
        else:
            with Path(file).open("rb") as source:
                content = source.read(MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise UnreadableFile(f"{name} cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_SCHEMA_BYTES:
        raise UnreadableFile(f"{name} has more than {MAX_SCHEMA_BYTES} bytes, the most that a schema may have")
    try:
        # Some editors begin a file with a byte order mark.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{name} is not UTF-8: byte {error.start} is {content[error.start]:#04x}") from None
    if not text.strip():
        raise UnreadableFile(f"{name} is empty")
    return text
