"""Error for an address that speaks HTTP instead of gRPC: in most cases the HTTP port of the same broker."""

from __future__ import annotations

import asyncio

import msgspec

from goqueue.model.errors import WrongPort

SPEAKS_HTTP = "http1.x server"
"""In gRPC's error text for a peer whose first bytes are an HTTP/1 response."""
_TIMEOUT_S = 2.0
_MAX_RESPONSE_BYTES = 16 << 10


class _Version(msgspec.Struct):
    grpc_port: int = 0


async def with_right_port(address: str) -> WrongPort:
    """The error; it names the gRPC port if a GoQueue broker answers ``GET /version`` there."""
    host = address.rpartition(":")[0]
    port = await _query_grpc_port(address)
    right = f"{host}:{port}" if port else f"{host} with the broker's port for gRPC (9090 unless it is configured)"
    return WrongPort(f"{address} speaks HTTP, and clients talk gRPC, which has another port; use {right}")


async def _query_grpc_port(address: str) -> int:
    """The broker's gRPC port; 0 if there is no such answer."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=_MAX_RESPONSE_BYTES)
            try:
                writer.write(f"GET /version HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                answer = await reader.readexactly(_MAX_RESPONSE_BYTES)
            except asyncio.IncompleteReadError as error:
                answer = error.partial
            finally:
                writer.close()
        found = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=_Version).grpc_port
    except (OSError, ValueError, msgspec.MsgspecError):
        return 0
    return found if 0 < found < 1 << 16 else 0
