"""The identity of a checkpoint: the job it belongs to, stored in it, so that a different job cannot continue from it.

Spark itself uses any checkpoint without a check: with another source it silently skips messages, with another window
it mixes windows of both lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from goqueue.model.errors import CorruptData
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.lake.durable_file import write_whole

FILE = "pipeline.json"
_MAX_SHOWN_CHARS = 200


class CheckpointIdentity(msgspec.Struct, frozen=True):
    """The job of a run, without what may differ from run to run, such as rate, trigger and brokers."""

    pipeline: str
    settings: dict[str, str] = {}
    """Values as a user would write them."""
    source: dict[str, str] = {}
    sink: dict[str, str] = {}
    steps: list[str] = []
    """Steps may change between runs, unless the query has state that they produced."""


def check_identity(checkpoint: Path, asked: CheckpointIdentity, *, is_begun: bool | None = None) -> bool:
    """True if the checkpoint belongs to this job or to none yet; raises if another job has started on it.

    False means that it was written for another job that has not started, so it may be taken over. A job has started
    when Spark has planned a batch, unless ``is_begun`` is given.
    """
    before = _read(checkpoint / FILE)
    if before is None or before == asked:
        return True
    differs = list(_differences(before, asked, has_state=_has_files(checkpoint, "state")))
    if differs and (has_begun(checkpoint) if is_begun is None else is_begun):
        text = "\n  ".join(differs)
        raise InvalidPipeline(
            f"the checkpoint {checkpoint} was begun with something else:\n  {text}\n"
            "to go on with it, ask for the same as before; else name another folder with --checkpoint"
        )
    return not differs


def write_identity(checkpoint: Path, asked: CheckpointIdentity) -> None:
    """Store the identity in the checkpoint. This creates the folder, so call it after all checks."""
    if _read(checkpoint / FILE) != asked:
        write_whole(checkpoint / FILE, msgspec.json.encode(asked))


def has_begun(checkpoint: Path) -> bool:
    """Whether a query has planned a batch, in the checkpoint itself or in a subfolder of it."""
    return _has_files(checkpoint, "offsets")


def unfinished_batch(checkpoint: Path) -> int | None:
    """The micro-batch that an earlier run planned but did not record as committed; it may be written already."""
    planned, done = _newest_batch(checkpoint / "offsets"), _newest_batch(checkpoint / "commits")
    return planned if planned is not None and (done is None or done < planned) else None


def local_folder(path: str) -> Path | None:
    """A path as Spark accepts it, as a folder of this machine; None if it is on another system (``hdfs://…``)."""
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme:
        return Path(path)
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None


def _newest_batch(folder: Path) -> int | None:
    return max((int(each.name) for each in folder.glob("*") if each.name.isdecimal()), default=None)


def _has_files(checkpoint: Path, folder: str) -> bool:
    return any(True for pattern in (f"{folder}/*", f"*/{folder}/*") for _ in checkpoint.glob(pattern))


def _read(file: Path) -> CheckpointIdentity | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=CheckpointIdentity)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{file}, which tells what this checkpoint is for, cannot be read: {error}") from None


def _differences(before: CheckpointIdentity, now: CheckpointIdentity, *, has_state: bool) -> Iterator[str]:
    if before.pipeline != now.pipeline:
        yield _difference("pipeline", before.pipeline, now.pipeline)
    # A setting that an earlier version of the pipeline did not have cannot differ.
    common = [name for name in before.settings if name in now.settings]
    yield from _differing(
        {name: before.settings[name] for name in common}, {name: now.settings[name] for name in common}
    )
    yield from _differing(before.source, now.source, "source.")
    yield from _differing(before.sink, now.sink, "sink.")
    if has_state:
        yield from _differing(_numbered(before.steps), _numbered(now.steps), "step ")


def _differing(before: Mapping[str, str], now: Mapping[str, str], title: str = "") -> Iterator[str]:
    for name in {**before, **now}:
        if before.get(name, "") != now.get(name, ""):
            yield _difference(f"{title}{name}", before.get(name, ""), now.get(name, ""))


def _numbered(steps: Sequence[str]) -> dict[str, str]:
    return {str(number): step for number, step in enumerate(steps, 1)}


def _difference(what: str, before: str, now: str) -> str:
    return f"{what}: it was {before[:_MAX_SHOWN_CHARS] or 'not set'}, and now is {now[:_MAX_SHOWN_CHARS] or 'not set'}"
