"""Consumers that live on while their broker is killed, again and again: nothing acked comes back, nothing is lost.

``GOQUEUE_KILLS`` says how often (3 unless told otherwise), ``GOQUEUE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from doubles.grpc_workers import PATIENCE_S, Calls, Workers

from goqueue.model.runs import to_runs
from goqueue.testing import BrokerProcess
from goqueue.wire.batch import join_frames, parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.frame import encode_frame
from goqueue.wire.proto import goqueue_pb2 as pb

KILLS = int(os.environ.get("GOQUEUE_KILLS", "3"))
TOPIC, GROUP = "t", "g"
PARTITIONS = 3
CONSUMERS = 4
CALL_S = 10.0
VISIBILITY_MS = 1_500


@pytest.fixture
def rng() -> Random:
    seed = os.environ.get("GOQUEUE_SEED") or str(time.time_ns())
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    return Random(seed)


class Ledger:
    """What consumers were told, with the moment of each, so that only what was known before counts."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.moment = 0
        self.sent: set[bytes] = set()
        self.published: set[bytes] = set()
        self.acked: dict[bytes, int] = {}
        self.may_ack: set[bytes] = set()
        self.rejected: dict[bytes, int] = {}
        self.may_reject: set[bytes] = set()
        self.deliveries: dict[bytes, list[tuple[int, int]]] = {}
        """By value: moments and counts."""
        self.problems: list[str] = []

    def now(self) -> int:
        with self.changed:
            self.moment += 1
            return self.moment

    def delivered(self, value: bytes, count: int, polled_at: int) -> None:
        with self.changed:
            self.moment += 1
            if self.acked.get(value, polled_at) < polled_at:
                self.problems.append(f"{value!r} was acked and came again")
            if self.rejected.get(value, polled_at) < polled_at:
                self.problems.append(f"{value!r} was rejected and came again")
            known = [each for moment, each in self.deliveries.get(value, ()) if moment < polled_at]
            if known and count <= max(known):
                self.problems.append(f"{value!r} was delivered {max(known)} times, and then for the {count}. time")
            if value not in self.sent:
                self.problems.append(f"{value!r} was never sent")
            self.deliveries.setdefault(value, []).append((self.moment, count))

    def settled(self, verb: int, values: list[bytes]) -> None:
        with self.changed:
            self.moment += 1
            for value in values:
                if verb == pb.VERB_ACK:
                    self.acked.setdefault(value, self.moment)
                elif verb == pb.VERB_REJECT:
                    self.rejected.setdefault(value, self.moment)
            self.changed.notify_all()

    def wait_for_acks(self, more: int) -> None:
        with self.changed:
            goal = len(self.acked) + more
            met = self.changed.wait_for(lambda: self.problems or len(self.acked) >= goal, PATIENCE_S)
            assert met, f"only {len(self.acked)} of {goal} acks came"


def publish(calls: Calls, ledger: Ledger, rng: Random, serial: int) -> None:
    values = [b"%d-%d" % (serial, place) for place in range(rng.randint(1, 40))]
    frames = [encode_frame(b"", value, b"", time.time_ns()) for value in values]
    with ledger.changed:
        ledger.sent.update(values)
    request = pb.PublishRequest(
        topic=TOPIC, partition=rng.randrange(PARTITIONS), batch=join_frames(frames, time.time_ns()).to_wire()
    )
    answer = calls.messages.Publish(request, timeout=CALL_S)
    assert answer.WhichOneof("result") == "stored", answer
    with ledger.changed:
        ledger.published.update(values)


