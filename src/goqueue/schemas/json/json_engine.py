"""Set-up of the library that validates JSON: no network, no disk, and no regular expression that takes too long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from goqueue.schemas.json.json_nodes import DRAFT_URIS, Draft

_CLASSES: Mapping[Draft, type[jsonschema_rs.Validator]] = {
    4: jsonschema_rs.Draft4Validator,
    6: jsonschema_rs.Draft6Validator,
    7: jsonschema_rs.Draft7Validator,
    2019: jsonschema_rs.Draft201909Validator,
    2020: jsonschema_rs.Draft202012Validator,
}
_BACKTRACK_LIMIT = 1_000
_PATTERN_BYTES = 1 << 19
"""Limit on the compiled size of one regular expression."""
_OPTIONS: Mapping[str, Any] = {
    "offline": True,
    "validate_formats": False,
    "pattern_options": jsonschema_rs.FancyRegexOptions(
        backtrack_limit=_BACKTRACK_LIMIT, size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES
    ),
    "mask": "the value",
}


def with_draft(raw: dict[str, Any] | bool, draft: Draft) -> dict[str, Any] | bool:
    """The schema with its draft named in ``$schema``."""
    return raw if isinstance(raw, bool) else {**raw, "$schema": DRAFT_URIS[draft]}


def compile_schema(
    raw: dict[str, Any] | bool, draft: Draft, resources: Mapping[str, dict[str, Any] | bool]
) -> jsonschema_rs.Validator:
    """Compile a schema, which may refer to ``resources`` by their addresses. Raises the library's own errors."""
    registry = jsonschema_rs.Registry(resources.items(), retriever=_refuse) if resources else None
    return _CLASSES[draft](with_draft(raw, draft), registry=registry, **_OPTIONS)


def compile_alone(raw: dict[str, Any], draft: Draft) -> jsonschema_rs.Validator:
    """Compile a few keywords without references."""
    return _CLASSES[draft](raw, **_OPTIONS)


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not among the references")
