"""Signals to all processes of a pipeline's run at once, as ``timeout``, a shell or a service manager send them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from behaviour.waiting import until

if TYPE_CHECKING:
    from tests.spark.conftest import SharedBroker  # type: ignore[import-not-found]

PATIENCE_S = 200.0
JAVA = "java"
FAST = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Run:
    """``goqueue pipeline run`` with a session of its own, so that a signal reaches it and all that it has started."""

    def __init__(self, folder: Path, broker: str) -> None:
        self._checkpoint = folder / "checkpoints" / "copy"
        goqueue = str(Path(sys.executable).with_name("goqueue"))
        command = [goqueue, "pipeline", "run", "copy.yaml", "--json", "--master", "local[2]", "--brokers", broker]
        self.process = subprocess.Popen(
            [*command, "--conf", FAST],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until_a_batch_is_planned(self) -> None:
        planned = self._checkpoint / "offsets" / "0"
        until(lambda: self.process.poll() is not None or planned.exists(), PATIENCE_S)

    def ended(self) -> tuple[str, str]:
        return self.process.communicate(timeout=PATIENCE_S)

    def left(self) -> dict[int, str]:
        """What it has started and is still there, by name. Workers have groups of their own, and its session."""
        found = {}
        for each in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = each.read_text().rpartition(")")
            except OSError:
                continue
            state, _, _, session = rest.split()[:4]
            if int(session) == self.process.pid and state != "Z":
                found[int(each.parent.name)] = name.partition("(")[2]
        return found

    def close(self) -> None:
        for pid in [*self.left(), self.process.pid]:
            if self.process.poll() is None or pid != self.process.pid:
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


def written(folder: Path, topic: str, out: str, trigger: str) -> None:
    (folder / "copy.yaml").write_text(
        f"name: copy\nsource: {{topics: {topic}, maxMessagesPerTrigger: 4}}\nsink: {{topic: {out}}}\n"
        f"trigger: {trigger}\n"
    )


def test_sigterm_to_the_whole_group_finishes_the_micro_batch_and_leaves_nothing_running(
    java: None, broker: SharedBroker, tmp_path: Path
) -> None:
    topic, out = broker.topic(1), broker.topic(1)
    with broker.client.producer() as producer:
        producer.send_many(topic, [b"%d" % number for number in range(8)])
    written(tmp_path, topic, out, "1 hour")
    run = Run(tmp_path, broker.address)
    try:
        run.until_a_batch_is_planned()
        os.killpg(run.process.pid, signal.SIGTERM)
        told, errors = run.ended()
        assert run.process.returncode == 0, errors
        assert json.loads(told)["numbers"]["messages_read"] == 4
        assert json.loads(told)["notes"][0].startswith("stopped before the end")
        assert len(errors.splitlines()) <= 4, errors
        until(lambda: run.left() == {}, PATIENCE_S)
    finally:
        run.close()
    written(tmp_path, topic, out, "available-now")
    again = Run(tmp_path, broker.address)
    try:
        told, errors = again.ended()
        assert again.process.returncode == 0, errors
        assert json.loads(told)["numbers"]["messages_read"] == 4
        until(lambda: again.left() == {}, PATIENCE_S)
    finally:
        again.close()
    assert sorted(int(record.value) for record in broker.client.read(out)) == list(range(8))


def test_a_java_process_that_is_gone_is_told_in_a_line(java: None, broker: SharedBroker, tmp_path: Path) -> None:
    topic, out = broker.topic(1), broker.topic(1)
    with broker.client.producer() as producer:
        producer.send(topic, b"1").result()
    written(tmp_path, topic, out, "1 hour")
    run = Run(tmp_path, broker.address)
    try:
        run.until_a_batch_is_planned()
        for pid, name in run.left().items():
            if name == JAVA:
                os.kill(pid, signal.SIGKILL)
        _, errors = run.ended()
        assert run.process.returncode == 1
        *progress, error, hint = errors.splitlines()
        assert error == "error: Spark's Java process has ended, and so has the run [client_error]"
        assert hint.startswith("hint: ")
        assert all(line.startswith("copy: ") for line in progress), errors
        until(lambda: run.left() == {}, PATIENCE_S)
    finally:
        run.close()
