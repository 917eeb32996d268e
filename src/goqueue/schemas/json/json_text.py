"""Canonical text of JSON values: equal values have equal texts."""

from __future__ import annotations

import json

_EXACT = 1 << 53
"""Up to this limit, a float without a fraction is exactly that integer."""


def same_text(value: object) -> str:
    """Canonical text of a value: keys sorted, ``1.0`` written as ``1``."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def plain(value: object) -> object:
    """The value with every float without a fraction as an integer."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def pointer(path: str, *steps: str | int) -> str:
    """A JSON pointer extended by some steps."""
    return "/".join([path, *(str(each).replace("~", "~0").replace("/", "~1") for each in steps)])
