"""A bank whose money neither grows nor shrinks, while its tellers and its broker are being killed.

Tellers take transfer requests from a group, write a debit and a credit to the accounts, and ack the request, all in one
transaction: it happens as a whole or not at all, and once. Run it, and try to break it:

    python examples/bank.py --seconds 20

It starts a broker of its own on a temporary folder; with ``--server`` it uses another, and leaves that alive.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from goqueue import Client, GoQueueError, from_json, to_json
from goqueue.testing import BrokerProcess

ACCOUNTS = [f"account-{number}" for number in range(8)]
OPENING = 1_000
TELLERS = 3
PARTITIONS = 3
REQUESTS_AT_ONCE = 50
PATIENCE_S = 60.0
LEAST_ROUNDS = 3
ALL_MONEY = OPENING * len(ACCOUNTS)
# Killed tellers shall not be waited for; a request is tried as often as it takes.
REQUEST_SETTINGS: dict[str, Any] = {
    "partitions": PARTITIONS,
    "visibility_timeout_ms": "2s",
    "retry_backoff_ms": 0,
    "max_retries": 1_000,
}
say = Console(highlight=False)


# A teller: a process of its own


def work(server: str, name: str) -> None:
    """Carry out transfers until somebody kills us."""
    with (
        Client(server, max_backoff_ms=200) as client,
        client.producer(transactional_id=name, serializer=to_json) as producer,
        client.consumer("tellers", "transfers", kind="shared", max_in_flight=50, deserializer=from_json) as consumer,
    ):
        with suppress(GoQueueError), producer.transaction():
            # The first one shuts out whoever had this id before, and takes back what it left half done.
            pass
        for requests in consumer.batches(10):
            try:
                with producer.transaction() as tx:
                    for request in requests:
                        transfer = request.value
                        tx.send("accounts", entry(transfer, -1), key=transfer["from"])
                        tx.send("accounts", entry(transfer, 1), key=transfer["to"])
                        tx.ack(request)
            except GoQueueError as error:
                # All of it has happened, or nothing: then the requests come again, to us or to another.
                print(f"{name}: {error}", file=sys.stderr)
                for request in requests:
                    if not request.settled:
                        request.nack(0)


def entry(transfer: dict[str, Any], sign: int) -> dict[str, Any]:
    return {"transfer": transfer["id"], "amount": sign * transfer["amount"]}


# What an observer knows


class Books:
    """The entries of all accounts, as far as they were read.

    Partitions are read one after the other, and transfers go on meanwhile. Of some, one entry was seen and the other
    was not yet: that money is on its way, and at the end there must be none of it.
    """

    def __init__(self) -> None:
        self.balances: Counter[str] = Counter()
        self.entries: dict[str, list[int]] = defaultdict(list)
        """Amounts by transfer: a debit and a credit each."""
        self._next_offsets = dict.fromkeys(range(PARTITIONS), 0)

    def read_on(self, client: Client) -> None:
        for partition, offset in self._next_offsets.items():
            for record in client.read("accounts", partition, offset, deserializer=from_json):
                self.add((record.key or b"").decode(), record.value["transfer"], record.value["amount"])
                self._next_offsets[partition] = record.offset + 1

    def add(self, account: str, transfer: str, amount: int) -> None:
        self.balances[account] += amount
        if transfer != "opening":
            self.entries[transfer].append(amount)

    def halves(self) -> list[int]:
        """Entries of transfers of which the other entry was not seen yet."""
        return [amounts[0] for amounts in self.entries.values() if len(amounts) == 1]

    def on_its_way(self) -> int:
        return -sum(self.halves())

    def total(self) -> int:
        return sum(self.balances.values()) + self.on_its_way()

    def problems(self, requested: set[str]) -> list[str]:
        """What is wrong when all is done."""
        found = []
        if self.total() != ALL_MONEY:
            found.append(f"the bank has {self.total():,} instead of {ALL_MONEY:,}")
        if self.halves():
            found.append(f"{self.on_its_way():,} is on its way and never arrived")
        found += [f"{transfer} was never carried out" for transfer in sorted(requested - self.entries.keys())]
        found += [f"{transfer} was never asked for" for transfer in sorted(self.entries.keys() - requested)]
        for transfer, amounts in self.entries.items():
            if len(amounts) != 2 or sum(amounts) != 0:
                found.append(f"{transfer} has the entries {amounts}")
        return found


# Everybody together


class Bank:
    """The tellers' processes, and those who ask for transfers."""

    def __init__(self, server: str, client: Client, rng: random.Random) -> None:
        self.client = client
        self.rng = rng
        self.requested: set[str] = set()
        self._server = server
        self._tellers: dict[str, subprocess.Popen[bytes]] = {}
        self._requests = client.producer(serializer=to_json)

    def open(self) -> None:
        self.client.create_topic("transfers", **REQUEST_SETTINGS)
        self.client.create_topic("accounts", partitions=PARTITIONS)
        with (
            self.client.producer(transactional_id="head office", serializer=to_json) as producer,
            producer.transaction() as tx,
        ):
            for account in ACCOUNTS:
                tx.send("accounts", {"transfer": "opening", "amount": OPENING}, key=account)
        for number in range(TELLERS):
            self.hire(f"teller-{number}")

    def hire(self, name: str) -> None:
        command = [sys.executable, __file__, "--server", self._server, "--teller", name]
        self._tellers[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill_a_teller(self) -> str:
        name = self.rng.choice(list(self._tellers))
        self._tellers[name].kill()
        self._tellers[name].wait()
        self.hire(name)
        return name

    def ask_for_transfers(self) -> None:
        """Each publish is tried again until it is answered, and is there once."""
        first = len(self.requested)
        for number in range(first, first + REQUESTS_AT_ONCE):
            source, target = self.rng.sample(ACCOUNTS, 2)
            transfer = {"id": f"transfer-{number}", "from": source, "to": target, "amount": self.rng.randint(1, 100)}
            self._requests.send("transfers", transfer)
            self.requested.add(f"transfer-{number}")

    def close(self) -> None:
        for teller in self._tellers.values():
            teller.kill()
            teller.wait()


class OwnBroker:
    """A broker that is killed now and then, and comes back on the same folder and port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = BrokerProcess(folder)
        self.address = self._process.address

    def kill(self) -> None:
        self._process.kill()
        self._process = BrokerProcess(self._folder, grpc_port=self._process.grpc_port)

    def close(self) -> None:
        if self._process.process.poll() is None:
            self._process.stop()


@contextmanager
def some_broker(server: str) -> Iterator[tuple[str, OwnBroker | None]]:
    if server:
        yield server, None
        return
    with tempfile.TemporaryDirectory(prefix="goqueue-bank-") as folder, closing(OwnBroker(Path(folder))) as broker:
        yield broker.address, broker


def run(server: str, seconds: float, rng: random.Random) -> int:
    with some_broker(server) as (address, broker), Client(address, max_backoff_ms=200) as client:
        bank, books = Bank(address, client, rng), Books()
        try:
            bank.open()
            say.print(f"[bold]{len(ACCOUNTS)} accounts with {OPENING:,} each[/], {TELLERS} tellers on {address}\n")
            right = _keep_going(bank, books, broker, seconds)
            _finish(bank, books)
        finally:
            bank.close()
    _show(books)
    problems = books.problems(bank.requested)
    for problem in problems[:20]:
        say.print(f"[bold red]{problem}[/]")
    if problems or not right:
        say.print("[bold red]The bank is broken.[/]")
        return 1
    say.print(f"[bold green]{len(books.entries):,} transfers, each carried out once; the total is {ALL_MONEY:,}.[/]")
    return 0


def _keep_going(bank: Bank, books: Books, broker: OwnBroker | None, seconds: float) -> bool:
    """Ask, kill and look, about once a second; return whether the total was right every time."""
    began, right, rounds = time.monotonic(), True, 0
    while time.monotonic() < began + seconds or rounds < LEAST_ROUNDS:
        rounds += 1
        bank.ask_for_transfers()
        _wait_for_more(bank, books)
        if broker is not None and rounds % LEAST_ROUNDS == 0:
            broker.kill()
            killed = "the broker"
        else:
            killed = bank.kill_a_teller()
        books.read_on(bank.client)
        right &= _tell(bank, books, f"killed {killed}")
        time.sleep(max(0.0, began + rounds - time.monotonic()))
    return right


def _wait_for_more(bank: Bank, books: Books) -> None:
    """So that whoever is killed next is in the middle of something."""
    before = len(books.entries)
    _read_until(lambda: len(books.entries) > before, bank, books)


def _finish(bank: Bank, books: Books) -> None:
    """Wait until nothing is left to do, or nothing happens any more."""
    _read_until(lambda: len(books.entries) >= len(bank.requested) and not books.halves(), bank, books)
    # If something were to come twice, it would be in one of these.
    _read_until(lambda: not any(each.lag for each in bank.client.describe_group("tellers").partitions), bank, books)
    books.read_on(bank.client)
    _tell(bank, books, "all is done")


def _read_until(is_so: Callable[[], bool], bank: Bank, books: Books) -> None:
    """Gives up after a while: what is missing then is told at the end."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.02)
        books.read_on(bank.client)


def _tell(bank: Bank, books: Books, what: str) -> bool:
    total = books.total()
    colour = "green" if total == ALL_MONEY else "bold red"
    say.print(
        f"{time.strftime('%H:%M:%S')} {len(books.entries):6,} of {len(bank.requested):6,} done,"
        f"{books.on_its_way():5,} on its way, total [{colour}]{total:,}[/]  [dim]{what}[/]"
    )
    return total == ALL_MONEY


def _show(books: Books) -> None:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("account")
    table.add_column("balance", justify="right")
    for account in ACCOUNTS:
        table.add_row(account, f"{books.balances[account]:,}")
    say.print()
    say.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description="Transfers between accounts while everything is being killed.")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long to go on (default: 15)")
    parser.add_argument("--server", default="", help="a broker's gRPC address; without, one is started, and killed too")
    parser.add_argument("--seed", default=None, help="repeats the choices of a run")
    parser.add_argument("--teller", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.teller:
        work(given.server, given.teller)
        return 0
    try:
        return run(given.server, given.seconds, random.Random(given.seed))
    except GoQueueError as error:
        if error.code != "topic_exists":
            raise
        say.print(f"[bold red]{error}[/]; delete the topics 'transfers' and 'accounts' to open the bank again")
        return 2


if __name__ == "__main__":
    # So that ``finally`` clears up when somebody ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
