"""Settings that a request may also carry in fields of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goqueue.model.errors import InvalidSettings


def with_fields(settings: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` and those of ``fields`` that are set; none may be given twice."""
    merged = dict(settings)
    for name, value in fields.items():
        if value is None:
            continue
        if name in merged:
            raise InvalidSettings(f"{name}: given twice, in settings and in a field of its own")
        merged[name] = value
    return merged
