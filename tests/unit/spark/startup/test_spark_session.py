"""What a machine lacks is said in a sentence, and not in a stack trace of Spark's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from goqueue.model.errors import MissingDependency
from goqueue.spark.startup.spark_session import check_java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a ``java`` may be put that is the only one on the PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "java"


def says(java: Path, text: str, status: int = 0) -> None:
    lines = [f"printf '%s\\n' '{line}' >&2" for line in text.splitlines()]
    java.write_text("\n".join(["#!/bin/sh", *lines, f"exit {status}", ""]))
    java.chmod(0o755)


@pytest.mark.parametrize(
    "text",
    [
        'openjdk version "17.0.9" 2023-10-17\nOpenJDK Runtime Environment',
        'openjdk version "21" 2023-09-19',
        'java version "25-ea" 2025-09-16',
        'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1"',
    ],
)
def test_a_java_of_seventeen_or_newer_will_do(java: Path, text: str) -> None:
    says(java, text)
    check_java()


@pytest.mark.parametrize(
    ("text", "version"), [('openjdk version "11.0.21"', "11"), ('java version "1.8.0_392"', "8"), ('"16"', "")]
)
def test_an_older_one_is_refused_with_its_version_and_where_it_is(java: Path, text: str, version: str) -> None:
    says(java, text)
    if version:
        with pytest.raises(MissingDependency, match=f"17 or newer; {java} is version {version}.*JAVA_HOME"):
            check_java()
    else:
        with pytest.raises(MissingDependency, match=f"17 or newer; {java} -version says '\"16\"'"):
            check_java()


def test_a_java_that_does_not_run_is_refused_with_what_it_said(java: Path) -> None:
    """Some systems have a ``java`` that only tells how to install one."""
    says(java, "Unable to locate a Java Runtime.", 1)
    with pytest.raises(
        MissingDependency, match=r"17 or newer; .*java -version says 'Unable to locate a Java Runtime.'"
    ):
        check_java()


def test_no_java_at_all_is_said_with_what_to_install(java: Path) -> None:
    with pytest.raises(MissingDependency, match=r"no java on the PATH; install one .*openjdk-17.*JAVA_HOME"):
        check_java()


def test_a_java_home_goes_before_the_path(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(java, 'openjdk version "21"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(MissingDependency, match=f"JAVA_HOME is {tmp_path}/jdk, and there is no bin/java in it"):
        check_java()
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    says(tmp_path / "jdk" / "bin" / "java", 'openjdk version "11"')
    with pytest.raises(MissingDependency, match="jdk/bin/java is version 11"):
        check_java()


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_a_package_the_extra_that_brings_it_is_named(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import goqueue.spark\n"
        "from goqueue.model.errors import MissingDependency\n"
        "try:\n"
        "    goqueue.spark.session\n"
        "except MissingDependency as error:\n"
        "    print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert told.stdout.startswith(
        f"{missing} is not installed; the data pipeline needs it: pip install 'goqueue[spark]'"
    )


def test_the_package_gives_its_functions_however_often_they_are_imported() -> None:
    code = (
        "from goqueue.spark import decoded, from_registry, register, session, to_registry\n"
        "import goqueue.spark\n"
        "from goqueue.spark import session as again\n"
        "given = (decoded, from_registry, register, session, to_registry, again, goqueue.spark.session)\n"
        "print(*map(callable, given))\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert told.stdout.split() == ["True"] * 7


def test_what_the_package_does_not_have_is_an_ordinary_error() -> None:
    import goqueue.spark

    with pytest.raises(AttributeError, match=r"'goqueue.spark' has no attribute 'sesion'"):
        goqueue.spark.sesion  # noqa: B018
