from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

import goqueue
from goqueue import AsyncClient, ClientConfig, ConsumerConfig, Outgoing, ProducerConfig
from goqueue.client.connection.instants import from_nanoseconds, to_nanoseconds
from goqueue.client.consumer.reader import to_start
from goqueue.client.messages.outgoing_message import Encoder
from goqueue.client.messages.serializers import as_text, from_json, to_bytes, to_json
from goqueue.model.errors import (
    GoQueueError,
    InvalidConfiguration,
    InvalidMessage,
    InvalidRequest,
    MessageTooLarge,
    TimestampOutOfRange,
)


@pytest.mark.parametrize("name", goqueue.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(goqueue, name)
    assert name == "__version__" or (found.__doc__ or "").strip()


def test_the_errors_that_users_catch_are_within_reach() -> None:
    from goqueue import errors

    for name in ("BrokerUnavailable", "BufferFull", "DeliveryTimeout", "TopicExists", "TopicNotFound"):
        assert issubclass(getattr(errors, name), goqueue.GoQueueError)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        goqueue.nonsense  # noqa: B018


def test_importing_goqueue_loads_neither_grpc_nor_numpy() -> None:
    script = "import sys, goqueue; sys.exit(any(name in sys.modules for name in ('grpc', 'numpy', 'uvicorn')))"
    assert subprocess.run([sys.executable, "-W", "error", "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("kind", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_every_option_has_a_default(kind: type) -> None:
    kind()


def test_options_that_do_not_exist_are_refused_with_all_that_do() -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        AsyncClient("localhost:1", nonsense=1, rubbish=2)
    for name in ("nonsense", "rubbish", *ClientConfig.__dataclass_fields__):
        assert name in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch_messages": 0}, "batch_messages"),
        ({"linger_ms": -1}, "linger_ms"),
        ({"acks": "some"}, "acks"),
        ({"block": "perhaps"}, "block"),
        ({"buffer_bytes": 1}, "buffer_bytes"),
        ({"delivery_timeout_ms": "soon"}, "delivery_timeout_ms"),
    ],
)
def test_values_out_of_bounds_are_refused_by_name(options: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidConfiguration, match=named):
        ProducerConfig(**options)  # type: ignore[arg-type]


def test_every_value_out_of_bounds_is_named_at_once() -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        ProducerConfig(batch_messages=0, linger_ms=-1)
    assert "batch_messages" in str(refusal.value)
    assert "linger_ms" in str(refusal.value)


def test_options_may_be_written_with_units() -> None:
    config = ProducerConfig(delivery_timeout_ms="2m", buffer_bytes="1MiB")  # type: ignore[arg-type]
    assert (config.delivery_timeout_ms, config.buffer_bytes) == (120_000, 1 << 20)


@pytest.mark.parametrize("addresses", [[], "", [""], [None], [1]])
def test_a_client_needs_addresses(addresses: object) -> None:
    with pytest.raises(InvalidConfiguration, match="address"):
        AsyncClient(addresses)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "address", ["http://localhost:9090", "localhost", "localhost:", "localhost:http", ":9090", "host:99999", "a b:1"]
)
def test_an_address_that_cannot_be_one_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        AsyncClient(["localhost:9090", address])
    assert f"{address!r} is not like HOST:PORT" in str(refusal.value)


