"""Paths and their parts. A name in a path may have a ``/``, which clients send as ``%2F``."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

_VERSION = "v1"


def routed(parts: Iterable[str]) -> list[str]:
    """The parts of a path as routes are declared: without the version, and without empty ones."""
    kept = [part for part in parts if part]
    return kept[1:] if kept and kept[0] == _VERSION else kept


def unversioned(path: str) -> str:
    return path.removeprefix("/v1") or "/" if f"{path}/".startswith("/v1/") else path


def has_encoded_slash(raw_path: bytes) -> bool:
    return b"%2f" in raw_path.lower() or b"%25" in raw_path


def decoded_parts(raw_path: bytes) -> list[str]:
    """The parts of a path, each decoded on its own."""
    path = raw_path.decode("ascii", "replace").partition("?")[0]
    return [unquote(part) for part in path.split("/")]
