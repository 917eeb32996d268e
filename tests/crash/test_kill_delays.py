"""Delayed messages while their broker is killed, again and again: each is delivered once, none before its time.

``GOQUEUE_KILLS`` says how often (3 unless told otherwise), ``GOQUEUE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from random import Random

import grpc
import pytest
from doubles.grpc_workers import PATIENCE_S, Calls, Workers

from goqueue.model.runs import to_runs
from goqueue.testing import BrokerProcess
from goqueue.wire.batch import join_frames, parse_batch
from goqueue.wire.decoding import decode_run
from goqueue.wire.delayed import due_header
from goqueue.wire.frame import Flag, encode_frame, encode_headers
from goqueue.wire.proto import goqueue_pb2 as pb

KILLS = int(os.environ.get("GOQUEUE_KILLS", "3"))
TOPIC, GROUP = "t", "g"
PARTITIONS = 2
CONSUMERS = 2
CALL_S = 10.0
MS = 1_000_000
SHORTEST_MS, LONGEST_MS = 50, 2_000
LONG_ENOUGH_MS = 700
"""Those that are delayed by more are sometimes cancelled or put off."""
VISIBILITY_MS = 1_500


@pytest.fixture
def rng() -> Random:
    seed = os.environ.get("GOQUEUE_SEED") or str(time.time_ns())
    print(f"GOQUEUE_SEED={seed}")  # noqa: T201
    return Random(seed)


class Ledger:
    """By value: what was sent and answered, and what consumers got."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.moment = 0
        self.dues: dict[bytes, int] = {}
        """Everything that was sent, and when it is due at the earliest, if at all."""
        self.published: set[bytes] = set()
        self.cancelled: set[bytes] = set()
        self.may_cancel: set[bytes] = set()
        self.offsets: dict[bytes, tuple[int, int]] = {}
        self.acked: dict[bytes, int] = {}
        self.may_ack: set[bytes] = set()
        self.problems: list[str] = []

    def now(self) -> int:
        with self.changed:
            self.moment += 1
            return self.moment

    def delivered(self, value: bytes, place: tuple[int, int], polled_at: int, received_ns: int) -> None:
        with self.changed:
            self.moment += 1
            known = self.offsets.setdefault(value, place)
            if known != place:
                self.problems.append(f"{value!r} became visible twice: at {known} and at {place}")
            if value not in self.dues:
                self.problems.append(f"{value!r} was never sent")
            elif received_ns < self.dues[value]:
                self.problems.append(f"{value!r} came {self.dues[value] - received_ns} ns before its time")
            if value in self.cancelled:
                self.problems.append(f"{value!r} was cancelled and came")
            if self.acked.get(value, polled_at) < polled_at:
                self.problems.append(f"{value!r} was acked and came again")

    def wait_for_acks(self, more: int) -> None:
        with self.changed:
            goal = len(self.acked) + more
            met = self.changed.wait_for(lambda: self.problems or len(self.acked) >= goal, PATIENCE_S)
            assert met, f"only {len(self.acked)} of {goal} acks came"


class Producer:
    def __init__(self, calls: Calls, ledger: Ledger, rng: Random, name: bytes) -> None:
        self._calls, self._ledger, self._rng, self._name = calls, ledger, rng, name
        self._serial = 0

    def step(self) -> None:
        """Publish a few, and change one's mind about some of them."""
        delays_ms = [self._rng.randint(SHORTEST_MS, LONGEST_MS) for _ in range(self._rng.randint(1, 20))]
        values = [self._frame_value() for _ in delays_ms]
        now_ns = time.time_ns()
        frames = []
        for value, delay_ms in zip(values, delays_ms, strict=True):
            relative = self._rng.random() < 0.5
            header = due_header(delay_ms * MS + (0 if relative else now_ns), relative=relative)
            frames.append(encode_frame(b"", value, encode_headers((header,)), now_ns, flags=int(Flag.DELAYED)))
        with self._ledger.changed:
            self._ledger.dues |= {value: now_ns + each * MS for value, each in zip(values, delays_ms, strict=True)}
        partition = self._rng.randrange(PARTITIONS)
        request = pb.PublishRequest(topic=TOPIC, partition=partition, batch=join_frames(frames, now_ns).to_wire())
        answer = self._calls.messages.Publish(request, timeout=CALL_S)
        assert answer.WhichOneof("result") == "stored", answer
        with self._ledger.changed:
            self._ledger.published.update(values)
        for number, (value, delay_ms) in enumerate(zip(values, delays_ms, strict=True)):
            chance = self._rng.random()
            if delay_ms > LONG_ENOUGH_MS and chance < 0.2:
                place = {"topic": TOPIC, "partition": partition, "offset": answer.stored.first_offset + number}
                self._change(value, place, cancel=chance < 0.1)

    def _frame_value(self) -> bytes:
        self._serial += 1
        return b"%b-%d" % (self._name, self._serial)

    def _change(self, value: bytes, place: dict[str, object], *, cancel: bool) -> None:
        ledger, delays = self._ledger, self._calls.delays
        try:
            if cancel:
                with ledger.changed:
                    ledger.may_cancel.add(value)
                delays.CancelDelayed(pb.CancelDelayedRequest(**place), timeout=CALL_S)
                with ledger.changed:
                    ledger.cancelled.add(value)
                    if value in ledger.offsets:
                        ledger.problems.append(f"{value!r} had come when it was cancelled")
            else:
                later_ns = time.time_ns() + self._rng.randint(LONG_ENOUGH_MS, LONGEST_MS) * MS
                with ledger.changed:
                    ledger.dues[value] = min(ledger.dues[value], later_ns)
                delays.RescheduleDelayed(pb.RescheduleDelayedRequest(**place, deliver_at_ns=later_ns), timeout=CALL_S)
                with ledger.changed:
                    ledger.dues[value] = later_ns
        except grpc.RpcError as error:
            # It may have become visible meanwhile: after a restart everything took longer.
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
            with ledger.changed:
                ledger.may_cancel.discard(value)


