"""A Spark session that knows topics."""

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
from goqueue.spark.startup.java_launch import sheltered_java
from goqueue.spark.startup.spark_master import chosen_master, submitted_settings

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_QUIET = Path(__file__).with_name("log4j2.properties")
_LOCAL_SHUFFLE_PARTITIONS = 8
_LOCAL = re.compile(r"^local\[(\*|\d+)\]$")
_LOCAL_TASK_FAILURES = 4
"""As many as on a cluster."""
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # A batch of Arrow crosses into Python at a cost of its own: five times Spark's default.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}

_SESSION_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.execution.arrow.maxRecordsPerBatch")
"""Those of the defaults that a session of a running server can have for itself."""
_CONNECT = "sc://"


def session(name: str, master: str | None = None, conf: dict[str, str] | None = None) -> SparkSession:
    """The session of this process, made if there is none: with the data source ``goqueue``, and Spark's own chatter
    turned off.

    Without ``master`` it runs where Spark was told to run (``spark.master`` in ``conf``, ``spark-submit --master``,
    ``spark-defaults.conf``, ``SPARK_REMOTE``), and else in this process (``local[*]``). A master ``sc://host`` is a
    server of Spark Connect. ``conf`` and what ``spark-submit`` was given go before what is set here.
    """
    remote = master if master and master.startswith(_CONNECT) else os.environ.get("SPARK_REMOTE")
    if remote is not None and (master is None or master == remote):
        return _connected(name, remote, conf or {})
    active = SparkSession.getActiveSession()
    if active is None:
        check_java()
        master = chosen_master(master, conf)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings = dict(_DEFAULTS)
        if master.startswith("local"):
            settings["spark.sql.shuffle.partitions"] = str(_LOCAL_SHUFFLE_PARTITIONS)
            settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        submitted = submitted_settings()
        settings = {key: value for key, value in settings.items() if key not in submitted} | (conf or {})
        java = (submitted | settings).get("spark.driver.extraJavaOptions", "")
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j.configurationFile={_QUIET.as_uri()} {java}".strip()
        # Else a task that fails once, because the broker was started again, fails the whole query.
        master = _LOCAL.sub(rf"local[\1,{_LOCAL_TASK_FAILURES}]", master)
        builder = SparkSession.builder.appName(name).master(master)
        for key, value in (settings | {"spark.master": master}).items():
            builder = builder.config(key, value)
        with sheltered_java():
            active = builder.getOrCreate()
    register(active)
    return active


def _connected(name: str, remote: str, conf: dict[str, str]) -> SparkSession:
    """A session of a server of Spark Connect, whose own settings and Java are not ours to choose."""
    builder = SparkSession.builder.remote(remote).appName(name)
    for key, value in ({key: _DEFAULTS[key] for key in _SESSION_SETTINGS} | conf).items():
        builder = builder.config(key, value)
    active = builder.getOrCreate()
    register(active)
    return active


def register(spark: SparkSession) -> None:
    """Make ``format("goqueue")`` known to a session. Doing it twice does no harm."""
    spark.dataSource.register(GoQueueSource)


def check_java() -> None:
    """Raises what to do if there is no Java that Spark can use: its own error is a stack trace."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(command)
    if found is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is no java on the PATH"
        raise MissingDependency(
            f"Spark needs a JDK, {OLDEST_JAVA} or newer, and {where}; install one (such as the package "
            f"openjdk-{OLDEST_JAVA}-jre-headless) and set JAVA_HOME if it is not on the PATH"
        )
    told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    version = _VERSION.search(told)
    if version is None or int(version[1]) < OLDEST_JAVA:
        is_what = f"{found} is version {version[1]}" if version else f"{found} -version says {told.strip()[:200]!r}"
        raise MissingDependency(
            f"Spark needs a JDK, {OLDEST_JAVA} or newer; {is_what}. Install a newer one, and set JAVA_HOME to "
            "where it is"
        )
