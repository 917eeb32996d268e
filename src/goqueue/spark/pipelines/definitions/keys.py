"""Keys and lists of a pipeline's file, and what to say of those that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from goqueue.model.fields import did_you_mean, shown
from goqueue.spark.source.kafka_options import equivalent_of

T = TypeVar("T")


def parsed_list(
    raw: object,
    name: str,
    example: str,
    complaints: Callable[[object], Iterable[str]],
    made: Callable[[Any], T],
    problems: list[str],
) -> list[T]:
    """What is made of each part of a list that has nothing to be complained of; the rest is told in ``problems``."""
    if raw is None:
        return []
    if not isinstance(raw, list | tuple):
        problems.append(f"{name}: {shown(raw)} is not a list; write '- {example}' below it")
        return []
    good = []
    for number, each in enumerate(raw):
        found = list(complaints(each))
        problems += [f"{name}[{number}]: {problem}" for problem in found]
        if not found:
            good.append(made(each))
    return good


_BESIDE_SOURCE = {
    "kafka.bootstrap.servers": "say it by --brokers or GOQUEUE_BROKERS",
    "bootstrap.servers": "say it by --brokers or GOQUEUE_BROKERS",
    "checkpointlocation": "write checkpoint beside source",
}


def unknown_key(key: object, known: Iterable[str]) -> str:
    """``"topc: no such key; did you mean 'topic'?"``. What Kafka's source calls it is told as it is called here."""
    names = list(known)
    name = str(key)
    label = name if name.isprintable() and 0 < len(name) <= 80 else shown(key)
    guess = _called_here(name, names) or did_you_mean(name, names) or f"; there are {', '.join(names)}"
    return f"{label}: no such key{guess}"


def _called_here(name: str, names: list[str]) -> str:
    if "topics" not in names:
        return ""
    here = _BESIDE_SOURCE.get(name.lower()) or equivalent_of(name, "source")
    return f"; {here}" if here else ""
