"""``goqueue backup`` copies a broker's data as of one instant; ``goqueue restore`` makes a data folder of the copy."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from goqueue.cli.commands.topic.topic_view import at_most_messages
from goqueue.cli.connection.target import BrokerOptions, JsonOption, on_broker
from goqueue.cli.settings.config_options import data_folder
from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED, reported
from goqueue.cli.terminal.figure_words import size
from goqueue.cli.terminal.output import print_json
from goqueue.model.errors import InvalidRequest
from goqueue.model.names import INTERNAL_PREFIX
from goqueue.model.units import counted
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.storage.backup.backup_format import Manifest, PartitionEntry
    from goqueue.storage.backup.backup_reader import Sink, Source

BACKUP_EXAMPLES = """\b
Examples:
  goqueue backup monday.tar                               everything, while the broker runs
  goqueue backup monday.tar.zst                           compressed
  goqueue backup - --compress > tuesday.tar.zst           to a pipe or another program
  goqueue backup stopped.tar --data ./goqueue-data        of a broker that does not run
  goqueue backup wednesday.tar --json
"""
RESTORE_EXAMPLES = """\b
Examples:
  goqueue backup - | goqueue restore - --data ./restored          a copy of what runs; files work as well
  goqueue backup - | goqueue restore - --check                    is it whole? writes nothing
  goqueue backup - --data ./goqueue-data | goqueue restore - --data ./moved --json
