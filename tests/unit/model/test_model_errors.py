"""The tree of errors is the table of errors."""

from __future__ import annotations

import pickle
import re

import pytest

from goqueue.model import errors
from goqueue.model.errors import GoQueueError, InternalError, Overloaded, error_table

CLASSES: list[type[GoQueueError]] = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, GoQueueError) and kind is not GoQueueError
]
WITH_ROOT: list[type[GoQueueError]] = [GoQueueError, *CLASSES]
GRPC_STATUSES = {
    "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
    "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN",
}  # fmt: skip


def test_every_code_is_used_once() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)


def test_the_table_has_every_class_sorted_by_code() -> None:
    table = [kind for kind in error_table() if kind.__module__ == errors.__name__]
    assert set(table) == set(CLASSES)
    assert [kind.code for kind in table] == sorted(kind.code for kind in CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_is_a_complete_row_of_the_reference(kind: type[GoQueueError]) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code)
    assert kind.__doc__ is not None
    assert kind.__doc__.endswith(".")
    assert kind.remedy.endswith(".")
    assert "remedy" in vars(kind) or kind is InternalError
    assert 400 <= kind.http_status <= 599
    assert kind.grpc_status in GRPC_STATUSES


@pytest.mark.parametrize("kind", WITH_ROOT, ids=lambda kind: kind.__name__)
def test_the_drawn_tree_names_every_class(kind: type[GoQueueError]) -> None:
    assert re.search(rf"\b{kind.__name__}\b", errors.__doc__ or "")


def test_the_drawn_tree_names_nothing_else() -> None:
    tree = re.search(r"::\n\n(.*?)\n\n", errors.__doc__ or "", re.DOTALL)
    assert tree is not None
    drawn = set(re.findall(r"\b[A-Z]\w+", tree[1]))
    assert drawn == {kind.__name__ for kind in WITH_ROOT}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_only_what_may_go_well_the_next_time_is_retriable(kind: type[GoQueueError]) -> None:
    assert not kind.retriable or kind.http_status >= 500 or kind.http_status in {408, 429}


def test_an_error_says_its_message_and_when_to_try_again() -> None:
    error = Overloaded("too many", retry_after_s=1.5)
    assert str(error) == "too many"
    assert error.retry_after_s == 1.5


def test_an_error_survives_being_sent_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(Overloaded("too many", retry_after_s=1.5)))
    assert isinstance(error, Overloaded)
    assert (str(error), error.retry_after_s) == ("too many", 1.5)
