"""The typed keywords of the client beside the declarations that parse them."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

import pytest

import goqueue
from goqueue import ClientConfig, ConsumerConfig, ProducerConfig
from goqueue.client.keywords import (
    ClientOptions,
    ConsumerOptions,
    GroupOptions,
    GroupTuning,
    Milliseconds,
    ProducerOptions,
    Size,
    TopicOptions,
    TopicTuning,
    WorkerOptions,
)
from goqueue.model.fields import FieldSpec, specs
from goqueue.model.group_settings import GroupSettings
from goqueue.model.topic_settings import TopicSettings

_OF_UNIT: dict[str, Any] = {
    "ms": Milliseconds,
    "bytes": Size,
    "count": int,
    "ratio": float,
    "text": str,
    "topic": str,
    "flag": bool,
}


def _types(spec: FieldSpec, found: Any) -> None:
    """Check that a keyword takes what its declaration does."""
    taken = set(get_args(found)) or {found}
    assert (type(None) in taken) == (spec.unlimited or spec.inherits)
    if spec.unit == "choice":
        named = {each for part in taken - {type(None)} for each in (get_args(part) or [part])}
        assert named == set(spec.choices)
    else:
        wanted = _OF_UNIT[spec.unit]
        assert taken - {type(None)} == (set(get_args(wanted)) or {wanted})


@pytest.mark.parametrize(
    ("keywords", "declared"),
    [
        (ClientOptions, [ClientConfig]),
        (ProducerOptions, [ProducerConfig]),
        (GroupOptions, [GroupSettings]),
        (TopicOptions, [TopicSettings]),
    ],
)
def test_every_declared_setting_is_a_keyword_of_its_type_and_none_is_left(keywords: type, declared: list[type]) -> None:
    known = {name: spec for kind in declared for name, spec in specs(kind).items()}
    found = get_type_hints(keywords)
    assert found.keys() == known.keys()
    for name, spec in known.items():
        _types(spec, found[name])


def test_a_consumer_takes_its_own_options_and_the_settings_of_its_group() -> None:
    chosen = {"kind", "mode", "ordering", "start"}
    found = get_type_hints(ConsumerOptions)
    assert found.keys() == (specs(ConsumerConfig).keys() | specs(GroupSettings).keys()) - chosen
    for name, spec in specs(ConsumerConfig).items():
        _types(spec, found[name])
    assert get_type_hints(GroupTuning).items() <= found.items()


def test_what_is_fixed_once_a_topic_exists_is_no_keyword_of_a_change() -> None:
    changeable = {name for name, spec in specs(TopicSettings).items() if not spec.fixed}
    assert get_type_hints(TopicTuning).keys() == changeable


@pytest.mark.parametrize("face", ["AsyncClient", "Client"])
def test_a_worker_takes_every_keyword_of_a_consumer(face: str) -> None:
    consumer = getattr(goqueue, face).consumer
    own = inspect.signature(consumer).parameters.keys() - {"self", "group", "topics", "options"}
    for unpacked in get_args(get_type_hints(consumer)["options"]):
        own |= get_type_hints(unpacked).keys()
    assert get_type_hints(WorkerOptions).keys() == own | get_type_hints(ConsumerOptions).keys()
