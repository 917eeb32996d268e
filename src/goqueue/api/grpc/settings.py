"""Settings as they come in a request."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.model.errors import InvalidSettings
from goqueue.model.fields import MAX_FIELDS, too_many_fields


def settings_of(given: Mapping[str, str]) -> dict[str, object]:
    """By name: a map has no order on the wire, and problems are to be told in the same order every time."""
    if len(given) > MAX_FIELDS:
        raise InvalidSettings(too_many_fields(len(given)))
    return dict(sorted(given.items()))
