"""How many messages a second a broker takes if each is checked against a schema, in batches, without a network."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Collection, Mapping

import fastavro
import uvloop

from bench.harness import Measured, note, rounded, scratch_folder
from bench.in_process_broker import TOPIC, broker_over
from goqueue.broker.broker import Broker
from goqueue.broker.registry.schema_draft import SchemaDraft
from goqueue.wire.batch import FrameRun, join_frames
from goqueue.wire.frame import encode_frame

JSON, AVRO = "schema_validate_json", "schema_validate_avro"
_KINDS = {JSON: "JSON", AVRO: "AVRO"}
_BATCH = 1_000
_BATCHES = 100
_RUNS = 5
_FIELDS = {"id": "integer", "customer": "string", "city": "string", "items": "integer", "note": "string"}
_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": "long" if kind == "integer" else "string"} for name, kind in _FIELDS.items()]
    + [{"name": "total", "type": "double"}, {"name": "coupon", "type": ["null", "string"], "default": None}],
}
_JSON = {
    "type": "object",
    "properties": {
        **{name: {"type": kind} for name, kind in _FIELDS.items()},
        "total": {"type": "number", "minimum": 0},
        "coupon": {"type": ["string", "null"], "maxLength": 20},
    },
    "required": [*_FIELDS, "total"],
    "additionalProperties": False,
}


def measure(wanted: Collection[str]) -> Mapping[str, Measured]:
    return {name: uvloop.run(_measure(name)) for name in _KINDS if name in wanted}


async def _measure(name: str) -> Measured:
    values = [_json(number) if name == JSON else _avro(number) for number in range(_BATCH)]
    schema = json.dumps(_JSON if name == JSON else _AVRO)
    with scratch_folder() as folder:
        async with broker_over(folder) as broker:
            rates = {}
            for validation in ("off", "on"):
                topic = f"{TOPIC}-{validation}"
                await broker.create_topic(
                    topic, {"partitions": 1, "fsync": "interval", "schema_validation": validation}
                )
                await broker.schemas.register(f"{topic}-value", SchemaDraft(schema, _KINDS[name]))
                await _publish(broker, topic, values)
                rates[validation] = [await _publish(broker, topic, values) for _ in range(_RUNS)]
                note(f"{name}: validation {validation}: {rounded(max(rates[validation])):,} messages/s")
    size = rounded(sum(map(len, values)) / len(values))
    return Measured(
        rates["on"],
        {"value_bytes": size, "batch_messages": _BATCH, "without_validation": [rounded(each) for each in rates["off"]]},
    )


async def _publish(broker: Broker, topic: str, values: list[bytes]) -> float:
    now_ns = broker.clock.now_ns()
    batch = join_frames([encode_frame(b"", value, b"", now_ns) for value in values], now_ns)
    started = time.perf_counter()
    for _ in range(_BATCHES):
        await broker.publish_frames(topic, 0, FrameRun(memoryview(bytes(batch.frames)), batch.positions))
    return _BATCHES * len(values) / (time.perf_counter() - started)


def _order(number: int) -> dict[str, object]:
    return {
        "id": number,
        "customer": f"customer-{number:08}",
        "city": "Springfield",
        "items": number % 7,
        "note": "please ring twice and leave it with the neighbour if nobody is at home; thank you",
        "total": number * 1.25,
        "coupon": None,
    }


def _json(number: int) -> bytes:
    return json.dumps(_order(number)).encode()


def _avro(number: int) -> bytes:
    order = _order(number)
    # About as large as the same in JSON.
    order["note"] = str(order["note"]) + " and do not forget the stairs behind the house, they are slippery"
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(_AVRO), order)
    return buffer.getvalue()
