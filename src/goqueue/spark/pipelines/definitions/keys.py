"""Parsing of lists and checking of keys in pipeline files, with error messages for wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from goqueue.model.fields import did_you_mean, shown
from goqueue.spark.source.kafka_options import equivalent_of

T = TypeVar("T")


def parse_list(
    raw: object,
    name: str,
    example: str,
    problems_of: Callable[[object], Iterable[str]],
    build: Callable[[Any], T],
    problems: list[str],
) -> list[T]:
    """Build an object from each valid item of a list; the problems of the other items are added to ``problems``."""
    if raw is None:
        return []
    if not isinstance(raw, list | tuple):
        problems.append(f"{name}: {shown(raw)} is not a list; write '- {example}' below it")
        return []
    valid = []
    for number, each in enumerate(raw):
        found = list(problems_of(each))
        problems += [f"{name}[{number}]: {problem}" for problem in found]
        if not found:
            valid.append(build(each))
    return valid


_BESIDE_SOURCE = {
    "kafka.bootstrap.servers": "say it by --brokers or GOQUEUE_BROKERS",
    "bootstrap.servers": "say it by --brokers or GOQUEUE_BROKERS",
    "checkpointlocation": "write checkpoint beside source",
}


def unknown_key(key: object, known: Iterable[str]) -> str:
    """``"topc: no such key; did you mean 'topic'?"``. An option of Kafka's source is answered with its equivalent."""
    names = list(known)
    name = str(key)
    label = name if name.isprintable() and 0 < len(name) <= 80 else shown(key)
    guess = _equivalent_key(name, names) or did_you_mean(name, names) or f"; there are {', '.join(names)}"
    return f"{label}: no such key{guess}"


def _equivalent_key(name: str, names: list[str]) -> str:
    if "topics" not in names:
        return ""
    here = _BESIDE_SOURCE.get(name.lower()) or equivalent_of(name, "source")
    return f"; {here}" if here else ""
