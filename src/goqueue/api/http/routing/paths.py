"""Paths in which a name may have a ``/``, which clients send as ``%2F``."""

from __future__ import annotations

from urllib.parse import unquote


def has_encoded_slash(raw_path: bytes) -> bool:
    return b"%2f" in raw_path.lower() or b"%25" in raw_path


def decoded_parts(raw_path: bytes) -> list[str]:
    """The parts of a path, each decoded on its own."""
    path = raw_path.decode("ascii", "replace").partition("?")[0]
    return [unquote(part, errors="replace") for part in path.split("/")]
