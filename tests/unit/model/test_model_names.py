"""The rules a topic's name obeys."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import InvalidRequest, InvalidTopicName, ReservedTopicName
from goqueue.model.names import MAX_TOPIC_NAME_LENGTH, check_topic_name


@pytest.mark.parametrize("name", ["a", "orders.v1", "A-b_c.9", "_one", "...", "x" * MAX_TOPIC_NAME_LENGTH])
def test_a_good_name_is_returned_as_it_is(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * (MAX_TOPIC_NAME_LENGTH + 1)])
def test_a_name_that_is_too_short_or_too_long_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName, match="1 to 200 are allowed"):
        check_topic_name(name)


@pytest.mark.parametrize("name", [".", "..", "a/b", "a b", "é", "a\n", "a\0", "٣", "../etc"])
def test_a_name_with_a_character_that_is_not_allowed_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName, match="use ASCII letters"):
        check_topic_name(name)


def test_a_name_that_begins_with_two_underscores_is_kept_for_the_broker() -> None:
    with pytest.raises(ReservedTopicName):
        check_topic_name("__groups")


@given(st.text(max_size=MAX_TOPIC_NAME_LENGTH + 5))
def test_an_accepted_name_is_safe_in_a_path_and_a_log_line(name: str) -> None:
    try:
        accepted = check_topic_name(name)
    except InvalidRequest as error:
        assert str(error).isprintable()
    else:
        assert set(accepted) <= set(string.ascii_letters + string.digits + "._-")
        assert accepted not in {".", ".."}
