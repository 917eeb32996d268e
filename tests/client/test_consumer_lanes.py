"""What a consumer has fetched ahead does not keep urgent messages waiting."""

from __future__ import annotations

from goqueue import Outgoing
from goqueue.testing import BrokerProcess


def test_a_critical_message_overtakes_what_was_fetched_ahead(broker: BrokerProcess) -> None:
    with broker.client() as client, client.producer() as producer:
        client.create_topic("alerts", partitions=1)
        producer.send_many("alerts", [Outgoing(b"report %d" % number, priority="background") for number in range(300)])
        with client.consumer("wardens", "alerts", kind="shared") as consumer:
            assert consumer.poll(1, timeout=30)[0].value == b"report 0"
            producer.send("alerts", b"fire", priority="critical").result()
            waited = 0
            while (message := consumer.poll(1, timeout=30)[0]).value != b"fire":
                waited += 1
                message.ack().result()
            # It has to come from the broker, but not to wait for 299 reports.
            assert waited < 250
            rest = [message.value]
            while len(rest) < 300 - waited:
                rest += [each.value for each in consumer.poll(100, timeout=30)]
            assert rest[1:] == [b"report %d" % number for number in range(waited + 1, 300)]


def test_shares_of_full_lanes_are_seen_as_the_broker_gives_them(broker: BrokerProcess) -> None:
    with broker.client() as client, client.producer() as producer:
        client.create_topic("mixed", partitions=2)
        producer.send_many("mixed", [Outgoing(b"x", priority=number % 5) for number in range(40_000)])
        with client.consumer("readers", "mixed", kind="shared") as consumer:
            served = [0] * 5
            while sum(served) < 12_000:
                batch = consumer.poll(100, timeout=30)
                for message in batch:
                    served[message.priority] += 1
                consumer.ack(batch)
        total = sum(served)
        for lane, share in enumerate((50, 25, 15, 7, 3)):
            assert abs(100 * served[lane] / total - share) <= 2, served
