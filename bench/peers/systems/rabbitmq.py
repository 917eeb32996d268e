"""How a RabbitMQ server of our own is started; both ways to use it share this."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.system import Missing, Server, free_port, listens, program, running

_PROGRAMS = "/usr/lib/rabbitmq/bin"
"""Where the package keeps the server itself. What it puts on the path changes user and folders first."""
_REMEDY = "install the package rabbitmq-server (Debian and Ubuntu: apt install rabbitmq-server)"
DEAD_LETTER_PREFETCH = 1_000
"""How many expired messages may be on their way to another queue at a time; 32 by default, each awaiting an fsync."""
_BANNER = re.compile(r"Starting RabbitMQ (\S+) on Erlang (\S+)")
_READY = "Starting broker... completed"


def prepare(*packages: str) -> None:
    """Raise ``Missing`` unless the server, Erlang's port mapper and these Python packages are here."""
    _server_program()
    program("epmd", _REMEDY)
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise Missing(f"there is no Python package {package} here: pip install {package}")


def _server_program() -> str:
    found = shutil.which("rabbitmq-server", path=_PROGRAMS)
    if found is None:
        raise Missing(f"there is no rabbitmq-server in {_PROGRAMS} here: {_REMEDY}")
    return found


@contextmanager
def rabbitmq(folder: Path, *, streams: bool = False) -> Iterator[Server]:
    """A server as it comes. Its address is its port for AMQP or, with ``streams``, for the protocol of streams."""
    port, stream_port, mapper_port = free_port(), free_port(), free_port()
    environment = _environment(folder, port, mapper_port)
    _write_configuration(folder, stream_port if streams else None)
    log_path = folder / "server.log"

    def answers() -> bool:
        return _READY in log_path.read_text(errors="replace") and listens(port)

    with (
        _port_mapper(folder, mapper_port),
        running([_server_program()], folder, answers, environment=environment) as process,
    ):
        address = str(stream_port if streams else port)
        yield Server(process, address, _version(folder))


@contextmanager
def _port_mapper(folder: Path, port: int) -> Iterator[None]:
    """Erlang's port mapper as a child of ours: one that Erlang starts itself would outlive the server."""
    inside = folder / "port-mapper"
    inside.mkdir()
    command = [program("epmd", _REMEDY), "-port", str(port), "-address", "127.0.0.1"]
    with running(command, inside, lambda: listens(port)):
        yield


def _environment(folder: Path, port: int, mapper_port: int) -> dict[str, str]:
    return {
        # Erlang keeps the secret that its nodes share in here.
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_SCHEMA_DIR": str(folder / "schema"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "config"),
        "RABBITMQ_PID_FILE": str(folder / "server.pid"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
    }


def _write_configuration(folder: Path, stream_port: int | None) -> None:
    """Nothing that lies elsewhere on this machine may have a say."""
    lines = (
        []
        if stream_port is None
        else [
            f"stream.listeners.tcp.1 = 127.0.0.1:{stream_port}",
            "stream.advertised_host = 127.0.0.1",
            f"stream.advertised_port = {stream_port}",
        ]
    )
    (folder / "rabbitmq.conf").write_text("".join(f"{line}\n" for line in lines))
    (folder / "rabbitmq-env.conf").write_text("")
    prefetch = f"{{dead_letter_worker_consumer_prefetch, {DEAD_LETTER_PREFETCH}}}"
    (folder / "advanced.config").write_text(f"[{{rabbit, [{prefetch}]}}].\n")
    (folder / "enabled_plugins").write_text("[].\n" if stream_port is None else "[rabbitmq_stream].\n")


def _version(folder: Path) -> str:
    for log in sorted((folder / "logs").glob("*.log")):
        if found := _BANNER.search(log.read_text(errors="replace")):
            return f"{found[1]} (Erlang {found[2]})"
    return "unknown"
