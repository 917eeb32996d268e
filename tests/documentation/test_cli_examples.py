"""Every command line that ``-h`` shows is run, in a world where it makes sense.

What a line shows as an example (a place, an id, a receipt) is replaced by one that there is. Lines of one command are
run in their order, as somebody does who tries them one by one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import httpx
import pytest
import typer.main
from behaviour.waiting import until
from typer.testing import CliRunner

from goqueue import Client, Outgoing
from goqueue.cli.app import app
from goqueue.testing import BrokerProcess, running_broker

_ELSEWHERE = ("serve", "pipeline")
"""Brokers are started by test_process, pipelines run under tests/spark."""
_NEEDS_A_SHELL = re.compile(r"[|<>*]|^\w+=| \|\| ")
_TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
_AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "order", "type": "long"}%s]}'
_MORE = ', {"name": "city", "type": "string", "default": ""}'


def examples() -> dict[str, list[str]]:
    """The lines of each command, without the remarks behind them."""
    found: dict[str, list[str]] = {}

    def walk(command: click.Command, name: str) -> None:
        for line in (command.epilog or "").splitlines():
            if re.match(r"  (\S+=\S+ |\S.*\| )?goqueue ", line):
                found.setdefault(name or "goqueue", []).append(re.split(r"\s{2,}", line.strip())[0])
        for child in getattr(command, "commands", {}).values():
            walk(child, f"{name} {child.name}".strip())

    walk(typer.main.get_command(app), "")
    return {name: lines for name, lines in found.items() if name.split(" ")[0] not in _ELSEWHERE}


@dataclass(frozen=True)
class World:
    broker: BrokerProcess
    client: Client
    http: httpx.Client
    folder: Path

    def delayed(self, partition: int) -> str:
        with self.client.producer() as producer:
            sent = producer.send("orders", "later", partition=partition, delay=3600).result()
        return f"{sent.partition} {sent.offset}"

    def dead_letter(self) -> tuple[int, int]:
        known = self._letters()
        with self.client.consumer("billing", ["orders"], kind="shared") as consumer:
            (message,) = consumer.poll(1, timeout=30)
            message.reject("no such city: timeout").result()
        # It is on its way.
        until(lambda: self._letters() - known)
        return max(self._letters() - known)

    def _letters(self) -> set[tuple[int, int]]:
        return {(each.partition, each.offset) for each in self.client.dead_letters("orders")}

    def transaction(self) -> str:
        producer = self.http.post("/producers/init", json={"transactional_id": "app"}).raise_for_status().json()
        mine = {"producer_id": producer["producer_id"], "epoch": producer["epoch"]}
        return str(self.http.post("/transactions/begin", json=mine).raise_for_status().json()["transaction_id"])

    def schemas(self) -> None:
        """``orders-value`` as whoever tries a line expects it: two versions, none of them deleted."""
        for subject in ("orders-value", "common-value"):
            self.http.delete(f"/subjects/{subject}")
            self.http.delete(f"/subjects/{subject}", params={"permanent": "true"})
        self.http.put("/config/orders-value", json={"compatibility": "NONE"})
        for number in range(20):
            more = f', {{"name": "n{number}", "type": "int", "default": 0}}'
            self.http.post("/subjects/others/versions", json={"schema": _AVRO % more})
        for more in ("", _MORE):
            self.http.post("/subjects/orders-value/versions", json={"schema": _AVRO % more}).raise_for_status()
        for text in ('syntax = "proto3"; message A {}', 'syntax = "proto3"; message A { int32 a = 1; }'):
            body = {"schema": text, "schemaType": "PROTOBUF"}
            self.http.post("/subjects/common-value/versions", json=body).raise_for_status()

    def meant(self, line: str) -> str:
        """The line with what there is in place of what stands for it."""
        if line.startswith("goqueue schema"):
            self.schemas()
        if "schema delete" in line and "--permanent" in line:
            self.http.delete("/subjects/orders-value").raise_for_status()
        if "delay cancel orders 0 17" in line or "delay reschedule orders 0 17" in line:
            line = line.replace("0 17", self.delayed(0)).replace("2 40", self.delayed(2))
        if re.search(r"orders(\.dlq)? 0 0|--message 0:0", line):
            partition, offset = self.dead_letter()
            line = line.replace(" 0 0", f" {partition} {offset}").replace("0:0", f"{partition}:{offset}")
        if "txn" in line:
            line = line.replace(" ID", f" {self.transaction()}").replace("--topic T", "--topic orders")
        line = line.replace("http://staging.example.com:8080", self.broker.url).replace(
            "make-schema", "cat schema.json"
        )
        asks = re.search(r"goqueue (dlq redrive|schema delete)", line) and not re.search("--yes|--dry-run", line)
        return f"{line} --yes" if asks else line


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("here")
    with running_broker(folder / "goqueue-data") as stopped, stopped.client() as client:
        fill(client, 100)
    with running_broker() as broker, broker.client() as client, httpx.Client(base_url=broker.url, timeout=30) as http:
        fill(client, 4_000)
        parent = {"traceparent": f"00-{_TRACE_ID}-00f067aa0ba902b7-01"}
        http.post(
            "/topics/orders/messages", json={"messages": [{"value": "traced"}]}, headers=parent
        ).raise_for_status()
        files = {
            "broker.toml": "[http]\nport = 9000\n",
            "lines.txt": "one\ntwo\n",
            "orders.jsonl": '{"key": "ada", "value": {"total": 12.5}, "headers": {"shop": "north"}, "delay": "1h"}\n',
            "order.avsc": _AVRO % _MORE,
            "order.proto": 'syntax = "proto3"; import "common.proto"; message Order { A a = 1; }',
            "schema.json": '{"type": "object"}',
        }
        for name, content in files.items():
            (folder / name).write_text(content)
        yield World(broker, client, http, folder)


def fill(client: Client, count: int) -> None:
    client.create_topic("orders", partitions=3)
    client.create_topic("clicks")
    orders = [
        Outgoing(
            f'{{"order": {number}, "total": {number % 40}, "city": "Oslo"}}',
            key=f"customer-{number % 7}",
            headers={"shop": "north"},
            partition=number % 3,
        )
        for number in range(count)
    ]
    with client.producer() as producer:
        producer.send_many("orders", orders)
        producer.send("orders", "later", delay=3600).result()
    with client.consumer("billing", ["orders"], kind="shared") as consumer:
        taken = consumer.poll(3, timeout=30)
        consumer.reject(taken[:1], "no such city").result()
        consumer.ack(taken[1:]).result()
    with client.consumer("audit", ["orders"], mode="stream") as consumer:
        consumer.poll(3, timeout=30)
        consumer.commit()


def run(world: World, line: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """In this process where that will do: starting another takes longer than most lines."""
    is_endless = "--follow" in line and "--limit" not in line
    if not is_endless and not _NEEDS_A_SHELL.search(line) and line != "goqueue top":
        monkeypatch.chdir(world.folder)
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        return done.exit_code, done.output
    if is_endless or line == "goqueue top":
        line = f"timeout --foreground --signal INT 3 {line} || test $? -eq 124"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-uo", "pipefail", "-c", line]
    ended = subprocess.run(
        command, cwd=world.folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=60
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("command", examples())
def test_every_example_of_the_help_does_what_it_says(
    command: str, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOQUEUE_CONTEXTS", str(tmp_path / "contexts.json"))
    for shown in examples()[command]:
        if shown.startswith("goqueue serve"):
            continue
        line = world.meant(shown)
        if command == "context":
            monkeypatch.delenv("GOQUEUE_SERVER", raising=False)
        else:
            monkeypatch.setenv("GOQUEUE_SERVER", world.broker.url)
        if shown == "goqueue topic create orders":
            line = "goqueue topic create more-orders"
        status, printed = run(world, line, monkeypatch)
        assert status == 0, f"{shown}\nas {line}\nended with {status}:\n{printed}"


def test_every_command_shows_examples() -> None:
    def bare(command: click.Command, name: str, is_shown: bool) -> Iterator[str]:
        is_shown = is_shown or "Examples:" in (command.epilog or "")
        children = getattr(command, "commands", {})
        for child in children.values():
            yield from bare(child, f"{name} {child.name}".strip(), is_shown and bool(name))
        if not children and not is_shown and name != "version":
            yield name

    assert list(bare(typer.main.get_command(app), "", is_shown=False)) == []
    assert sum(map(len, examples().values())) > 100
