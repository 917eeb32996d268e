"""The rules for names of topics and groups."""

from __future__ import annotations

import re

from goqueue.model.errors import InvalidGroupName, InvalidTopicName, ReservedTopicName

INTERNAL_PREFIX = "__"
MAX_TOPIC_NAME_LENGTH = 200
MAX_GROUP_NAME_LENGTH = 200
_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> str:
    """Return ``name`` if a user may give it to a topic, else raise."""
    if not 1 <= len(name) <= MAX_TOPIC_NAME_LENGTH:
        raise InvalidTopicName(f"topic name has {len(name)} characters; 1 to {MAX_TOPIC_NAME_LENGTH} are allowed")
    if name in {".", ".."} or not _NAME.fullmatch(name):
        raise InvalidTopicName(f"topic name {name!r} is not allowed; use ASCII letters, digits, '.', '_' and '-'")
    if name.startswith(INTERNAL_PREFIX):
        raise ReservedTopicName(f"topic name {name!r} begins with {INTERNAL_PREFIX!r}, which is kept for the broker")
    return name


def check_group_name(name: str) -> str:
    """Return ``name`` if a user may give it to a group, else raise."""
    if not 1 <= len(name) <= MAX_GROUP_NAME_LENGTH or not _NAME.fullmatch(name) or name in {".", ".."}:
        raise InvalidGroupName(
            f"group name {name[:200]!r} is not allowed; use 1 to {MAX_GROUP_NAME_LENGTH} ASCII letters, digits, '.', "
            f"'_' and '-'"
        )
    if name.startswith(INTERNAL_PREFIX):
        raise InvalidGroupName(f"group name {name!r} begins with {INTERNAL_PREFIX!r}, which is kept for the broker")
    return name
