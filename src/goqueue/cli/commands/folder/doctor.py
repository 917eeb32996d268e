"""``goqueue doctor``: checks the data folder of a stopped broker, and repairs it on request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.connection.confirmation import confirmed
from goqueue.cli.connection.target import JsonOption, YesOption
from goqueue.cli.settings.config_options import ConfigOption, DataOption, data_folder, load
from goqueue.cli.terminal import progress
from goqueue.cli.terminal.failures import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PROBLEMS, reported
from goqueue.cli.terminal.figure_words import size
from goqueue.cli.terminal.output import print_answer, print_lines
from goqueue.model.errors import DataFolderLocked, NotFound, TopicNotFound
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.broker.checkup.folder_checkup import CheckupOptions
    from goqueue.storage.checkup.findings import Report

EXAMPLES = """\b
Examples:
  goqueue doctor                                       check ./goqueue-data
  goqueue doctor --data ./goqueue-data --topic orders  only one topic
  goqueue doctor --quick                               believe indexes that are whole
  goqueue doctor --json
  goqueue doctor --repair --yes                        make whole what can be made whole
"""


class NoSuchDataFolder(NotFound):
    """There is no data folder at this path."""

    remedy = "Give the folder that 'goqueue serve' uses (storage.path, --data); it has a file FORMAT and a folder logs."


class FolderInUse(DataFolderLocked):
    """A broker uses the folder, so its contents change during the check."""

    remedy = "Stop the broker first, or check a backup of the folder."


class NotInFolder(TopicNotFound):
    """The folder has no such topic."""

    remedy = "Name one of these, or leave out --topic to check all of them."


@reported
def doctor(
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="The same as --data; else storage.path of the configuration.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="NAME", help="Only this topic, and the folder's own files.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read messages whose index has a valid checksum.")
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired; asks first.")] = False,
    yes: YesOption = False,
    data_option: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check a data folder while no broker uses it. Nothing is changed without --repair."""
    from goqueue.cli.commands.folder import doctor_view

    root, options = _prepare(data_folder(data, data_option), topic, config, quick=quick)
    repaired = None
    # The lock is held over check, question and repair, so that what is repaired is what was found.
    with _locked(root) if repair else nullcontext():
        report = _check(root, options)
        if report is None:
            return EXIT_INTERRUPTED
        if repair:
            from goqueue.broker.checkup.repair import can_repair
            from goqueue.broker.checkup.repair import repair as carry_out

            if planned := can_repair(report):
                if not as_json:
                    print_lines(doctor_view.report_lines(report))
                if not confirmed(f"Repair {len(planned)} of these in {escape(str(root))}?", yes):
                    return EXIT_FAILED
                with _muted_log():
                    repaired = carry_out(report)
                report = _check(root, options)
                if report is None:
                    return EXIT_INTERRUPTED
    done = [] if repaired is None else doctor_view.repaired_lines(report, repaired)
    lines = chain(done, doctor_view.report_lines(report))
    print_answer(doctor_view.as_json(report, repaired), lines, as_json=as_json)
    return 0 if report.is_healthy() else EXIT_PROBLEMS


def _prepare(data: str | None, topic: str | None, config: str | None, *, quick: bool) -> tuple[Path, CheckupOptions]:
    """The folder and the options of the check. Raises if there is no such folder, or a broker uses it."""
    from goqueue.broker.checkup.folder_checkup import CheckupOptions
    from goqueue.storage.reader.reader import is_in_use

    settings = load(config, {"storage.path": data}, None).config
    root = Path(settings.storage.path)
    if not root.is_dir():
        raise NoSuchDataFolder(f"there is no folder {root}")
    if not (root / "FORMAT").exists() and not (root / "logs").is_dir():
        raise NoSuchDataFolder(f"{root} is no data folder: it has neither a file FORMAT nor a folder logs")
    if is_in_use(root):
        raise _in_use(root)
    return root, CheckupOptions(topic, quick, settings.topic)


def _in_use(root: Path) -> FolderInUse:
    return FolderInUse(f"{root} is in use by a broker, or being repaired; what is being written cannot be checked")


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the folder's lock, so that no broker starts on it."""
    from goqueue.storage.files.files import OsFiles

    try:
        lock = OsFiles(root).lock(root / "LOCK")
    except DataFolderLocked:
        raise _in_use(root) from None
    try:
        yield
    finally:
        del lock


def _check(root: Path, options: CheckupOptions) -> Report | None:
    """The report; ``None`` if it was stopped, which has been printed then."""
    from goqueue.broker.checkup.folder_checkup import Checkup, log_bytes

    total = log_bytes(root, options.topic)
    with _muted_log(), progress.stoppable() as stop, progress.progress_bar("checking", total, "bytes") as bar:
        try:
            report = Checkup(root, options, bar.advance, stop.is_set).run()
        except TopicNotFound as error:
            raise NotInFolder(str(error)) from None
    if report.is_complete:
        return report
    found = len(report.every_finding())
    typer.echo(
        f"stopped after {size(report.checked_bytes)} of {size(total)}, with {found:,} findings so far; "
        "nothing was changed",
        err=True,
    )
    return None


@contextmanager
def _muted_log() -> Iterator[None]:
    """Suppress the log lines of recovery: the report has the same."""
    logger = logging.getLogger("goqueue")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
