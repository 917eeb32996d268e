"""``goqueue backup``: copies a broker's data as of one instant into an archive."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from goqueue.cli.connection.target import BrokerOptions, on_broker
from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED
from goqueue.cli.terminal.figure_words import size
from goqueue.cli.terminal.output import print_json
from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from goqueue.cli.commands.backup.backup_output import Output
    from goqueue.cli.terminal.progress import Bar
    from goqueue.storage.backup.backup_format import Manifest
    from goqueue.storage.backup.backup_reader import Source

EXAMPLES = """\b
Examples:
  goqueue backup monday.tar                               everything, while the broker runs
  goqueue backup monday.tar.zst                           compressed
  goqueue backup - --compress > tuesday.tar.zst           to a pipe or another program
  goqueue backup stopped.tar --data ./goqueue-data        of a broker that does not run
  goqueue backup wednesday.tar --json
"""


class ToTerminal(InvalidRequest):
    """A backup would be written to a terminal."""

    remedy = "Name a file, or send standard output to one."


FileArgument = Annotated[
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


@on_broker
def backup(
    options: BrokerOptions,
    file: FileArgument,
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
            manifest = _copy(source, output, bar)
    except Stopped:
        typer.echo("stopped: nothing was kept; begin anew", err=True)
        return EXIT_INTERRUPTED
    _print_result(file, manifest, output.written, time.monotonic() - began, compress, options.as_json)
    return 0


def _source(data: Path | None, options: BrokerOptions) -> AbstractContextManager[Source]:
    from goqueue.cli.commands.backup.backup_input import from_broker, from_folder

    if data is not None:
        return from_folder(data)
    broker = options.broker()
    return from_broker(broker.server, broker.timeout_s)


def _copy(source: Source, output: Output, bar: Bar) -> Manifest:
    """Copy through the verifying reader: the bytes written are the bytes checked."""
    from goqueue.storage.backup.backup_reader import Nowhere, read_backup

    class Tee:
        def read(self, size: int, /) -> bytes:
            data = source.read(size)
            output.write(data)
            bar.advance(len(data))
            return data

    manifest = read_backup(Tee(), Nowhere(bar.expect))
    output.finish()
    return manifest


def _print_result(file: str, manifest: Manifest, written: int, seconds: float, compress: bool, as_json: bool) -> None:
    from goqueue.cli.commands.backup.backup_view import summary_json, summary_text

    result = summary_json(manifest) | {
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
        typer.echo(f"{where}: {summary_text(manifest)}; {size(written)} in {seconds:.1f} s", err=file == "-")
