"""The first minute with GoQueue: publish, read, replay, crash, recover; then a queue, with a crash in the middle.

Starts a broker on a temporary folder, talks to it, checks everything it shows, and leaves nothing behind.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table

from goqueue import Client, Outgoing

ORDERS = 20_000
BATCH = 1_000
BEFORE_THE_CRASH = 300
COLUMNS = ("partition", "offset", "key", "value")
JOBS = 600
REPORTS = 20_000
JOBS_BEFORE_THE_CRASH = 250
POISON = {"job 13", "job 400"}
say = Console(highlight=False)


class Broker:
    """A broker process, and one connection to it."""

    def __init__(self, folder: Path, grpc_port: int = 0) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "goqueue", "serve", "--data", str(folder), "--port", "0"]
        command += ["--grpc-port", str(grpc_port), "--log-format", "json", "--log-level", "info"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.port, self.grpc_port = self._wait_until_listening()
        # The broker goes on logging; somebody has to read it.
        threading.Thread(target=self._drain, daemon=True).start()
        self.connection = self.connect()

    def _wait_until_listening(self) -> tuple[int, int]:
        seen = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            seen.append(line)
            if line.startswith("{") and "listening" in line:
                told = json.loads(line)
                return int(told["port"]), int(told["grpc_port"])
        raise SystemExit("The broker did not start:\n" + "".join(seen))

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for _ in self.process.stderr:
            pass

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def call(self, method: str, path: str, body: object = None, over: http.client.HTTPConnection | None = None) -> Any:
        connection = over or self.connection
        encoded = None if body is None else json.dumps(body)
        connection.request(method, path, encoded, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        check(response.status < 300, f"{method} {path} answered {response.status}: {answer}")
        return answer

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        check(self.process.wait(timeout=30) == 0, "the broker did not stop cleanly")


def check(condition: bool, otherwise: str) -> None:
    """The demo fails if what it shows is not so."""
    if not condition:
        say.print(f"[bold red]This should not be:[/] {otherwise}")
        raise SystemExit(1)


def step(number: int, title: str, how: str) -> None:
    say.print(f"\n[bold cyan]{number}[/] [bold]{title}[/]\n  [dim]{how}[/]")


def show(messages: list[dict[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in COLUMNS:
        table.add_column(column, no_wrap=True)
    for message in messages:
        table.add_row(*(str(message.get(name, "")) for name in COLUMNS))
    say.print(table)


def publish_many(broker: Broker) -> None:
    step(
        2,
        f"Publish {ORDERS:,} orders",
        "POST /topics/orders/messages, 1,000 at a time; every answer means: on the disk",
    )
    began = time.perf_counter()
    for first in range(0, ORDERS, BATCH):
        orders = [
            {"key": f"customer-{number % 500}", "value": json.dumps({"order": number, "total": number % 97})}
            for number in range(first, first + BATCH)
        ]
        answer = broker.call("POST", "/topics/orders/messages", {"messages": orders})
        check(all("offset" in result for result in answer["results"]), "a message was not stored")
    seconds = time.perf_counter() - began
    say.print(f"  stored and fsynced in {seconds:.2f} s: [bold]{ORDERS / seconds:,.0f} messages/s[/] through JSON")


def read_by_offset(broker: Broker) -> None:
    step(3, "Read by offset", "GET /topics/orders/partitions/0/messages?offset=100&limit=3")
    answer = broker.call("GET", "/topics/orders/partitions/0/messages?offset=100&limit=3")
    show(answer["messages"])
    check([message["offset"] for message in answer["messages"]] == [100, 101, 102], "offsets are not 100, 101, 102")


def replay_from_an_instant(broker: Broker) -> None:
    instant = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    late = [{"value": f"late order {number}", "partition": 0} for number in range(3)]
    broker.call("POST", "/topics/orders/messages", {"messages": late})
    step(4, "Replay from an instant", f"GET …/partitions/0/messages?from_time={instant}")
    answer = broker.call("GET", f"/topics/orders/partitions/0/messages?from_time={quote(instant)}")
    show(answer["messages"])
    check([message["value"] for message in answer["messages"]] == [order["value"] for order in late], "not the replay")
    say.print("  one call, no scan: the time index knows where that instant is")


def crash(broker: Broker) -> list[tuple[int, int, str]]:
    step(5, "Crash", "kill -9 while one thread publishes as fast as it can")
    acknowledged: list[tuple[int, int, str]] = []
    enough = threading.Event()

    def publish_until_it_dies() -> None:
        connection = broker.connect()
        try:
            for number in range(1_000_000):
                value = f"payment {number}"
                answer = broker.call("POST", "/topics/orders/messages", {"messages": [{"value": value}]}, connection)
                result = answer["results"][0]
                acknowledged.append((result["partition"], result["offset"], value))
                if len(acknowledged) == BEFORE_THE_CRASH:
                    enough.set()
        except (OSError, http.client.HTTPException):
            enough.set()

    publisher = threading.Thread(target=publish_until_it_dies)
    publisher.start()
    enough.wait(30)
    broker.kill()
    publisher.join()
    say.print(f"  the broker is dead; it had acknowledged {len(acknowledged):,} payments")
    return acknowledged


def recover(folder: Path, acknowledged: list[tuple[int, int, str]]) -> Broker:
    step(6, "Recover", "start again on the same folder, and look for every acknowledged payment")
    began = time.perf_counter()
    broker = Broker(folder)
    say.print(f"  ready after {time.perf_counter() - began:.2f} s, Python's own start included")
    stored: dict[tuple[int, int], str] = {}
    for partition in range(3):
        offset = min((o for p, o, _ in acknowledged if p == partition), default=0)
        while True:
            page = broker.call("GET", f"/topics/orders/partitions/{partition}/messages?offset={offset}&limit=10000")
            if not page["messages"]:
                break
            stored |= {(partition, message["offset"]): message["value"] for message in page["messages"]}
            offset = page["next_offset"]
    lost = [entry for entry in acknowledged if stored.get(entry[:2]) != entry[2]]
    check(not lost, f"{len(lost)} acknowledged payments are gone: {lost[:3]}")
    say.print(f"  [bold green]all {len(acknowledged):,} are there, each once, each at its offset[/]")
    return broker


def work_through_a_crash(broker: Broker, client: Client) -> Broker:
    step(7, "The same broker as a queue", "client.consumer('workers', 'jobs'): ack what is done, reject what cannot be")
    client.create_topic("jobs")
    with client.producer() as producer:
        producer.send_many("jobs", [f"job {number}" for number in range(JOBS)])
    done: list[str] = []
    crashed = False
    with client.consumer("workers", "jobs", kind="shared") as consumer:
        while len(done) + len(POISON) < JOBS:
            for message in consumer.poll(50, timeout=30):
                job = message.value.decode()
                if job in POISON:
                    message.reject("this one cannot be done").result()
                else:
                    message.ack().result()
                    done.append(job)
            if not crashed and len(done) >= JOBS_BEFORE_THE_CRASH:
                say.print(f"  kill -9 after {len(done)} acks, start again; the consumer goes on by itself")
                broker.kill()
                broker = Broker(broker.folder, broker.grpc_port)
                crashed = True
    check(len(done) == len(set(done)), "an acked job came again")
    say.print(f"  [bold green]{len(done)} jobs done, each once[/], {len(POISON)} given up; acks survived the crash")
    return broker


def look_at_dead_letters(client: Client) -> tuple[str, int, int]:
    """Returns where one of them was published."""
    step(8, "Dead letters, and back again", "client.dead_letters('jobs'); client.redrive('jobs')")
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("value", "from", "group", "error"):
        table.add_column(column, no_wrap=True)
    letters = list(client.dead_letters("jobs"))
    for letter in letters:
        place = f"{letter.origin_topic}/{letter.origin_partition}@{letter.origin_offset}"
        table.add_row(letter.value.decode(), place, letter.group, letter.error)
    say.print(table)
    check({letter.value.decode() for letter in letters} == POISON, "not the jobs that were rejected")
    check(client.redrive("jobs").redriven == len(POISON), "not all dead letters went back")
    with client.consumer("workers", "jobs", kind="shared") as consumer:
        again = set()
        while again != POISON:
            for message in consumer.poll(10, timeout=30):
                again.add(message.value.decode())
                message.ack().result()
    say.print("  redriven, delivered to the same group once more, and done")
    last = letters[-1]
    return last.origin_topic, last.origin_partition, last.origin_offset


def tell_its_story(broker: Broker, place: tuple[str, int, int]) -> None:
    topic, partition, offset = place
    step(9, "Where did it go?", f"goqueue trace {topic} {partition} {offset}: one of those two")
    command = [sys.executable, "-m", "goqueue", "trace", topic, str(partition), str(offset)]
    told = subprocess.run(
        [*command, "--server", f"127.0.0.1:{broker.port}"], capture_output=True, text=True, check=True
    ).stdout
    for line in told.splitlines():
        say.print(f"  {line}", markup=False, soft_wrap=True)
    for word in ("published", "delivered", "rejected", "dead-lettered", "redriven", "acked"):
        check(word in told, f"the story does not tell that it was {word}")


def overtake_and_wait(broker: Broker, client: Client) -> Broker:
    step(
        10,
        "First, and later",
        "send(…, priority='critical'), send(…, delay=1.5), and kill -9 between",
    )
    client.create_topic("alerts")
    with client.producer() as producer:
        reports = [Outgoing(f"report {number}", priority="background") for number in range(REPORTS)]
        producer.send_many("alerts", reports)
        producer.send("alerts", "fire!", priority="critical").result()
        due = time.time() + 1.5
        producer.send("alerts", "water the plants", priority="high", delay=1.5).result()
    broker.kill()
    broker = Broker(broker.folder, broker.grpc_port)
    with client.consumer("wardens", "alerts", kind="shared", max_in_flight=10) as consumer:
        first = consumer.poll(1, timeout=30)[0]
        say.print(f"  of {REPORTS + 1:,} messages that wait, the first is [bold]{first.value.decode()}[/]")
        check(first.value == b"fire!", "a report came before the fire")
        message = first
        while message.value != b"water the plants":
            message.ack().result()
            message = consumer.poll(1, timeout=30)[0]
        late_ms = (time.time() - due) * 1_000
        message.ack().result()
    check(late_ms >= 0, "a delayed message came early")
    say.print(f"  the delayed message came {late_ms:.0f} ms after its time, over the crash")
    return broker


def main() -> None:
    began = time.perf_counter()
    say.print("[bold]GoQueue in a minute[/] [dim](a real broker on a temporary folder)[/]")
    with tempfile.TemporaryDirectory(prefix="goqueue-demo-") as name:
        folder = Path(name)
        step(1, "Start a broker, make a topic", "goqueue serve --data …; POST /topics {'name': 'orders'}")
        broker = Broker(folder)
        try:
            topic = broker.call("POST", "/topics", {"name": "orders"})
            say.print(f"  topic [bold]{topic['name']}[/] with {topic['partitions']} partitions, on port {broker.port}")
            publish_many(broker)
            read_by_offset(broker)
            replay_from_an_instant(broker)
            acknowledged = crash(broker)
            broker = recover(folder, acknowledged)
            with Client(f"127.0.0.1:{broker.grpc_port}") as client:
                broker = work_through_a_crash(broker, client)
                tell_its_story(broker, look_at_dead_letters(client))
                broker = overtake_and_wait(broker, client)
            broker.stop()
        finally:
            if broker.process.poll() is None:
                broker.kill()
    seconds = time.perf_counter() - began
    say.print(f"\nDone in {seconds:.0f} s; nothing is left behind. Next: [bold]make run[/], then README.md")


if __name__ == "__main__":
    main()
