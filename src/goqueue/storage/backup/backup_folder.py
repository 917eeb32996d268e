"""Source files of a backup of a data folder that is not in use by a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from goqueue.model.errors import CorruptData, InvalidRequest, LinkInDataFolder, StorageFailed
from goqueue.storage.backup.backup_format import is_of_backup
from goqueue.storage.backup.backup_writer import SourceFile
from goqueue.storage.files.atomic import read_checked
from goqueue.storage.files.checkpoint import CheckpointFile, RecoveryPoint
from goqueue.storage.files.files import OsFiles


class NoDataFolder(InvalidRequest):
    """The data folder does not exist."""

    remedy = "Give the folder that the broker was started with: goqueue serve --data DIR."


class LogMissing(CorruptData):
    """A file or folder of a log is missing."""

    remedy = "See that every disk is mounted and no link is broken; 'goqueue doctor DIR' tells what else is missing."


class Unreadable(StorageFailed):
    """The system refuses to read a file of the folder."""

    remedy = "Check the disk, and that you may read every file of the folder."


@contextmanager
def stopped(root: Path) -> Iterator[list[SourceFile]]:
    """Files of a backup, which stay unchanged in this block: a broker that starts meanwhile is refused."""
    files = OsFiles(root)
    if not (root / "FORMAT").is_file():
        raise NoDataFolder(f"{root} is not a data folder: there is no FORMAT in it")
    held = files.lock(root / "LOCK")
    try:
        yield sorted(_sources(files, root, recovery_points(root)), key=_order)
    except LinkInDataFolder:
        raise
    except OSError as error:
        raise Unreadable(f"a file of {root} cannot be read: {error}") from None
    finally:
        del held


def data_format(root: Path) -> int:
    found = read_checked(OsFiles(root), root / "FORMAT")
    if found is None or not found.isdigit():
        raise CorruptData(f"{root / 'FORMAT'} cannot be understood")
    return int(found)


def recovery_points(root: Path) -> dict[str, RecoveryPoint]:
    return CheckpointFile(OsFiles(root), root / "checkpoint").load()


def check_logs(root: Path, sources: Collection[SourceFile], logs: Collection[str]) -> None:
    """Raises if a log in ``logs``, given as ``logs/{folder}/{partition}``, has no file."""
    found = {source.path.rpartition("/")[0] for source in sources}
    if missing := sorted(set(logs) - found):
        more = f", nor of {len(missing) - 1} more" if len(missing) > 1 else ""
        raise LogMissing(f"there are no files of {root / missing[0]}{more}, which the broker had")


def _sources(files: OsFiles, root: Path, points: dict[str, RecoveryPoint]) -> Iterator[SourceFile]:
    """Files of the backup. No symbolic link is followed: it could lead to files that the owner must not read."""
    for at_the_top in root.iterdir():
        yield from _of_backup(files, root, at_the_top)
    yield from _in_folder(files, root, root / "snapshots")
    for topic in _folders_in(files, root / "logs"):
        for partition in _folders_in(files, topic):
            chosen = list(_in_folder(files, root, partition))
            yield from chosen
            if not chosen:
                # A log without messages is included, or it would look lost.
                path = partition.relative_to(root).as_posix()
                point = points.get(path)
                empty = f"{path}/{0 if point is None else point.base + point.count:020d}.log"
                if is_of_backup(empty):
                    yield SourceFile(empty, 0)


def _in_folder(files: OsFiles, root: Path, folder: Path) -> Iterator[SourceFile]:
    for place in _entries_of(files, folder):
        yield from _of_backup(files, root, place)


def _of_backup(files: OsFiles, root: Path, place: Path) -> Iterator[SourceFile]:
    path = place.relative_to(root).as_posix()
    if not is_of_backup(path) or not files.exists(place):
        return
    if not place.is_file():
        raise CorruptData(f"{place} is no file")
    yield SourceFile(path, files.size(place), place)


def _folders_in(files: OsFiles, folder: Path) -> Iterator[Path]:
    for place in _entries_of(files, folder):
        if place.is_dir():
            yield place


def _entries_of(files: OsFiles, folder: Path) -> list[Path]:
    return [folder / name for name in files.list_dir(folder)] if files.exists(folder) else []


def _order(source: SourceFile) -> tuple[int, str]:
    """Sort key: small files first."""
    return source.path.startswith("logs/"), source.path
