"""Options and help examples of ``goqueue schema``, and functions that interpret the options."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

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


SchemaType = Literal["avro", "json", "protobuf"]
SubjectArgument = Annotated[str, typer.Argument(metavar="SUBJECT", help="Such as orders-value.", show_default=False)]
MaybeSubjectArgument = Annotated[
    str | None, typer.Argument(metavar="SUBJECT", help="Only this subject.", show_default=False)
]
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The schema; - for standard input.", show_default=False)
]
TypeOption = Annotated[
    SchemaType | None,
    typer.Option("--type", case_sensitive=False, help="Its type; else by extension: .avsc, .json or .proto."),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference", metavar="NAME=SUBJECT:VERSION", help="A referenced schema and its name; may be given many times."
    ),
]
DeletedOption = Annotated[bool, typer.Option("--deleted", help="Include softly deleted ones.")]


def require_subject(subject: str) -> str:
    """Refuse an empty subject, which would address another path."""
    if not subject:
        raise typer.BadParameter("a subject has a name; this one is empty", param_hint="SUBJECT")
    return subject