class Consumer:
    def __init__(self, calls: Calls, ledger: Ledger, rng: Random, *, forgetful: float = 0.1) -> None:
        self._calls, self._ledger, self._rng = calls, ledger, rng
        self._forgetful = forgetful
        self._member = ""

    def step(self) -> None:
        if not self._member:
            request = pb.JoinRequest(group=GROUP, client_id="c", topics=[TOPIC], settings={"kind": "shared"})
            self._member = self._calls.groups.Join(request, timeout=CALL_S).member_id
        polled_at = self._ledger.now()
        request = pb.PollRequest(group=GROUP, member_id=self._member, max_messages=30, wait_ms=200)
        deliveries = self._calls.groups.Poll(request, timeout=CALL_S).deliveries
        received_ns = time.time_ns()
        for delivery in deliveries:
            values = {message.offset: message.value for message in decode_run(parse_batch(delivery.batch))[0]}
            for offset, value in values.items():
                self._ledger.delivered(value, (delivery.partition, offset), polled_at, received_ns)
            if self._rng.random() >= self._forgetful:
                self._ack(delivery, values)

    def _ack(self, delivery: pb.Delivery, values: dict[int, bytes]) -> None:
        claim = pb.LeaseClaim(
            topic=delivery.topic,
            partition=delivery.partition,
            lease=delivery.lease,
            deliveries=delivery.deliveries,
            token=delivery.token,
            runs=to_runs(values),
        )
        with self._ledger.changed:
            self._ledger.may_ack.update(values.values())
        request = pb.SettleRequest(group=GROUP, verb=pb.VERB_ACK, leases=[claim])
        answer = self._calls.groups.Settle(request, timeout=CALL_S)
        # A refusal is no promise: it may have come too late.
        if not answer.refusals and not answer.HasField("error"):
            with self._ledger.changed:
                self._ledger.moment += 1
                for value in values.values():
                    self._ledger.acked.setdefault(value, self._ledger.moment)
                self._ledger.changed.notify_all()


def drain(calls: Calls, ledger: Ledger) -> None:
    """Until nothing waits for its time and the group is done with everything."""
    consumer = Consumer(calls, ledger, Random(0), forgetful=0)
    deadline = time.monotonic() + PATIENCE_S
    while calls.delays.DelayStats(pb.DelayStatsRequest(), timeout=CALL_S).pending or any(
        each.lag for each in calls.groups.DescribeGroup(pb.DescribeGroupRequest(name=GROUP)).partitions
    ):
        assert time.monotonic() < deadline, "some messages never come"
        consumer.step()


def test_every_delayed_message_comes_once_and_in_its_time_through_kills(tmp_path: Path, rng: Random) -> None:
    ledger = Ledger()
    settings = {"storage.checkpoint_interval_ms": "100ms", "storage.min_free_bytes": "0"}
    broker = BrokerProcess(tmp_path, settings=settings)
    calls = Calls(broker.address)
    producers, consumers = Workers(ledger), Workers(ledger)
    try:
        topic_settings = {
            "partitions": str(PARTITIONS),
            "visibility_timeout_ms": str(VISIBILITY_MS),
            "max_retries": "1000",
            "retry_backoff_ms": "0",
            "segment_bytes": "64KiB",
        }
        calls.topics.CreateTopic(pb.CreateTopicRequest(name=TOPIC, settings=topic_settings), timeout=CALL_S)
        for name in (b"a", b"b"):
            producers.start(Producer(calls, ledger, Random(rng.random()), name).step)
        for _ in range(CONSUMERS):
            consumers.start(Consumer(calls, ledger, Random(rng.random())).step)
        for _ in range(KILLS):
            ledger.wait_for_acks(rng.randint(1, 250))
            broker.kill()
            broker = BrokerProcess(tmp_path, grpc_port=broker.grpc_port, settings=settings)
        ledger.wait_for_acks(50)
        producers.end()
        consumers.end()
        assert not ledger.problems, ledger.problems[:10]
        drain(calls, ledger)
        assert not ledger.problems, ledger.problems[:10]
        lost = ledger.published - ledger.may_cancel - ledger.may_ack
        assert not lost, f"{len(lost)} messages are lost, such as {sorted(lost)[:5]}"
        assert ledger.cancelled, "nothing was ever cancelled"
        assert broker.stop() == 0
    finally:
        producers.end()
        consumers.end()
        calls.channel.close()
        if broker.process.poll() is None:
            broker.kill()
    print(f"{len(ledger.published)} published, {len(ledger.acked)} acked, {len(ledger.cancelled)} cancelled")  # noqa: T201
