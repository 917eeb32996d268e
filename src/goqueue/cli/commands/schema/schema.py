"""``goqueue schema``: lists, shows, registers, checks, compares, deletes and configures schemas."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.cli.commands.schema import schema_options as declared
from goqueue.cli.commands.schema.schema_options import require_subject
from goqueue.cli.connection.confirmation import confirmed
from goqueue.cli.connection.target import BrokerOptions, YesOption, on_broker
from goqueue.cli.terminal.failures import EXIT_FAILED, tell_error
from goqueue.cli.terminal.output import Line, plain_text, print_json, print_lines
from goqueue.cli.terminal.plain_help import command_group
from goqueue.model.errors import IncompatibleSchema, InvalidSchema, SubjectNotConfigured, SubjectNotFound
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.commands.schema.schema_calls import Registry, Schema, Verdict
    from goqueue.cli.commands.schema.schema_view import Readability

_REMEDY = (
    "Change the schema as each line says, or what is asked of it: goqueue schema config SUBJECT --compatibility LEVEL."
)

app = command_group("Register, list, check and compare the schemas of a broker.", declared.EXAMPLES)


@app.command("list", epilog=declared.LIST_EXAMPLES)
@on_broker
def list_schemas(
    options: BrokerOptions, subject: declared.MaybeSubjectArgument = None, deleted: declared.DeletedOption = False
) -> int:
    """List subjects, or the versions of one."""
    from goqueue.cli.commands.schema import schema_calls, schema_view

    registry = schema_calls.Registry(options.broker())
    if subject is not None:
        numbers = registry.versions(require_subject(subject), deleted=deleted)
        answers = [registry.version(subject, number, deleted=deleted) for number in numbers]
        if options.as_json:
            print_json(answers)
        else:
            found = [schema_calls.convert(answer, schema_calls.Schema) for answer in answers]
            print_lines(schema_view.versions_table(found, deleted=deleted))
        return 0
    rows = []
    for latest in registry.latest(deleted=deleted):
        try:
            numbers = registry.versions(latest.subject, deleted=deleted)
            gone = registry.versions(latest.subject, deleted_only=True) if deleted else []
        except SubjectNotFound:
            continue  # Deleted since it was listed.
        live = [number for number in numbers if number not in gone]
        row = latest.subject, latest.kind, live, gone, latest.version, latest.schema_id, registry.level(latest.subject)
        rows.append(schema_view.SubjectRow(*row))
    if options.as_json:
        print_json(rows)
    elif rows:
        print_lines(schema_view.subjects_table(rows, deleted=deleted))
    else:
        typer.echo("no schema is registered", err=True)
    return 0


@app.command(epilog=declared.SHOW_EXAMPLES)
@on_broker
def show(
    options: BrokerOptions,
    subject: declared.MaybeSubjectArgument = None,
    version: Annotated[str, typer.Argument(metavar="VERSION|latest", help="Which of its versions.")] = "latest",
    schema_id: Annotated[
        int | None, typer.Option("--id", min=0, metavar="N", help="By its id, instead of a subject.")
    ] = None,
    deleted: declared.DeletedOption = False,
) -> int:
    """Print the text of a schema.

    JSON is printed with one line per part, Protobuf as it was registered. A pipe gets nothing but the text.
    """
    from goqueue.cli.commands.schema import schema_calls, schema_draft, schema_view

    if (subject is None) == (schema_id is None):
        raise typer.BadParameter("say which schema: a subject, or --id and no subject")
    version = schema_draft.check_version(version, "VERSION")
    registry = schema_calls.Registry(options.broker())
    if schema_id is None:
        answer = registry.version(require_subject(subject or ""), version, deleted=deleted)
    else:
        # The broker's answer for an id omits the id.
        answer = {**schema_calls.convert(registry.by_id(schema_id), dict[str, Any]), "id": schema_id}
    if options.as_json:
        print_json(answer)
        return 0
    found = schema_calls.convert(answer, schema_calls.Schema)
    if sys.stdout.isatty():
        print_lines(schema_view.schema_lines(found))
    else:
        # For a file, which is UTF-8 whatever the terminal's encoding.
        text = schema_view.text_of(found)
        typer.echo(text.encode(), nl=not text.endswith("\n"))
    return 0


@app.command(epilog=declared.REGISTER_EXAMPLES)
@on_broker
def register(
    options: BrokerOptions,
    subject: declared.SubjectArgument,
    file: declared.FileArgument,
    kind: declared.TypeOption = None,
    reference: declared.ReferenceOption = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Register its normal form.")] = False,
) -> int:
    """Register a schema as the next version of a subject.

    A schema that is already registered keeps its id and version. If it is not compatible, each reason is a line, and
    the exit status is 1.
    """
    from goqueue.cli.commands.schema import schema_calls, schema_draft

    registry = schema_calls.Registry(options.broker())
    draft = schema_draft.read_draft(file, kind, reference or ())
    existing = registry.find(require_subject(subject), draft, normalize=normalize)
    try:
        answer = registry.register(subject, draft, normalize=normalize)
    except IncompatibleSchema as error:
        # The error carries only the first reasons.
        verdict = registry.verdict(subject, draft)
        if verdict.is_compatible:
            raise error from None
        return _report_refusal(subject, registry.level(subject), verdict, as_json=options.as_json)
    registered = schema_calls.convert(answer, schema_calls.Registered)
    how = "was there already" if existing == registered else "registered"
    text = f"{escape(subject)} version {registered.version}, id {registered.schema_id}: {how}"
    return options.show({**answer, "existed": existing == registered}, text)


@app.command(epilog=declared.CHECK_EXAMPLES)
@on_broker
def check(
    options: BrokerOptions,
    subject: declared.SubjectArgument,
    file: declared.FileArgument,
    version: Annotated[
        str | None,
        typer.Option(
            "--version",
            metavar="N|latest|all",
            help="Compare with this one, or with all; else with those that the subject's compatibility requires.",
        ),
    ] = None,
    kind: declared.TypeOption = None,
    reference: declared.ReferenceOption = None,
) -> int:
    """Check whether a schema could be registered.

    If so, the exit status is 0; if not, each reason is a line, and it is 1. Nothing is changed.
    """
    from goqueue.cli.commands.schema import schema_calls, schema_draft, schema_view

    if version is not None and version != "all":
        version = schema_draft.check_version(version, "--version")
    registry = schema_calls.Registry(options.broker())
    level = registry.level(require_subject(subject))
    draft = schema_draft.read_draft(file, kind, reference or ())
    if version is None:
        try:
            existing = registry.versions(subject)
        except SubjectNotFound:
            existing = []
        verdict = registry.verdict(subject, draft)
        compared = existing if level.endswith("_TRANSITIVE") else existing[-1:]
    elif version == "all":
        compared = registry.versions(subject)
        found = [registry.verdict(subject, draft, number) for number in reversed(compared)]
        messages = [message for each in found for message in each.messages]
        verdict = schema_calls.Verdict(all(each.is_compatible for each in found), messages)
    else:
        verdict = registry.verdict(subject, draft, version)
        compared = [schema_calls.convert(registry.version(subject, version), schema_calls.Schema).version]
    options.show(verdict, schema_view.verdict_lines(subject, level, verdict, compared))
    return 0 if verdict.is_compatible else EXIT_FAILED


@app.command(epilog=declared.DIFF_EXAMPLES)
@on_broker
def diff(
    options: BrokerOptions,
    subject: declared.SubjectArgument,
    old: Annotated[str, typer.Argument(metavar="V1", help="A version, or 'latest'.", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="V2", help="Another.", show_default=False)],
    deleted: declared.DeletedOption = False,
) -> int:
    """Compare two versions of a subject.

    Shows the changes of the text, and whether each version can read data written with the other.
    """
    from goqueue.cli.commands.schema import schema_calls, schema_draft, schema_view

    numbers = schema_draft.check_version(old, "V1"), schema_draft.check_version(new, "V2")
    registry = schema_calls.Registry(options.broker())
    before, after = (
        schema_calls.convert(registry.version(require_subject(subject), number, deleted=deleted), schema_calls.Schema)
        for number in numbers
    )
    readings = _check_readability(registry, before, after)
    difference = list(schema_view.difference_lines(before, after))
    if options.as_json:
        print_json(
            {
                "subject": subject,
                "from": before.version,
                "to": after.version,
                "diff": plain_text(difference),
                "readings": [
                    {
                        "reader": each.reader,
                        "writer": each.writer,
                        "is_compatible": each.is_possible,
                        "reasons": each.reasons,
                    }
                    for each in readings
                ],
            }
        )
    else:
        same: Line = [(f"versions {before.version} and {after.version} have the same text", "")]
        print_lines([*(difference or [same]), [], *schema_view.readability_lines(readings)])
    return 0


@app.command(epilog=declared.DELETE_EXAMPLES)
@on_broker
def delete(
    options: BrokerOptions,
    subject: declared.SubjectArgument,
    version: Annotated[
        str | None, typer.Argument(metavar="VERSION|latest", help="Only this version.", show_default=False)
    ] = None,
    permanent: Annotated[bool, typer.Option("--permanent", help="Delete for good what was softly deleted.")] = False,
    yes: YesOption = False,
) -> int:
    """Delete a subject, or one of its versions.

    The first delete is soft: the schema is not used any more, but its id stays readable. --permanent then deletes it
    for good.
    """
    from goqueue.cli.commands.schema import schema_calls, schema_draft, schema_view

    if version is not None:
        version = schema_draft.check_version(version, "VERSION")
    registry = schema_calls.Registry(options.broker())
    require_subject(subject)
    which = {None: "all versions", "latest": "the latest version"}.get(version, f"version {version}")
    how = " for good; that cannot be undone" if permanent else ""
    if not confirmed(f"Delete {which} of {escape(subject)}{how}?", yes, options):
        return EXIT_FAILED
    gone = registry.delete(subject, version, permanent=permanent)
    how = "deleted for good" if permanent else "deleted"
    versions = f"version{'s' if len(gone) > 1 else ''} {schema_view.format_ranges(gone)}"
    return options.show(gone, f"{escape(subject)} {versions}: {how}")


@app.command(epilog=declared.CONFIG_EXAMPLES)
@on_broker
def config(
    options: BrokerOptions,
    subject: declared.MaybeSubjectArgument = None,
    compatibility: Annotated[
        str | None,
        typer.Option("--compatibility", metavar="LEVEL", help="BACKWARD, FORWARD, FULL, these _TRANSITIVE, or NONE."),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Follow the setting for all subjects again.")] = False,
) -> int:
    """Show or change the compatibility that new versions must have.

    For one subject, or without one for all subjects that have no setting of their own.
    """
    from goqueue.cli.commands.schema import schema_calls

    if compatibility is not None and reset:
        raise typer.BadParameter("--compatibility sets what --reset removes; use one of them")
    registry = schema_calls.Registry(options.broker())
    if subject is not None:
        require_subject(subject)
    if compatibility is not None:
        registry.settings("PUT", subject, {"compatibility": compatibility.upper()})
    elif reset:
        with suppress(SubjectNotConfigured):
            registry.settings("DELETE", subject)
    answer = registry.settings("GET", subject)
    if options.as_json:
        print_json(answer)
    else:
        whose = "all subjects that do not say otherwise" if subject is None else escape(subject)
        typer.echo(f"{whose}: {escape(schema_calls.convert(answer, schema_calls.Settings).level)}")
    return 0


def _report_refusal(subject: str, level: str, verdict: Verdict, *, as_json: bool) -> int:
    """Report why nothing was registered."""
    from goqueue.cli.commands.schema import schema_view

    if as_json:
        print_json(verdict)
        return EXIT_FAILED
    reasons = plain_text(schema_view.reason_lines(verdict.messages))
    message = f"the schema is not {escape(level)} compatible with {escape(subject)}:\n{reasons}"
    tell_error(message, IncompatibleSchema.code, _REMEDY)
    return EXIT_FAILED


def _check_readability(registry: Registry, old: Schema, new: Schema) -> list[Readability]:
    """Check both directions here, because the broker's answer depends on the subject's compatibility."""
    from goqueue.cli.commands.schema.schema_view import Readability
    from goqueue.schemas.base import Incompatibility

    if old.kind != new.kind:
        reason = Incompatibility("SCHEMA_TYPE_CHANGED", "/", f"one is {old.kind}, the other {new.kind}")
        return [Readability(new.version, old.version, [reason]), Readability(old.version, new.version, [reason])]
    try:
        before, after = registry.parse(old), registry.parse(new)
    except InvalidSchema as error:
        # A newer broker may support more; the texts can be compared nevertheless.
        typer.echo(f"whether one can read what the other wrote is not known: {escape(str(error))}", err=True)
        return []
    return [
        Readability(new.version, old.version, after.cannot_read(before)),
        Readability(old.version, new.version, before.cannot_read(after)),
    ]