class Consumer:
    """Polls, and does with each delivery what chance says."""

    def __init__(self, calls: Calls, ledger: Ledger, rng: Random, *, only_acks: bool = False) -> None:
        self._calls, self._ledger, self._rng = calls, ledger, rng
        self._only_acks = only_acks
        self._member = ""

    def step(self) -> None:
        if not self._member:
            request = pb.JoinRequest(group=GROUP, client_id="c", topics=[TOPIC], settings={"kind": "shared"})
            self._member = self._calls.groups.Join(request, timeout=CALL_S).member_id
        polled_at = self._ledger.now()
        request = pb.PollRequest(
            group=GROUP, member_id=self._member, max_messages=self._rng.randint(1, 30), wait_ms=200
        )
        for delivery in self._calls.groups.Poll(request, timeout=CALL_S).deliveries:
            messages = decode_run(parse_batch(delivery.batch))[0]
            for message in messages:
                self._ledger.delivered(message.value, delivery.deliveries, polled_at)
            self._settle(delivery, {message.offset: message.value for message in messages})

    def _settle(self, delivery: Any, values: dict[int, bytes]) -> None:
        chance = self._rng.random()
        verb = pb.VERB_ACK
        if not self._only_acks and chance < 0.3:
            if chance < 0.1:
                return
            verb = pb.VERB_NACK if chance < 0.25 else pb.VERB_REJECT
        with self._ledger.changed:
            if verb == pb.VERB_ACK:
                self._ledger.may_ack.update(values.values())
            elif verb == pb.VERB_REJECT:
                self._ledger.may_reject.update(values.values())
        claim = pb.LeaseClaim(
            topic=delivery.topic,
            partition=delivery.partition,
            lease=delivery.lease,
            deliveries=delivery.deliveries,
            token=delivery.token,
            runs=to_runs(values),
        )
        request = pb.SettleRequest(group=GROUP, verb=verb, delay_ms=0, reason="chance", leases=[claim])
        if verb != pb.VERB_NACK:
            request.ClearField("delay_ms")
        answer = self._calls.groups.Settle(request, timeout=CALL_S)
        # A refusal is no promise: it may have come too late.
        if not answer.refusals and not answer.HasField("error"):
            self._ledger.settled(verb, list(values.values()))


def drain(calls: Calls, ledger: Ledger) -> None:
    """Take everything that is left, until the group is done with every partition."""
    consumer = Consumer(calls, ledger, Random(0), only_acks=True)
    deadline = time.monotonic() + PATIENCE_S
    while any(each.lag for each in calls.groups.DescribeGroup(pb.DescribeGroupRequest(name=GROUP)).partitions):
        assert time.monotonic() < deadline, "some messages never come"
        consumer.step()


def dead_letters(calls: Calls) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    at = (0, 0)
    while True:
        request = pb.ListDeadLettersRequest(topic=TOPIC, limit=1_000, from_partition=at[0], from_offset=at[1])
        letters = calls.groups.ListDeadLetters(request, timeout=CALL_S).dead_letters
        for letter in letters:
            found.update(message.value for message in decode_run(parse_batch(letter.message))[0])
            at = (letter.partition, letter.offset + 1)
        if len(letters) < 1_000:
            return found


def test_nothing_acked_comes_back_and_nothing_is_lost_through_kills_with_many_consumers(
    tmp_path: Path, rng: Random
) -> None:
    ledger = Ledger()
    settings = {"storage.checkpoint_interval_ms": "100ms", "storage.min_free_bytes": "0"}
    broker = BrokerProcess(tmp_path, settings=settings)
    calls = Calls(broker.address)
    workers = Workers(ledger)
    try:
        topic_settings = {
            "partitions": str(PARTITIONS),
            "visibility_timeout_ms": str(VISIBILITY_MS),
            "max_retries": "1000",
            "retry_backoff_ms": "0",
        }
        calls.topics.CreateTopic(pb.CreateTopicRequest(name=TOPIC, settings=topic_settings), timeout=CALL_S)
        serials = iter(range(1 << 30))
        producing = Random(rng.random())
        workers.start(lambda: publish(calls, ledger, producing, next(serials)))
        for _ in range(CONSUMERS):
            workers.start(Consumer(calls, ledger, Random(rng.random())).step)
        for _ in range(KILLS):
            ledger.wait_for_acks(rng.randint(1, 600))
            broker.kill()
            broker = BrokerProcess(tmp_path, grpc_port=broker.grpc_port, settings=settings)
        ledger.wait_for_acks(100)
        workers.end()
        assert not ledger.problems, ledger.problems[:10]
        drain(calls, ledger)
        assert not ledger.problems, ledger.problems[:10]
        check_the_end(ledger, dead_letters(calls))
        assert broker.stop() == 0
    finally:
        workers.end()
        calls.channel.close()
        if broker.process.poll() is None:
            broker.kill()
    print(f"{len(ledger.published)} published, {len(ledger.acked)} acked, {len(ledger.rejected)} rejected")  # noqa: T201


def check_the_end(ledger: Ledger, dead: Counter[bytes]) -> None:
    assert [value for value, times in dead.items() if times > 1] == []
    assert ledger.rejected.keys() <= dead.keys()
    assert dead.keys() <= ledger.may_reject
    assert not dead.keys() & ledger.acked.keys()
    lost = ledger.published - ledger.may_ack - dead.keys()
    assert not lost, f"{len(lost)} messages are lost, such as {sorted(lost)[:5]}"