"""

TargetArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The archive to write: FILE.tar, FILE.tar.zst, or - for standard output.")
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The data folder of a stopped broker, instead of a running broker."),
]
CompressOption = Annotated[
    bool, typer.Option("--compress", help="Compress with zstd; implied by names that end with .zst.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")]
BackupArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The backup, compressed or not; - for standard input.")
]
DataArgument = Annotated[str | None, typer.Argument(metavar="DATA", help="The same as --data.", show_default=False)]
NewFolderOption = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="The data folder to create; must not exist, or be empty.")
]
CheckOption = Annotated[bool, typer.Option("--check", help="Only check that the backup is complete; write nothing.")]


class ToTerminal(InvalidRequest):
    """A backup would be written to a terminal."""

    remedy = "Name a file, or send standard output to one."


@on_broker
def backup(
    options: BrokerOptions,
    file: TargetArgument,
    data: DataOption = None,
    compress: CompressOption = False,
    force: ForceOption = False,
) -> int:
    """Copy everything a broker has, while it runs.

    The copy is the state at one instant: messages, groups, transactions and schemas are consistent. It is verified as
    it is written, and FILE is complete or not created at all. 'goqueue restore' makes a data folder from it.
    """
    from goqueue.cli.commands.backup.backup_output import (
        Stopped,
        stopped_by_signals,
        target_path,
        to_file,
        to_standard_output,
    )
    from goqueue.storage.backup.backup_reader import Nowhere, read_backup

    compress = compress or file.endswith(".zst")
    if data is not None and options.server is not None:
        raise typer.BadParameter("--data reads a folder and --server asks a broker; give one of them")
    if file == "-" and sys.stdout.isatty():
        raise ToTerminal("a backup is not for a terminal")
    target = None if file == "-" else target_path(file, force=force)
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            stack.enter_context(stopped_by_signals())
            bar = stack.enter_context(progress.progress_bar("backup", None, "bytes"))
            source = stack.enter_context(_source(data, options))
            if target is None:
                output = stack.enter_context(to_standard_output(compress))
            else:
                output = stack.enter_context(to_file(target, compress, force=force))

            def copy(data: bytes) -> None:
                # Through the verifying reader: the bytes written are the bytes checked.
                output.write(data)
                bar.advance(len(data))

            manifest = read_backup(_Watched(source, copy), Nowhere(bar.expect))
            output.finish()
    except Stopped:
        typer.echo("stopped: nothing was kept; begin anew", err=True)
        return EXIT_INTERRUPTED
    _print_backup(file, manifest, output.written, time.monotonic() - began, compress, options.as_json)
    return 0


def _source(data: Path | None, options: BrokerOptions) -> AbstractContextManager[Source]:
    from goqueue.cli.commands.backup.backup_input import from_broker, from_folder

    if data is not None:
        return from_folder(data)
    broker = options.broker()
    return from_broker(broker.server, broker.timeout_s)


def _print_backup(file: str, manifest: Manifest, written: int, seconds: float, compress: bool, as_json: bool) -> None:
    result = _summary_json(manifest) | {
        "file": file,
        "file_bytes": written,
        "compressed": compress,
        "seconds": round(seconds, 3),
    }
    if as_json:
        if file == "-":
            typer.echo(msgspec.json.encode(result).decode(), err=True)
        else:
            print_json(result)
    else:
        where = "standard output" if file == "-" else file
        typer.echo(f"{where}: {_summary_text(manifest)}; {size(written)} in {seconds:.1f} s", err=file == "-")


@reported
def restore(
    file: BackupArgument,
    data_argument: DataArgument = None,
    data_option: NewFolderOption = None,
    check: CheckOption = False,
    as_json: JsonOption = False,
) -> int:
    """Make a data folder from a backup.

    Everything in the backup is verified against its checksums. If anything is missing, altered or superfluous, no
    folder is created.
    """
    from goqueue.cli.commands.backup.backup_input import from_file
    from goqueue.cli.commands.backup.backup_output import Stopped, stopped_by_signals
    from goqueue.cli.commands.backup.restore_folder import restore_into
    from goqueue.storage.backup.backup_reader import Nowhere, read_backup

    if not file:
        raise typer.BadParameter("it is empty; give the backup's name, or - for standard input", param_hint="FILE")
    named = data_folder(data_argument, data_option)
    data = None if named is None else Path(named)
    if check == (data is not None):
        raise typer.BadParameter("give the data folder to make, or --check to make none", param_hint="--data")
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            stack.enter_context(stopped_by_signals())
            bar = stack.enter_context(progress.progress_bar("check" if check else "restore", None, "bytes"))
            source = stack.enter_context(from_file(file))
            sink: Sink = Nowhere(bar.expect) if data is None else stack.enter_context(restore_into(data, bar.expect))
            manifest = read_backup(_Watched(source, lambda data: bar.advance(len(data))), sink)
    except Stopped:
        typer.echo("stopped: nothing was restored", err=True)
        return EXIT_INTERRUPTED
    _print_restore(file, manifest, data, time.monotonic() - began, as_json)
    return 0


def _print_restore(file: str, manifest: Manifest, data: Path | None, seconds: float, as_json: bool) -> None:
    if as_json:
        print_json(_summary_json(manifest) | {"file": file, "data": data and str(data), "seconds": round(seconds, 3)})
        return
    where = "the backup is whole" if data is None else str(data)
    typer.echo(f"{where}: {_summary_text(manifest)}; {seconds:.1f} s")
    if data is not None:
        typer.echo(f"Start a broker on it: goqueue serve --data {data}")


class _Watched:
    """A backup; ``on_data`` gets all that is read of it."""

    def __init__(self, source: Source, on_data: Callable[[bytes], None]) -> None:
        self._source = source
        self._on_data = on_data

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self._on_data(data)
        return data


def _summary_json(manifest: Manifest) -> dict[str, object]:
    head, users = manifest.head, _user_partitions(manifest)
    return {
        "instant": head.instant,
        "node_id": head.node_id,
        "goqueue_version": head.goqueue_version,
        "topics": len({each.topic for each in users}),
        "partitions": len(users),
        "messages": sum(each.records for each in users),
        "files": head.files,
        "bytes": head.size_bytes,
    }


def _summary_text(manifest: Manifest) -> str:
    users = _user_partitions(manifest)
    topics, messages = len({each.topic for each in users}), sum(each.records for each in users)
    held = f"{counted(topics, 'topic')} with {at_most_messages(messages)} in {counted(len(users), 'partition')}"
    return f"{held}, {size(manifest.head.size_bytes)}, as of {escape(manifest.head.instant)}"


def _user_partitions(manifest: Manifest) -> list[PartitionEntry]:
    """Partitions of users' topics, without the broker's own journals."""
    return [each for each in manifest.partitions if not each.topic.startswith(INTERNAL_PREFIX)]
