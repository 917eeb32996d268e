"""The examples of the Spark guide are run, in order, as a reader would run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from goqueue.testing import running_broker

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_every_example_of_the_guide_runs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 7
    with running_broker() as broker:
        monkeypatch.setenv("GOQUEUE_ADDRESS", broker.address)
        monkeypatch.setenv("GOQUEUE_DATA", str(broker.data))
        known: dict[str, object] = {}
        for example in examples:
            # The session that the guide asks for is the one that is there.
            exec(compile(example, str(GUIDE), "exec"), known)
        assert known["spark"] is spark
