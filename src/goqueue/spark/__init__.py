"""Spark integration: topics as DataFrames for reading and writing, and the pipelines built on them.

>>> from goqueue.spark import session
>>> spark = session("my job")
>>> spark.read.format("goqueue").option("topics", "orders").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from goqueue.model.errors import MissingDependency

if TYPE_CHECKING:
    from goqueue.spark.registry.schema_columns import decoded, from_registry, to_registry
    from goqueue.spark.startup.spark_session import register, session

__all__ = ["decoded", "from_registry", "register", "session", "to_registry"]

_HOMES = {
    "decoded": "registry.schema_columns",
    "from_registry": "registry.schema_columns",
    "register": "startup.spark_session",
    "session": "startup.spark_session",
    "to_registry": "registry.schema_columns",
}


def __getattr__(name: str) -> Any:
    """Import exported names on first use: Spark's workers need far less than its driver."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("pyspark", "pyarrow", "pandas"):
            raise MissingDependency(
                f"{package} is not installed; the data pipeline needs it: pip install 'goqueue[spark]'"
            ) from None
        raise
