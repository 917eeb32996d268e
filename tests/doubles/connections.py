"""Changes to the connections of clients, whatever protocol they speak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goqueue.client.connection.grpc_connection import GrpcConnection
from goqueue.client.connection.native_connection import NativeConnection

KINDS = (GrpcConnection, NativeConnection)


def wrap(patch: pytest.MonkeyPatch, method: str, make: Callable[[Any], Any]) -> None:
    """Replace a method of every kind of connection by what ``make`` makes of it."""
    for kind in KINDS:
        patch.setattr(kind, method, make(getattr(kind, method)))


def name_of(called: Any) -> str:
    """The name of a call, such as ``CreateTopic``, from what is passed to ``Connection.call``."""
    name = called.name if hasattr(called, "name") else called._method.decode()
    return str(name).replace(".", "/").rpartition("/")[2]
