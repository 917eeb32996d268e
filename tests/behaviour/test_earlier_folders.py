"""Data folders that earlier versions made, as they left them: all that those had acknowledged is there (rule 4)."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from behaviour.clock import ManualClock
from behaviour.earlier_folders.make import TOLD
from behaviour.host import Host, config_for
from behaviour.http_member import answered, refused, settle
from goqueue.storage.files.data_folder import FORMAT_VERSION

FOLDERS = Path(__file__).parent / "earlier_folders"
WITH_GROUPS = [2, 3, 4]
WITH_NAMES = [4]
NS_PER_S, A_MINUTE_S = 1_000_000_000, 60


@dataclass
class Opened:
    host: Host
    client: httpx.Client
    told: dict[str, Any]

    def get(self, path: str, **query: Any) -> Any:
        return answered(self.client.get(path, params=query))

    def values(self, topic: str) -> list[str]:
        return [each["value"] for each in self.get(f"/topics/{topic}/messages")["messages"]]


@pytest.fixture(params=[1, *WITH_GROUPS], ids="format {}".format)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    with tarfile.open(FOLDERS / f"format-{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    told = json.loads((tmp_path / TOLD).read_text())
    # Sessions, transactions and retention have not run out: the folder is opened when it was made.
    clock = ManualClock(int((told["made_at_s"] + A_MINUTE_S) * NS_PER_S))
    host = Host(config_for(tmp_path / "data"), http=True, clock=clock)
    with httpx.Client(base_url=host.url, timeout=60, trust_env=False) as client:
        yield Opened(host, client, told)
        host.stop()
    again = Host(config_for(tmp_path / "data"), clock=clock)
    again.stop()


def test_the_newest_kept_folder_is_of_the_format_that_is_written_now() -> None:
    """Who raises the format keeps a folder of the one before (``earlier_folders/make.py``)."""
    kept = [int(path.name.removeprefix("format-").removesuffix(".tar.gz")) for path in FOLDERS.glob("*.tar.gz")]
    assert max(kept) in {FORMAT_VERSION, FORMAT_VERSION - 1}
    assert sorted(kept) == list(range(1, max(kept) + 1))


def test_rule_4_every_message_of_an_earlier_folder_is_where_it_was_acknowledged(opened: Opened) -> None:
    for topic, messages in opened.told["messages"].items():
        for told in messages:
            path = f"/topics/{topic}/partitions/{told['partition']}/messages"
            [found] = opened.get(path, offset=told["offset"], limit=1)["messages"]
            assert {name: found.get(name) for name in told if name != "partition"} == {
                name: value for name, value in told.items() if name != "partition"
            }
    assert "gone" not in opened.get("/topics")["topics"]
    assert opened.get("/topics/profiles")["settings"]["cleanup"] == "compact"


@pytest.mark.parametrize("opened", WITH_GROUPS, indirect=True)
def test_rule_4_acks_deliveries_and_dead_letters_of_an_earlier_folder_count(opened: Opened) -> None:
    told = opened.told
    rest = opened.get("/groups/workers/poll", member_id=told["member"], max_messages=10, timeout="0s")["messages"]
    assert sorted((each["value"], each["deliveries"]) for each in rest) == [
        ("job 1", 2), ("job 4", 2), ("job 5", 1),
    ]  # fmt: skip
    assert settle(opened.client, "ack", [each["receipt_handle"] for each in rest]).status_code == 200
    assert [each["lag"] for each in opened.get("/groups/workers")["lag"]] == [0]
    [letter] = opened.get("/topics/jobs/dead-letters")["messages"]
    assert (letter["value"], letter["error"]) == ("job 2", "no such card")


@pytest.mark.parametrize("opened", WITH_GROUPS, indirect=True)
def test_rule_4_a_receipt_of_an_earlier_folder_is_understood(opened: Opened) -> None:
    assert settle(opened.client, "ack", opened.told["acked_receipt"]).status_code in {200, 410}
    wrong = opened.told["held_receipt"].replace(":3:1:", ":4:1:")
    refused(settle(opened.client, "ack", wrong), 400, "invalid_receipt")


@pytest.mark.parametrize("opened", WITH_GROUPS, indirect=True)
def test_rule_4_delays_and_schemas_of_an_earlier_folder_are_kept(opened: Opened) -> None:
    delayed, [found] = opened.told["delayed"], opened.get("/topics/orders/delayed")["messages"]
    assert (found["partition"], found["offset"]) == (delayed["partition"], delayed["offset"])
    assert found["deliver_at"].startswith("2200-01-01T00:00:00")
    assert opened.client.get("/subjects/orders-value/versions/latest").json()["id"] == opened.told["schema_id"]


@pytest.mark.parametrize("opened", WITH_GROUPS, indirect=True)
def test_rule_4_transactions_and_producer_ids_of_an_earlier_folder_are_valid(opened: Opened) -> None:
    assert opened.values("payments") == ["committed"]
    prepared = opened.told["prepared"]
    assert opened.get(f"/transactions/{prepared}")["state"] == "prepared"
    answered(opened.client.post("/transactions/commit", json=opened.told["preparer"]))
    assert opened.values("payments") == ["committed", "prepared"]
    identity = opened.told["producer"]
    answered(opened.client.post("/transactions/begin", json=identity))
    more = {**identity, "topic": "payments", "partition": 0, "value": "of the same producer"}
    answered(opened.client.post("/transactions/publish", json=more))
    answered(opened.client.post("/transactions/commit", json=identity))
    assert opened.values("payments") == ["committed", "prepared", "of the same producer"]


@pytest.mark.parametrize("opened", WITH_NAMES, indirect=True)
def test_rule_4_names_and_commit_keys_of_an_earlier_folder_count(opened: Opened) -> None:
    told, client = opened.told, opened.client
    assert opened.values("invoices") == ["of first"]
    path = "/transactions/keys/job%231"
    assert opened.get(path)["transactions"] == [told["committed"]]
    again = {"key": told["key"], "transactions": [told["named"]]}
    assert not answered(client.post("/transactions/commit-many", json=again))["is_new"]
    assert opened.get(f"/transactions/{told['named']}")["state"] == "prepared"
    # The process goes on with the id that it had, and whoever begins under its name fences it.
    answered(client.post("/transactions/commit", json=told["second"]))
    assert opened.values("invoices") == ["of first", "of second"]
    answered(client.post("/transactions/begin", json=told["second"]))
    more = {**told["second"], "topic": "invoices", "partition": 0, "value": "left open"}
    answered(client.post("/transactions/publish", json=more))
    made = answered(client.post("/producers/init", json={"transactional_id": "second"}))
    assert made["producer_id"] != told["second"]["producer_id"]
    refused(client.post("/transactions/begin", json=told["second"]), 409, "producer_fenced")
    answered(client.post("/transactions/commit-many", json={"key": "job#2", "transactions": []}))
    assert opened.values("invoices") == ["of first", "of second"]
