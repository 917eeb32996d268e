"""Creation of a Spark session with the data source ``goqueue`` and GoQueue's default settings."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import java_gateway
from pyspark.sql import SparkSession

from goqueue.model.errors import MissingDependency
from goqueue.spark.source.source import GoQueueSource
from goqueue.spark.startup.spark_master import chosen_master, spark_submit_settings

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LOG4J_CONFIG = Path(__file__).with_name("log4j2.properties")
_LOCAL_SHUFFLE_PARTITIONS = 8
_LOCAL = re.compile(r"^local\[(\*|\d+)\]$")
_LOCAL_TASK_FAILURES = 4
"""Attempts of a task in local mode, as many as on a cluster."""
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # Each Arrow batch has a fixed cost to cross into Python: five times Spark's default.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}

_SESSION_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.execution.arrow.maxRecordsPerBatch")
"""The defaults that can be set per session on a running Spark Connect server."""
_CONNECT = "sc://"


def session(name: str, master: str | None = None, conf: dict[str, str] | None = None) -> SparkSession:
    """This process's Spark session, created if there is none, with the data source ``goqueue`` registered and Spark's
    routine log output turned off.

    Without ``master`` the configured one is used (``spark.master`` in ``conf``, ``spark-submit --master``,
    ``spark-defaults.conf``, ``SPARK_REMOTE``), and else this process (``local[*]``). A master ``sc://host`` is a
    Spark Connect server. ``conf`` and the settings of ``spark-submit`` take precedence over the defaults set here.
    """
    remote = master if master and master.startswith(_CONNECT) else os.environ.get("SPARK_REMOTE")
    if remote is not None and (master is None or master == remote):
        return _connect_session(name, remote, conf or {})
    active = SparkSession.getActiveSession()
    if active is None:
        check_java()
        master = chosen_master(master, conf)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings: dict[str, Any] = dict(_DEFAULTS)
        if master.startswith("local"):
            settings["spark.sql.shuffle.partitions"] = str(_LOCAL_SHUFFLE_PARTITIONS)
            settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        submitted = spark_submit_settings()
        settings = {key: value for key, value in settings.items() if key not in submitted} | (conf or {})
        java = (submitted | settings).get("spark.driver.extraJavaOptions", "")
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j.configurationFile={_LOG4J_CONFIG.as_uri()} {java}".strip()
        # Local mode does not retry tasks by default: one failure, such as a broker restart, would fail the query.
        master = _LOCAL.sub(rf"local[\1,{_LOCAL_TASK_FAILURES}]", master)
        builder = SparkSession.builder.appName(name).master(master)
        builder = builder.config(map=settings | {"spark.master": master})
        with _java_ignoring_sigterm():
            active = builder.getOrCreate()
    register(active)
    return active


def _connect_session(name: str, remote: str, conf: dict[str, str]) -> SparkSession:
    """A session on a Spark Connect server. Its server-side settings and its Java cannot be set from here."""
    settings: dict[str, Any] = {key: _DEFAULTS[key] for key in _SESSION_SETTINGS} | conf
    active = SparkSession.builder.remote(remote).appName(name).config(map=settings).getOrCreate()
    register(active)
    return active


@contextmanager
def _java_ignoring_sigterm() -> Iterator[None]:
    """Make Java processes launched inside this context ignore SIGTERM.

    Stopping a service or a shell job sends SIGTERM to all of its processes, which would end Java in the middle of the
    micro-batch that Python lets finish. Java ends when Python does, because its standard input is closed then. Spark
    itself makes Java ignore Ctrl-C only, and offers no hook between fork and exec, so ``Popen`` is replaced.
    """
    gateway: Any = java_gateway
    plain = gateway.Popen

    def popen(command: list[str], preexec_fn: Callable[[], None], **kwargs: Any) -> Any:
        def before_exec() -> None:
            preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        return plain(command, preexec_fn=before_exec, **kwargs)

    gateway.Popen = popen
    try:
        yield
    finally:
        gateway.Popen = plain


def register(spark: SparkSession) -> None:
    """Register the data source ``format("goqueue")`` with a session. Idempotent."""
    spark.dataSource.register(GoQueueSource)


def check_java() -> None:
    """Raise ``MissingDependency`` with instructions if there is no Java that Spark can use.

    Spark's own error is a stack trace.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(command)
    if found is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is no java on the PATH"
        raise MissingDependency(
            f"Spark needs a JDK, {OLDEST_JAVA} or newer, and {where}; install one (such as the package "
            f"openjdk-{OLDEST_JAVA}-jre-headless) and set JAVA_HOME if it is not on the PATH"
        )
    output = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    version = _VERSION.search(output)
    if version is None or int(version[1]) < OLDEST_JAVA:
        is_what = f"{found} is version {version[1]}" if version else f"{found} -version says {output.strip()[:200]!r}"
        raise MissingDependency(
            f"Spark needs a JDK, {OLDEST_JAVA} or newer; {is_what}. Install a newer one, and set JAVA_HOME to "
            "where it is"
        )
