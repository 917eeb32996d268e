"""A broker and its servers, from start to stop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import closing
from typing import cast

import uvicorn
import uvloop

from goqueue.api.grpc.server import GrpcServer
from goqueue.api.http.app import create_app
from goqueue.api.http.server.connection import Connection, sweep
from goqueue.api.http.server.connection_limits import ConnectionLimits
from goqueue.api.listening import listening_socket
from goqueue.api.native.server import NativeServer
from goqueue.broker.broker import Broker
from goqueue.broker.operations import CallerProtocol
from goqueue.model.config import Config, HttpConfig
from goqueue.model.logging import get_logger

log = get_logger(__name__)

_SWEEP_EVERY_S = 0.5
_BACKLOG = 1_024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BUFFER_BYTES = 8 << 20
_KEPT_BYTES = 32 << 20


def serve(config: Config) -> int:
    """Run until SIGTERM or SIGINT; return the process's exit status."""
    _raise_file_limit()
    _keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config))
    return 0


async def _serve(config: Config) -> None:
    broker = Broker(config)
    grpc = GrpcServer(broker.operations, config.grpc)
    native = NativeServer(broker.operations, config.native)
    with closing(bind(config.http)) as listener:
        if config.grpc.enabled:
            grpc.bind()
        if config.native.enabled:
            native.bind()
        async with broker:
            await _serve_broker(broker, grpc, native, listener)
        log.info("stopped", data=config.storage.path)


async def _serve_broker(broker: Broker, grpc: GrpcServer, native: NativeServer, listener: socket.socket) -> None:
    config = broker.config
    server = HttpServer(broker, config.http, on_stop=grpc.leave, grpc_port=grpc.port)
    if config.grpc.enabled:
        await grpc.start()
    if config.native.enabled:
        await native.start()
    # What is there now stays; collecting it again and again would cost pauses for nothing.
    gc.collect()
    gc.freeze()
    server.take_signals()
    host, port = listener.getsockname()[:2]
    ports = {"port": port, "grpc_port": grpc.port} | ({"native_port": native.port} if native.port else {})
    log.info("listening", host=host, **ports, data=config.storage.path)
    try:
        await server.serve(sockets=[listener])
    finally:
        grace_s = config.http.shutdown_timeout_ms / 1_000
        await asyncio.gather(grpc.stop(grace_s), native.stop(grace_s))


def bind(config: HttpConfig) -> socket.socket:
    """Take the port first: if it is in use, say so before anything is recovered."""
    return listening_socket(config.host, config.port, "HTTP", "--port", _BACKLOG)


class HttpServer(uvicorn.Server):
    """uvicorn with our deadlines, stopping in our order."""

    def __init__(
        self, broker: Broker, config: HttpConfig, on_stop: Callable[[], None] = lambda: None, grpc_port: int = 0
    ) -> None:
        self.crowd = ConnectionLimits(config)
        bound = {"limits": config, "requests": broker.operations.requests(CallerProtocol.HTTP), "crowd": self.crowd}
        protocol = type("BoundConnection", (Connection,), bound)
        super().__init__(
            uvicorn.Config(
                # uvicorn's types for ASGI and Litestar's describe the same thing.
                cast("uvicorn._types.ASGI3Application", create_app(broker.operations, config, grpc_port, self.crowd)),
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=max(1, config.keep_alive_ms // 1_000),
                timeout_graceful_shutdown=max(1, config.shutdown_timeout_ms // 1_000),
            )
        )
        self._broker = broker
        self._on_stop = on_stop
        broker.operations.count_connections(CallerProtocol.HTTP, lambda: len(self.server_state.connections))

    def take_signals(self) -> None:
        """Before anyone is told that the server listens: whoever is told may send one at once.

        Signals are ours: uvicorn would raise them again and cut the broker's own stop short.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, signal.Signals(number))

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Until told to stop."""
        sweeping = asyncio.create_task(self._sweep())
        try:
            await self._serve(sockets)
        finally:
            sweeping.cancel()

    def _stop(self, number: signal.Signals) -> None:
        """First take nothing new, so that those who wait are answered; then close connections. Twice: at once."""
        log.info("told to stop, finishing what was accepted", signal=number.name)
        self._on_stop()
        self._broker.stop_accepting()
        self.force_exit = self.should_exit
        self.should_exit = True

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            sweep(self.server_state.connections, asyncio.get_running_loop().time())


def _keep_freed_memory() -> None:
    """Let batches be written to memory that was used before.

    glibc gives a buffer of this size back to the system as soon as it is free, and the next one costs hundreds of page
    faults: two fifths of the work of a queue whose messages have a kilobyte. Elsewhere nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BUFFER_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _raise_file_limit() -> None:
    """As many file descriptors as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
