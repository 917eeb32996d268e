"""Decodes values that carry a schema id into JSON."""

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
    """Decodes a value to JSON by the schema id in it. Values without an id, or with an unknown one, are returned
    unchanged."""

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
            # The value only looks as if it carried a schema id.
            return value

    def _kind(self, schema_id: int) -> str | None:
        if schema_id not in self._kinds:
            try:
                self._kinds[schema_id] = str(self._client.schemas.get(schema_id).kind)
            except SchemaNotFound:
                self._kinds[schema_id] = None
        return self._kinds[schema_id]


def _plain(read: Any) -> Any:
    """A value that JSON can hold: Protobuf messages become dicts."""
    if hasattr(read, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(read, preserving_proto_field_name=True)
    return read
