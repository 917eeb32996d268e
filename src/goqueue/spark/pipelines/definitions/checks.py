"""What can be wrong with settings by themselves, told before anything is started: names, times, files to write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from goqueue.model.errors import GoQueueError
from goqueue.model.ids import check_topic_name
from goqueue.model.units import parse_instant_ns
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline
from goqueue.spark.pipelines.definitions.settings import Settings


def name_problems(settings: Settings, name: str, check: Callable[[str], str]) -> Iterator[str]:
    """Names that nothing can have, in a setting of one name or of several."""
    value = settings[name] or ()
    for each in (value,) if isinstance(value, str) else value:
        try:
            check(each)
        except GoQueueError as error:
            yield f"{name}: {error}"


def check_names(settings: Settings, *names: str) -> None:
    """Refuse settings that name a topic as none can be called; a checkpoint's folder may be named after it."""
    problems = [problem for name in names for problem in name_problems(settings, name, check_topic_name)]
    if problems:
        raise InvalidPipeline("; ".join(problems))


def time_problems(settings: Settings) -> Iterator[str]:
    """Of ``since`` and ``until``: that nothing lies between them."""
    since, until = settings["since"], settings["until"]
    if since and until and parse_instant_ns(since) >= parse_instant_ns(until):
        yield f"until: {until} is not after since, {since}: nothing lies between them"


def file_problems(name: str, file: str) -> Iterator[str]:
    """Of a file to write, in a folder that is made if need be."""
    place = Path(file).absolute()
    if place.is_dir():
        yield f"{name}: {place} is a folder; name a file in it"
        return
    nearest = next(each for each in place.parents if each.exists())
    if not nearest.is_dir():
        yield f"{name}: {place} cannot be written: {nearest} is no folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        yield f"{name}: {place} cannot be written: this user may not write into {nearest}"
