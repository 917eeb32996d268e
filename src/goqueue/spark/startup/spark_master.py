"""Spark settings from outside this program (``spark-submit``, defaults file, environment), above all the master.

In Spark, settings made by a program take precedence over the arguments of ``spark-submit``. A program that sets a
default master would therefore run locally although it was submitted to a cluster, unless it reads those arguments
first.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from goqueue.model.errors import InvalidRequest

LOCAL_MASTER = "local[*]"
"""The master if none is configured anywhere."""
_KEY = "spark.master"


def spark_submit_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings given to ``spark-submit`` if it started this program; empty if it did not."""
    if "PYSPARK_GATEWAY_PORT" not in environment:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def chosen_master(
    master: str | None, conf: Mapping[str, str] | None = None, environment: Mapping[str, str] = os.environ
) -> str:
    """The master to use: the program's own, else the one configured outside, else all cores of this machine."""
    in_conf = (conf or {}).get(_KEY)
    if master and in_conf and in_conf != master:
        raise InvalidRequest(f"the master is {master!r}, and {_KEY} is {in_conf!r}; leave one of them out")
    return master or in_conf or configured_master(environment) or LOCAL_MASTER


def configured_master(environment: Mapping[str, str] = os.environ) -> str | None:
    """The master in Spark's own order: ``spark-submit``, ``spark-defaults.conf``, the variable ``MASTER``."""
    return (
        spark_submit_settings(environment).get(_KEY)
        or _master_in_arguments(environment.get("PYSPARK_SUBMIT_ARGS", ""))
        or _master_in_defaults(environment)
        or environment.get("MASTER")
        or None
    )


def _master_in_arguments(text: str) -> str | None:
    """The master in ``PYSPARK_SUBMIT_ARGS``, the arguments of the ``spark-submit`` that a Python program starts."""
    try:
        arguments = shlex.split(text)
    except ValueError:
        # Spark reports malformed arguments itself.
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


def _master_in_defaults(environment: Mapping[str, str]) -> str | None:
    folder = environment.get("SPARK_CONF_DIR") or _conf_folder(environment.get("SPARK_HOME"))
    file = Path(folder or "") / "spark-defaults.conf"
    if folder is None or not file.is_file():
        return None
    for line in file.read_text(errors="replace").splitlines():
        # A Java properties file: the name ends at a space, a colon or an equals sign.
        key, _, value = line.strip().replace("=", " ", 1).replace("\t", " ").partition(" ")
        if key == _KEY:
            return value.strip() or None
    return None


def _conf_folder(home: str | None) -> str | None:
    if home is None:
        try:
            from pyspark.find_spark_home import _find_spark_home
        except ModuleNotFoundError:
            # Starting Spark reports that it is not installed.
            return None
        home = _find_spark_home()
    return str(Path(home) / "conf") if home else None
