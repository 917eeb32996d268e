"""The ``Allow`` header of a path: which methods it takes, ``HEAD`` and ``OPTIONS`` included."""

from __future__ import annotations

import re

_WITH_EFFECTS = re.compile(r"(/v1)?(/groups/[^/]+/poll|/admin/backup)/?")
"""A GET that hands out messages or begins a backup."""


def has_effects(path: str) -> bool:
    """Whether a GET of this path does more than to answer: then it is not to be asked for its headers alone."""
    return _WITH_EFFECTS.fullmatch(path) is not None


def allowed(methods: str, path: str) -> str:
    """The framework's list of a path's methods, and ``HEAD``."""
    names = {name.strip() for name in methods.split(",")} | {"OPTIONS"}
    if "GET" in names and not has_effects(path):
        names.add("HEAD")
    return ", ".join(sorted(names))
