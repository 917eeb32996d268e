"""Validation of payloads in the schema registry's wire format, after the schema id."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.model.errors import InvalidMessage
from goqueue.schemas.base import ParsedSchema, Validator
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema
from goqueue.schemas.protobuf.protobuf_validator import most_on_loop
from goqueue.wire.registry_framing import decode_message_indexes


def framed_validator(schema: ParsedSchema) -> Validator:
    """Validator for payloads after the schema id. A Protobuf payload starts with the indexes of its message."""
    return _FramedProtobuf(schema) if isinstance(schema, ProtobufSchema) else schema.validator()


class _FramedProtobuf:
    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema
        self._validators: dict[tuple[int, ...], Validator] = {}
        self.most_on_loop = most_on_loop(schema.own_messages())

    def check(self, values: Sequence[bytes]) -> list[str | None]:
        found: list[str | None] = []
        for value in values:
            try:
                indexes, start = decode_message_indexes(value, 0)
            except InvalidMessage as error:
                found.append(f"behind the schema's id there is no list that tells which message it is: {error}")
                continue
            validator = self._validator(indexes)
            found += ["the schema has no such message"] if validator is None else validator.check([value[start:]])
        return found

    def _validator(self, indexes: tuple[int, ...]) -> Validator | None:
        known = self._validators.get(indexes)
        if known is None:
            message = self._schema.message_at(indexes)
            if message is None:
                # Not cached: there is no bound on the number of indexes that lead to no message.
                return None
            known = self._validators[indexes] = self._schema.validator_for(message)
        return known
