"""The address of a client leads to a port that speaks HTTP: its broker's other port, most of the time."""

from __future__ import annotations

import asyncio

import msgspec

from goqueue.model.errors import WrongPort

SPEAKS_HTTP = "http1.x server"
"""In what gRPC says of a peer whose first bytes are those of an answer in HTTP/1."""
_WITHIN_S = 2.0
_MOST_BYTES = 16 << 10


class _Version(msgspec.Struct):
    grpc_port: int = 0


async def with_right_port(address: str) -> WrongPort:
    """The error, which names the right port if it is a broker's and tells it."""
    host = address.rpartition(":")[0]
    port = await _grpc_port_told_at(address)
    right = f"{host}:{port}" if port else f"{host} with the broker's port for gRPC (9090 unless it is configured)"
    return WrongPort(f"{address} speaks HTTP, and clients talk gRPC, which has another port; use {right}")


async def _grpc_port_told_at(address: str) -> int:
    """0 if nothing of the kind is told."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_WITHIN_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=_MOST_BYTES)
            try:
                writer.write(f"GET /version HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                answer = await reader.readexactly(_MOST_BYTES)
            except asyncio.IncompleteReadError as error:
                answer = error.partial
            finally:
                writer.close()
        found = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=_Version).grpc_port
    except (OSError, ValueError, msgspec.MsgspecError):
        return 0
    return found if 0 < found < 1 << 16 else 0
