"""No link is followed inside of a data folder, and what is in it is for its owner alone."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from goqueue.broker.broker import Broker
from goqueue.model.errors import InvalidConfiguration, LinkInDataFolder
from goqueue.model.publishing import NewMessage
from goqueue.storage.files.files import OsFiles
from goqueue.storage.reader.reader import FolderReader

SOMEBODY = 12_345
FOREIGN = b"somebody else's"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A file that no broker must touch, in a folder of its own."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "file").write_bytes(FOREIGN)
    return folder / "file"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user reaches. Those of pytest are closed to others again by its next run."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def umask_zero() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def used(data: Path) -> None:
    """A broker has stored messages there, and has stopped."""

    async def work() -> None:
        async with Broker(data) as broker:
            await broker.create_topic("t", {"partitions": 2})
            await broker.publish("t", [NewMessage(b"v", partition=0)])

    asyncio.run(work())


def started(data: Path) -> None:
    async def work() -> None:
        async with Broker(data):
            pass

    asyncio.run(work())


def modes(data: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in [data, *data.rglob("*")]}


def as_somebody(work: Callable[[], object]) -> str:
    """What a process of another user meets: the name of the error, or nothing."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"(it ended)"
        try:
            os.setgroups([])
            os.setgid(SOMEBODY)
            os.setuid(SOMEBODY)
            told = b""
            work()
        except BaseException as error:
            told = type(error).__name__.encode()
        finally:
            os.write(theirs, told)
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours) as pipe:
        return pipe.read()


@pytest.mark.parametrize("name", ["LOCK", "FORMAT", "checkpoint"])
def test_a_planted_link_in_place_of_a_file_is_refused_and_its_target_stays(
    data: Path, foreign: Path, name: str
) -> None:
    used(data)
    (data / name).unlink()
    (data / name).symlink_to(foreign)
    with pytest.raises(LinkInDataFolder, match=f"{name} is a link"):
        started(data)
    assert foreign.read_bytes() == FOREIGN


