"""The options of ``goqueue schema``, its examples, and what its commands make of what was written."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from goqueue.cli.commands.schema.schema_calls import Registry
    from goqueue.cli.commands.schema.schema_draft import Draft

_LONGEST_MS = 86_400_000

EXAMPLES = """\b
Examples:
  goqueue schema list                                  what is registered
  goqueue schema register orders-value order.avsc      a new schema, or a new version of one
  goqueue schema check orders-value order.avsc         whether it could be: for CI, exit status 0 or 1
  goqueue schema diff orders-value 1 latest            what has changed, and who can read what
"""
LIST_EXAMPLES = """\b
Examples:
  goqueue schema list
  goqueue schema list orders-value
  goqueue schema list --deleted --json
"""
SHOW_EXAMPLES = """\b
Examples:
  goqueue schema show orders-value
  goqueue schema show orders-value 2 > order.avsc
  goqueue schema show --id 17 --json
"""
REGISTER_EXAMPLES = """\b
Examples:
  goqueue schema register orders-value order.avsc
  goqueue schema register orders-value order.proto --reference common.proto=common-value:2
  make-schema | goqueue schema register orders-value - --type json
"""
CHECK_EXAMPLES = """\b
Examples:
  goqueue schema check orders-value order.avsc
  goqueue schema check orders-value order.avsc --version all
  goqueue schema check orders-value order.avsc --json || exit 1
"""
DIFF_EXAMPLES = """\b
Examples:
  goqueue schema diff orders-value 1 2
  goqueue schema diff orders-value 2 latest
  goqueue schema diff orders-value 1 2 --json
"""
DELETE_EXAMPLES = """\b
Examples:
  goqueue schema delete orders-value 2             one version, softly: its id stays readable
  goqueue schema delete orders-value --yes         all versions, without being asked
  goqueue schema delete orders-value --permanent   for good, what was softly deleted
"""
CONFIG_EXAMPLES = """\b
Examples:
  goqueue schema config
  goqueue schema config orders-value
  goqueue schema config orders-value --compatibility FULL_TRANSITIVE
  goqueue schema config orders-value --reset
"""


class SchemaType(StrEnum):
    avro = "avro"
    json = "json"
    protobuf = "protobuf"


SubjectArgument = Annotated[str, typer.Argument(metavar="SUBJECT", help="Such as orders-value.", show_default=False)]
MaybeSubjectArgument = Annotated[
    str | None, typer.Argument(metavar="SUBJECT", help="Only this one.", show_default=False)
]
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The schema; - for standard input.", show_default=False)
]
TypeOption = Annotated[
    SchemaType | None,
    typer.Option("--type", case_sensitive=False, help="What kind it is; else told by .avsc, .json or .proto."),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference", metavar="NAME=SUBJECT:VERSION", help="What it refers to, and as what; may be given many times."
    ),
]
DeletedOption = Annotated[bool, typer.Option("--deleted", help="Also what is softly deleted.")]


def registry_at(server: str | None, timeout: str) -> Registry:
    """The registry of the broker that was named, or of the one that is used unless one is."""
    from goqueue.cli.commands.schema.schema_calls import Registry
    from goqueue.cli.connection.target import broker_at

    return Registry(broker_at(server, timeout))


def named(subject: str) -> str:
    """A subject; without a name, paths would mean something else."""
    if not subject:
        raise typer.BadParameter("a subject has a name; this one is empty", param_hint="SUBJECT")
    return subject


def draft_of(file: str, kind: SchemaType | None, references: list[str] | None) -> Draft:
    """What is to be registered or checked. A kind that was guessed is told."""
    from goqueue.cli.commands.schema.schema_draft import KIND_NAMES, draft_from
    from goqueue.schemas.parsing import schema_kind

    draft = draft_from(file, None if kind is None else schema_kind(kind.value), references or ())
    if draft.guessed_from:
        told = f"taken as {KIND_NAMES[draft.kind]}, by {draft.guessed_from}; --type would say otherwise"
        typer.echo(told, err=True)
    return draft
