"""What a checkpoint is for, written down in it, so that a run that asks for something else does not go on from it.

Spark takes a checkpoint as it finds it: with another source it skips messages, with another window it mixes windows of
both lengths, and it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from goqueue.model.errors import CorruptData
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.lake.durable_file import write_whole

FILE = "pipeline.json"
_LONGEST = 200


class Asked(msgspec.Struct, frozen=True):
    """What a run was asked for, without what may be another at each run: how fast, how often, which brokers."""

    pipeline: str
    settings: dict[str, str] = {}
    """As a user would write them."""
    source: dict[str, str] = {}
    sink: dict[str, str] = {}
    steps: list[str] = []
    """These may be mended from one run to the next, unless the query keeps state that they have made."""


def check_claim(checkpoint: Path, asked: Asked, *, is_begun: bool | None = None) -> bool:
    """Whether the checkpoint was meant for this, or for nothing yet; refuse if it was begun for something else.

    Nothing is refused where nothing has begun: unless ``is_begun`` tells, it has when Spark has planned a batch. So
    false means that it was meant for something else and may be taken over.
    """
    before = _read(checkpoint / FILE)
    if before is None or before == asked:
        return True
    differs = list(_differences(before, asked, has_state=_any(checkpoint, "state")))
    if differs and (has_begun(checkpoint) if is_begun is None else is_begun):
        told = "\n  ".join(differs)
        raise InvalidPipeline(
            f"the checkpoint {checkpoint} was begun with something else:\n  {told}\n"
            "to go on with it, ask for the same as before; else name another folder with --checkpoint"
        )
    return not differs


def write_claim(checkpoint: Path, asked: Asked) -> None:
    """Write down that the checkpoint is for this. The folder is made, so do it when nothing is left to be checked."""
    if _read(checkpoint / FILE) != asked:
        write_whole(checkpoint / FILE, msgspec.json.encode(asked))


def has_begun(checkpoint: Path) -> bool:
    """Whether a query has planned a batch, in the checkpoint itself or in a part of it."""
    return _any(checkpoint, "offsets")


def begun_batch(checkpoint: Path) -> int | None:
    """The batch that an earlier run has begun and not finished, or has finished without noting that."""
    begun, done = _newest(checkpoint / "offsets"), _newest(checkpoint / "commits")
    return begun if begun is not None and (done is None or done < begun) else None


def local_folder(place: str) -> Path | None:
    """A place as Spark takes it, as a folder of this machine; None if it is none (``hdfs://…``)."""
    scheme, colon, rest = place.partition(":")
    if not colon or "/" in scheme:
        return Path(place)
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None


def _newest(folder: Path) -> int | None:
    return max((int(each.name) for each in folder.glob("*") if each.name.isdecimal()), default=None)


def _any(checkpoint: Path, folder: str) -> bool:
    return any(True for pattern in (f"{folder}/*", f"*/{folder}/*") for _ in checkpoint.glob(pattern))


def _read(file: Path) -> Asked | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Asked)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{file}, which tells what this checkpoint is for, cannot be read: {error}") from None


def _differences(before: Asked, now: Asked, *, has_state: bool) -> Iterator[str]:
    if before.pipeline != now.pipeline:
        yield _told("pipeline", before.pipeline, now.pipeline)
    # A setting that there was not in an earlier version of the pipeline cannot have been another.
    common = [name for name in before.settings if name in now.settings]
    yield from _unlike({name: before.settings[name] for name in common}, {name: now.settings[name] for name in common})
    yield from _unlike(before.source, now.source, "source.")
    yield from _unlike(before.sink, now.sink, "sink.")
    if has_state:
        yield from _unlike(_numbered(before.steps), _numbered(now.steps), "step ")


def _unlike(before: Mapping[str, str], now: Mapping[str, str], title: str = "") -> Iterator[str]:
    for name in {**before, **now}:
        if before.get(name, "") != now.get(name, ""):
            yield _told(f"{title}{name}", before.get(name, ""), now.get(name, ""))


def _numbered(steps: Sequence[str]) -> dict[str, str]:
    return {str(number): step for number, step in enumerate(steps, 1)}


def _told(what: str, before: str, now: str) -> str:
    return f"{what}: it was {before[:_LONGEST] or 'not set'}, and now is {now[:_LONGEST] or 'not set'}"
