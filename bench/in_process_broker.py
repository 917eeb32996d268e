"""A broker without a network, in the bench's own process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from goqueue.broker.broker import Broker
from goqueue.model.config import Config

TOPIC = "bench"


def broker_over(folder: Path, **storage: Any) -> Broker:
    """A broker with the defaults, but for its folder and what ``storage`` says."""
    config = Config()
    return Broker(dataclasses.replace(config, storage=dataclasses.replace(config.storage, path=str(folder), **storage)))
