"""What Spark was told outside of this program, above all which master to use.

Spark gives what a program sets precedence over the arguments of ``spark-submit``. A program that sets a default master
would therefore run locally although it was submitted to a cluster, unless it reads those arguments first.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from goqueue.model.errors import InvalidRequest

LOCAL_MASTER = "local[*]"
"""Where Spark runs if nothing says otherwise."""
_KEY = "spark.master"


def submitted_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What ``spark-submit`` was given, if it has started this program; nothing if it has not."""
    if "PYSPARK_GATEWAY_PORT" not in environment:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def chosen_master(
    master: str | None, conf: Mapping[str, str] | None = None, environment: Mapping[str, str] = os.environ
) -> str:
    """Where to run: what the program says, else what Spark was told elsewhere, else all cores of this machine."""
    in_conf = (conf or {}).get(_KEY)
    if master and in_conf and in_conf != master:
        raise InvalidRequest(f"the master is {master!r}, and {_KEY} is {in_conf!r}; leave one of them out")
    return master or in_conf or configured_master(environment) or LOCAL_MASTER


def configured_master(environment: Mapping[str, str] = os.environ) -> str | None:
    """By Spark's own order: what ``spark-submit`` was given, ``spark-defaults.conf``, the variable ``MASTER``."""
    return (
        submitted_settings(environment).get(_KEY)
        or _in_arguments(environment.get("PYSPARK_SUBMIT_ARGS", ""))
        or _in_defaults(environment)
        or environment.get("MASTER")
        or None
    )


def _in_arguments(text: str) -> str | None:
    """``PYSPARK_SUBMIT_ARGS``, which are the arguments of the ``spark-submit`` that a Python program starts."""
    try:
        arguments = shlex.split(text)
    except ValueError:
        # Spark will say what is wrong with them.
        return None
    master = setting = None
    for name, value in pairwise([*arguments, ""]):
        option, _, attached = name.partition("=")
        if option == "--master":
            master = attached or value
        elif option in ("--conf", "-c"):
            key, _, given = (attached or value).partition("=")
            setting = given if key == _KEY else setting
    return master or setting


def _in_defaults(environment: Mapping[str, str]) -> str | None:
    folder = environment.get("SPARK_CONF_DIR") or _conf_below(environment.get("SPARK_HOME"))
    file = Path(folder or "") / "spark-defaults.conf"
    if folder is None or not file.is_file():
        return None
    for line in file.read_text(errors="replace").splitlines():
        # A Java properties file: the name ends at a space, a colon or an equals sign.
        key, _, value = line.strip().replace("=", " ", 1).replace("\t", " ").partition(" ")
        if key == _KEY:
            return value.strip() or None
    return None


def _conf_below(home: str | None) -> str | None:
    if home is None:
        try:
            from pyspark.find_spark_home import _find_spark_home
        except ModuleNotFoundError:
            # Who starts Spark will say that it is not installed.
            return None
        home = _find_spark_home()
    return str(Path(home) / "conf") if home else None
