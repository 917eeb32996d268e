"""Apache Kafka: one node that is broker and controller (KRaft), from the jars that its build publishes."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.peers.system import DidNotStart, Missing, Server, System, free_port, program, running
from bench.peers.work import Durability, Work

_VERSION = "4.3.1"
_LOGGING_VERSION = "2.25.4"
"""Of Log4j: the one that this Kafka was built with."""
_OLDEST_JAVA = 17
_CACHE = Path(__file__).resolve().parents[3] / ".bench" / "kafka"
_JARS = _CACHE / f"jars-{_VERSION}"
_DOWNLOAD_TIMEOUT_S = 900.0
_FORMAT_TIMEOUT_S = 180.0
_ASK_TIMEOUT_S = 2.0
_SHOWN_OUTPUT_BYTES = 1_500

_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId>
  <artifactId>kafka-server</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>{_LOGGING_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

_LOGGING = """\
Configuration:
  Appenders:
    Console:
      name: OUT
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: OUT
"""

_JVM = (
    # What Kafka's own start script gives a broker.
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_TOOL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a program that ends after a second."""

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=BROKER://127.0.0.1:{port}
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=BROKER
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# A machine that is busy with other things must not make the only broker count as gone.
broker.session.timeout.ms=60000
# Kafka waits in case more members come; here there is only one.
group.initial.rebalance.delay.ms=0
group.consumer.assignment.interval.ms=0
group.share.assignment.interval.ms=0
# A member hears of what it is to read with a heartbeat, not before.
group.share.min.heartbeat.interval.ms=100
group.share.heartbeat.interval.ms=100
"""
_FLUSH_EACH = "log.flush.interval.messages=1"


def _java() -> str:
    java = program("java", f"install a Java runtime, version {_OLDEST_JAVA} or newer")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < _OLDEST_JAVA:
        first = said.partition("\n")[0] or "nothing"
        raise Missing(f"Kafka {_VERSION} needs Java {_OLDEST_JAVA} or newer, java -version says: {first}; install one")
    return java


def _prepare() -> None:
    """The jars are fetched once, and kept in ``.bench`` at the root of the project."""
    _java()
    if _JARS.is_dir():
        return
    maven = program("mvn", "install Apache Maven, it fetches Kafka's jars")
    partial = _CACHE / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (_CACHE / "pom.xml").write_text(_POM)
    command = [maven, "-q", "-B", "-f", str(_CACHE / "pom.xml"), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"Maven did not fetch Kafka {_VERSION} within {_DOWNLOAD_TIMEOUT_S:.0f} s: try again") from None
    if ended.returncode != 0:
        said = (ended.stdout + ended.stderr)[:_SHOWN_OUTPUT_BYTES].strip()
        raise Missing(f"Maven could not fetch Kafka {_VERSION}: let it reach its repository, and try again; {said}")
    # Under its name only when it is whole: an interrupted download is not taken for one that is done.
    partial.rename(_JARS)


def _command(folder: Path, jvm: Sequence[str], main: str, *arguments: str) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.yaml'}"
    return [_java(), *jvm, logging, "-cp", f"{_JARS}{os.sep}*", main, *arguments]


def _format(folder: Path, properties: Path) -> None:
    """A node does not start on storage that has no identity."""
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = _command(folder, _TOOL_JVM, "kafka.tools.StorageTool", "format", "--standalone")
    command += ["--cluster-id", cluster, "--config", str(properties)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise DidNotStart(f"Kafka's storage tool did not end within {_FORMAT_TIMEOUT_S:.0f} s") from None
    if ended.returncode != 0:
        raise DidNotStart(f"Kafka's storage tool failed:\n{(ended.stdout + ended.stderr)[-_SHOWN_OUTPUT_BYTES:]}")


def _answers(address: str) -> Callable[[], bool]:
    """Whether the broker knows itself as part of the cluster: before that it cannot lead a partition."""
    # Not at the top: the package is needed only by those who measure Kafka.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 500})

    def ask() -> bool:
        try:
            return bool(admin.list_topics(timeout=_ASK_TIMEOUT_S).brokers)
        except KafkaException:
            return False

    return ask


@contextmanager
def _start(folder: Path, durability: Durability) -> Iterator[Server]:
    port, controller_port = free_port(), free_port()
    properties = folder / "server.properties"
    text = _PROPERTIES.format(port=port, controller_port=controller_port, data=folder / "data")
    if durability is Durability.FSYNC:
        text += f"{_FLUSH_EACH}\n"
    properties.write_text(text)
    (folder / "log4j2.yaml").write_text(_LOGGING)
    _format(folder, properties)
    address = f"127.0.0.1:{port}"
    with running(_command(folder, _JVM, "kafka.Kafka", str(properties)), folder, _answers(address)) as process:
        yield Server(process, address, _VERSION)


_SAME = (
    "one node as broker and controller, 1 GiB of heap and G1 as in its start script; one copy of everything; "
    "heartbeats of share groups every 100 ms; the producer with acks=all, linger.ms=5 in batches of up to 1 MB, "
    "linger.ms=0 with one request under way where messages are sent one by one"
)

SYSTEM = System(
    key="kafka",
    name="Apache Kafka",
    client="confluent-kafka",
    durabilities=frozenset(Durability),
    works=frozenset(Work) - {Work.DELAY},
    settings={
        Durability.FSYNC: f"{_FLUSH_EACH}; {_SAME}",
        Durability.PAGE_CACHE: f"when to flush is left to the operating system (the default); {_SAME}",
    },
    prepare=_prepare,
    start=_start,
    remarks=(
        "Its queue is a share group: each message is acknowledged by itself. The broker hands out whole batches of the "
        "producer; acknowledgements are sent for every 100 messages. The Python client calls its share consumer a "
        "preview.",
        "The worker of the queue has joined its group before the clock starts.",
        "With log.flush.interval.messages=1 the state of its groups is flushed as well.",
        "It has no delayed delivery.",
    ),
)
