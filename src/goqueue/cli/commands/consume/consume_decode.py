"""Values that carry the id of a schema, as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from goqueue.client.schemas.avro_serializers import AvroDeserializer
from goqueue.client.schemas.json_serializers import JsonDeserializer
from goqueue.client.schemas.protobuf_serializers import ProtobufDeserializer
from goqueue.client.sync import Client
from goqueue.model.errors import GoQueueError, SchemaNotFound
from goqueue.wire.registry_framing import parse_schema_id


class Decoder:
    """Makes JSON of a value by the schema that it names. One that names none, or none that is known, stays as it is."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds: dict[int, str | None] = {}
        self._readers: dict[str, Any] = {
            "AVRO": AvroDeserializer(client.schemas),
            "JSON": JsonDeserializer(client.schemas),
            "PROTOBUF": ProtobufDeserializer(client.schemas),
        }

    def __call__(self, value: bytes) -> bytes:
        schema_id = parse_schema_id(value)
        kind = None if schema_id is None else self._kind(schema_id)
        if kind is None:
            return value
        try:
            return msgspec.json.encode(_plain(self._readers[kind](value)), enc_hook=str)
        except GoQueueError as error:
            if error.retriable:
                raise
            # It only looks as if it had a schema.
            return value

    def _kind(self, schema_id: int) -> str | None:
        if schema_id not in self._kinds:
            try:
                self._kinds[schema_id] = str(self._client.schemas.get(schema_id).kind)
            except SchemaNotFound:
                self._kinds[schema_id] = None
        return self._kinds[schema_id]


def _plain(read: Any) -> Any:
    """What JSON can hold: a message of Protobuf becomes an object."""
    if hasattr(read, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(read, preserving_proto_field_name=True)
    return read
