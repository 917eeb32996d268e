"""Which master is used if the program names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.startup.spark_master import chosen_master, configured_master

NO_DEFAULTS = {"SPARK_CONF_DIR": "/nonexistent"}


@pytest.mark.parametrize(
    ("arguments", "master"),
    [
        ("", None),
        ("pyspark-shell", None),
        ("--master spark://one:7077 pyspark-shell", "spark://one:7077"),
        ("--master=yarn pyspark-shell", "yarn"),
        ("--conf spark.master=yarn --conf spark.ui.enabled=false pyspark-shell", "yarn"),
        ("--conf 'spark.master=local[2]' --master yarn pyspark-shell", "yarn"),
        ("--master 'local[2] pyspark-shell", None),
    ],
)
def test_the_arguments_of_spark_submit_name_a_master(arguments: str, master: str | None) -> None:
    assert configured_master(NO_DEFAULTS | {"PYSPARK_SUBMIT_ARGS": arguments}) == master


@pytest.mark.parametrize(
    "line", ["spark.master spark://two:7077", "spark.master=spark://two:7077", "spark.master\tspark://two:7077 "]
)
def test_the_defaults_file_names_a_master(tmp_path: Path, line: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"# spark.master yarn\nspark.masters x\n{line}\n")
    for environment in ({"SPARK_HOME": str(tmp_path)}, {"SPARK_CONF_DIR": str(tmp_path / "conf")}):
        assert configured_master(environment) == "spark://two:7077"
        assert configured_master(environment | {"MASTER": "yarn"}) == "spark://two:7077"
        assert configured_master(environment | {"PYSPARK_SUBMIT_ARGS": "--master yarn x"}) == "yarn"


def test_the_variable_master_comes_last() -> None:
    assert configured_master(NO_DEFAULTS | {"MASTER": "yarn"}) == "yarn"
    assert configured_master(NO_DEFAULTS) is None


def test_what_the_program_says_goes_before_what_was_configured() -> None:
    elsewhere = NO_DEFAULTS | {"MASTER": "yarn"}
    assert chosen_master("local[2]", {}, elsewhere) == "local[2]"
    assert chosen_master(None, {"spark.master": "spark://three:7077"}, elsewhere) == "spark://three:7077"
    assert chosen_master(None, None, elsewhere) == "yarn"
    assert chosen_master(None, None, NO_DEFAULTS) == "local[*]"


def test_two_masters_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"the master is 'yarn', and spark.master is 'local\[2\]'; leave one"):
        chosen_master("yarn", {"spark.master": "local[2]"}, NO_DEFAULTS)
