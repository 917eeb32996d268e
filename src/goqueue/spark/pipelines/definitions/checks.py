"""Validation of settings that needs neither Spark nor a broker: names, time ranges, files to write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from goqueue.model.errors import GoQueueError
from goqueue.model.names import check_topic_name
from goqueue.model.units import parse_instant_ns
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.settings import Settings


def name_problems(settings: Settings, name: str, check: Callable[[str], str]) -> Iterator[str]:
    """Invalid names in a setting that holds one name or several."""
    value = settings[name] or ()
    for each in (value,) if isinstance(value, str) else value:
        try:
            check(each)
        except GoQueueError as error:
            yield f"{name}: {error}"


def check_names(settings: Settings, *names: str) -> None:
    """Raise if settings hold invalid topic names. Checked early, since checkpoint folders are named after topics."""
    raise_problems(problem for name in names for problem in name_problems(settings, name, check_topic_name))


def raise_problems(problems: Iterable[str]) -> None:
    """Raise one error that names all problems, if there are any."""
    found = list(problems)
    if found:
        raise InvalidPipeline("; ".join(found))


def time_problems(settings: Settings) -> Iterator[str]:
    """An empty time range between ``since`` and ``until``."""
    since, until = settings["since"], settings["until"]
    if since and until and parse_instant_ns(since) >= parse_instant_ns(until):
        yield f"until: {until} is not after since, {since}: nothing lies between them"


def file_problems(name: str, file: str) -> Iterator[str]:
    """Problems with a file to write; missing folders above it are no problem, since they are created."""
    path = Path(file).absolute()
    if path.is_dir():
        yield f"{name}: {path} is a folder; name a file in it"
        return
    nearest = next(each for each in path.parents if each.exists())
    if not nearest.is_dir():
        yield f"{name}: {path} cannot be written: {nearest} is no folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        yield f"{name}: {path} cannot be written: this user may not write into {nearest}"
