"""``goqueue restore``: makes a data folder from a backup."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.connection.target import JsonOption
from goqueue.cli.settings.config_options import data_folder
from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED, reported
from goqueue.cli.terminal.output import print_json

if TYPE_CHECKING:
    from goqueue.cli.terminal.progress import Bar
    from goqueue.storage.backup.backup_format import Manifest
    from goqueue.storage.backup.backup_reader import Sink, Source

EXAMPLES = """\b
Examples:
  goqueue backup - | goqueue restore - --data ./restored          a copy of what runs; files work as well
  goqueue backup - | goqueue restore - --check                    is it whole? writes nothing
  goqueue backup - --data ./goqueue-data | goqueue restore - --data ./moved --json
"""

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The backup, compressed or not; - for standard input.")
]
DataArgument = Annotated[str | None, typer.Argument(metavar="DATA", help="The same as --data.", show_default=False)]
NewFolderOption = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="The data folder to create; must not exist, or be empty."),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Only check that the backup is complete; write nothing.")]


@reported
def restore(
    file: FileArgument,
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
    from goqueue.storage.backup.backup_reader import Nowhere

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
            manifest = _read(source, sink, bar)
    except Stopped:
        typer.echo("stopped: nothing was restored", err=True)
        return EXIT_INTERRUPTED
    _print_result(file, manifest, data, time.monotonic() - began, as_json)
    return 0


def _read(source: Source, sink: Sink, bar: Bar) -> Manifest:
    from goqueue.storage.backup.backup_reader import read_backup

    class CountingSource:
        def read(self, size: int, /) -> bytes:
            data = source.read(size)
            bar.advance(len(data))
            return data

    return read_backup(CountingSource(), sink)


def _print_result(file: str, manifest: Manifest, data: Path | None, seconds: float, as_json: bool) -> None:
    from goqueue.cli.commands.backup.backup_view import summary_json, summary_text

    if as_json:
        print_json(summary_json(manifest) | {"file": file, "data": data and str(data), "seconds": round(seconds, 3)})
        return
    where = "the backup is whole" if data is None else str(data)
    typer.echo(f"{where}: {summary_text(manifest)}; {seconds:.1f} s")
    if data is not None:
        typer.echo(f"Start a broker on it: goqueue serve --data {data}")