@pytest.mark.parametrize("address", ["localhost:9090", "[::1]:9090", "mq.example:1", "dns:///mq.example:9090"])
def test_addresses_that_grpc_knows_are_taken(address: str) -> None:
    AsyncClient(address)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Outgoing(1), InvalidMessage),
        (Outgoing("\ud800"), InvalidMessage),
        (Outgoing(b"v", key=7), InvalidMessage),  # type: ignore[arg-type]
        (Outgoing(b"v", key="\ud800"), InvalidMessage),
        (Outgoing(b"v", key="k" * 65_536), MessageTooLarge),
        (Outgoing(None), InvalidMessage),
        (Outgoing(b"v", headers={"h": 1}), InvalidMessage),  # type: ignore[dict-item]
        (Outgoing(b"v", headers={1: b""}), InvalidMessage),  # type: ignore[dict-item]
        (Outgoing(b"v", headers={"goqueue-x": b""}), InvalidMessage),
        (Outgoing(b"v", headers={"h": b"x" * 70_000}), MessageTooLarge),
        (Outgoing(b"v", priority=5), InvalidMessage),
        (Outgoing(b"v", priority=300), InvalidMessage),
        (Outgoing(b"v", priority="urgent"), InvalidMessage),
        (Outgoing(b"v", timestamp=datetime(2024, 1, 1)), InvalidRequest),
        (Outgoing(b"v", timestamp=datetime(1969, 1, 1, tzinfo=UTC)), TimestampOutOfRange),
        (Outgoing(b"v", timestamp=1 << 64), TimestampOutOfRange),
        (Outgoing(b"v", delay=timedelta(days=74_000)), InvalidMessage),
        (Outgoing(b"v", delay=1e200), InvalidMessage),
        (Outgoing(b"v", delay=1e300), InvalidRequest),
        (Outgoing(b"v", delay=float("nan")), InvalidRequest),
        (Outgoing(b"v", delay=float("inf")), InvalidRequest),
        (Outgoing(b"v", delay="5s"), InvalidRequest),  # type: ignore[arg-type]
        (Outgoing(b"v", delay=True), InvalidRequest),
        (Outgoing(b"v", deliver_at=datetime(2040, 1, 1)), InvalidRequest),
        (Outgoing(b"v", deliver_at="2040-01-01"), InvalidRequest),  # type: ignore[arg-type]
        (Outgoing(b"v", deliver_at=1.5), InvalidRequest),  # type: ignore[arg-type]
        (Outgoing(b"v", deliver_at=1 << 63), InvalidMessage),
        (Outgoing(b"v", delay=1, deliver_at=1), InvalidMessage),
        (Outgoing(b"v", delay=0, deliver_at=0), InvalidMessage),
        (Outgoing(b"v", delay=1, headers={"h": b"x" * 65_450}), MessageTooLarge),
        (Outgoing(b"x" * (2 << 20)), MessageTooLarge),
    ],
)
def test_a_message_that_no_broker_takes_is_refused_before_it_leaves(
    message: Outgoing, error: type[GoQueueError]
) -> None:
    with pytest.raises(error):
        Encoder(to_bytes, 2 << 20).encode(message)


def test_a_serializer_may_return_a_text() -> None:
    frame, _ = Encoder(lambda value: f"<{value}>", 2 << 20).encode(Outgoing(7))  # type: ignore[arg-type, return-value]
    assert frame.endswith(b"<7>")


def test_a_serializer_that_returns_something_else_is_a_clear_error() -> None:
    with pytest.raises(InvalidMessage, match="int"):
        Encoder(lambda value: 7, 2 << 20).encode(Outgoing(7))  # type: ignore[arg-type, return-value]


def test_json_and_text_go_there_and_back() -> None:
    value = {"a": [1, 2.5, None, "ü"]}
    assert from_json(to_json(value)) == value
    assert as_text(to_bytes("ü")) == "ü"


@pytest.mark.parametrize("value", [b"v", bytearray(b"v"), memoryview(b"v"), "v"])
def test_bytes_and_texts_need_no_serializer(value: object) -> None:
    assert to_bytes(value) == b"v"


@pytest.mark.parametrize("start", [-1, 1 << 63, "middle", 1.5, None])
def test_a_start_that_makes_no_sense_is_refused(start: object) -> None:
    with pytest.raises(InvalidRequest):
        to_start(start)  # type: ignore[arg-type]


def test_datetimes_keep_their_microseconds_both_ways() -> None:
    moment = datetime(2026, 7, 1, 12, 30, 15, 123_457, tzinfo=timezone(timedelta(hours=2)))
    assert to_nanoseconds(moment) % 1_000_000_000 == 123_457_000
    assert from_nanoseconds(to_nanoseconds(moment)) == moment