@pytest.mark.parametrize("name", ["logs", "snapshots", "orphans", "traces", "backup-links"])
def test_a_planted_link_in_place_of_a_folder_is_refused(data: Path, foreign: Path, name: str) -> None:
    data.mkdir()
    (data / name).symlink_to(foreign.parent)
    with pytest.raises(LinkInDataFolder, match=f"{name} is a link"):
        started(data)
    assert [path.name for path in foreign.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("depth", ["topic", "partition", "segment"])
def test_a_link_further_down_is_refused_wherever_it_is(data: Path, foreign: Path, depth: str) -> None:
    used(data)
    [topic] = (data / "logs").glob("t~*")
    place = {"topic": topic, "partition": topic / "0", "segment": topic / "0" / f"{0:020d}.log"}[depth]
    moved = foreign.parent / "moved"
    place.rename(moved)
    place.symlink_to(moved)
    with pytest.raises(LinkInDataFolder):
        started(data)
    with pytest.raises(LinkInDataFolder):
        FolderReader(data).log(FolderReader(data).topic("t"), 0).bounds()


@pytest.mark.parametrize(
    "call",
    [
        lambda files, place: files.open(place / "file"),
        lambda files, place: files.open(place / "new", create=True),
        lambda files, place: files.exists(place / "file"),
        lambda files, place: files.size(place / "file"),
        lambda files, place: files.list_dir(place),
        lambda files, place: files.make_dirs(place / "new"),
        lambda files, place: files.rename(place / "file", place / "new"),
        lambda files, place: files.link(place / "file", place / "new"),
        lambda files, place: files.remove(place / "file"),
        lambda files, place: files.remove_tree(place / "file"),
        lambda files, place: files.sync_dir(place),
        lambda files, place: files.lock(place / "LOCK"),
    ],
    ids=[
        "open",
        "create",
        "exists",
        "size",
        "list_dir",
        "make_dirs",
        "rename",
        "link",
        "remove",
        "remove_tree",
        "sync_dir",
        "lock",
    ],
)
def test_no_call_goes_through_a_folder_that_has_become_a_link(
    data: Path, foreign: Path, call: Callable[[OsFiles, Path], object]
) -> None:
    files = OsFiles(data)
    files.make_dirs(data / "logs" / "t~1")
    files.remove_tree(data / "logs")
    (data / "logs").mkdir()
    (data / "logs" / "t~1").symlink_to(foreign.parent)
    with pytest.raises(LinkInDataFolder):
        call(files, data / "logs" / "t~1")
    assert [path.name for path in foreign.parent.iterdir()] == ["file"]
    assert foreign.read_bytes() == FOREIGN


def test_a_lock_that_has_a_second_name_elsewhere_is_not_written_to(data: Path, foreign: Path) -> None:
    data.mkdir()
    os.link(foreign, data / "LOCK")
    with pytest.raises(LinkInDataFolder, match="second name"):
        started(data)
    assert foreign.read_bytes() == FOREIGN


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(data: Path) -> None:
    data.mkdir()
    os.mkfifo(data / "LOCK")
    with pytest.raises(InvalidConfiguration, match="Not a plain file"):
        started(data)


def test_the_data_folder_itself_may_be_a_link_of_the_operator(data: Path, tmp_path: Path) -> None:
    used(data)
    (tmp_path / "link").symlink_to(data)
    started(tmp_path / "link")


@pytest.mark.usefixtures("umask_zero")
def test_everything_is_made_for_its_owner_alone_whatever_the_umask_is(data: Path) -> None:
    async def work() -> set[int]:
        async with Broker(data) as broker:
            await broker.create_topic("t")
            await broker.publish("t", [NewMessage(b"v")])
            return modes(data)

    assert asyncio.run(work()) == modes(data) == {0o700, 0o600}


def open_to_all(data: Path) -> None:
    """As earlier versions left it."""
    for path in [data, *data.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_folder_that_others_could_read_is_closed_to_them_once_and_it_is_logged(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used(data)
    open_to_all(data)
    with caplog.at_level(logging.INFO):
        started(data)
        assert modes(data) == {0o700, 0o600}
        assert sum("for its owner alone" in record.message for record in caplog.records) == 1
        caplog.clear()
        started(data)
        assert not any("for its owner alone" in record.message for record in caplog.records)


def test_a_folder_with_other_things_in_it_stays_open_and_what_is_ours_is_closed(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used(data)
    (data / "homework").write_text("not ours")
    open_to_all(data)
    started(data)
    assert (data.stat().st_mode & 0o777, (data / "homework").stat().st_mode & 0o777) == (0o755, 0o644)
    assert modes(data / "logs") == {0o700, 0o600}
    assert (data / "LOCK").stat().st_mode & 0o777 == 0o600
    assert any("cannot be closed" in line for line in warnings_in(caplog))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_another_user_can_neither_read_nor_lock_a_data_folder(public: Path) -> None:
    data = public / "data"
    used(data)
    open_to_all(data)
    started(data)
    assert as_somebody(lambda: list(public.iterdir())) == ""
    assert as_somebody(lambda: list(data.iterdir())) == "PermissionError"
    assert as_somebody(lambda: (data / "LOCK").open("rb")) == "PermissionError"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_a_folder_of_somebody_else_is_used_with_a_warning(public: Path) -> None:
    """As a volume that belongs to root and is writable for the broker's group."""
    data = public / "data"
    data.mkdir()
    data.chmod(0o777)
    lines = public / "lines"
    lines.touch()
    lines.chmod(0o666)

    def work() -> None:
        logging.basicConfig(filename=lines, level=logging.WARNING, force=True)
        used(data)

    assert as_somebody(work) == ""
    assert "cannot be closed to them" in lines.read_text()
    assert data.stat().st_mode & 0o777 == 0o777
    assert {path.stat().st_mode & 0o777 for path in data.rglob("*")} == {0o700, 0o600}
