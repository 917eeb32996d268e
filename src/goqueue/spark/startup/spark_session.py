"""Creation of a Spark session with the data source ``goqueue`` and GoQueue's default settings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from goqueue.model.errors import MissingDependency
from goqueue.spark.source.source import GoQueueSource
from goqueue.spark.startup.java_launch import java_ignoring_sigterm
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
        settings = dict(_DEFAULTS)
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
        for key, value in (settings | {"spark.master": master}).items():
            builder = builder.config(key, value)
        with java_ignoring_sigterm():
            active = builder.getOrCreate()
    register(active)
    return active


def _connect_session(name: str, remote: str, conf: dict[str, str]) -> SparkSession:
    """A session on a Spark Connect server. Its server-side settings and its Java cannot be set from here."""
    builder = SparkSession.builder.remote(remote).appName(name)
    for key, value in ({key: _DEFAULTS[key] for key in _SESSION_SETTINGS} | conf).items():
        builder = builder.config(key, value)
    active = builder.getOrCreate()
    register(active)
    return active


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
