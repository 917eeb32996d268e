"""Protobuf messages in Spark: Arrow types of messages, columns from messages, and messages from rows.

Columns are built field by field for all messages of a batch at once, which is faster than message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from goqueue.model.errors import InvalidMessage, InvalidSchema
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema

Column = Callable[[Sequence[Any]], pa.Array]
"""Converts the values of a field, one per message, to an Arrow array."""

_WELL_KNOWN = "google.protobuf."
_INSTANTS = {f"{_WELL_KNOWN}Timestamp": pa.timestamp("us", "UTC"), f"{_WELL_KNOWN}Duration": pa.duration("us")}
_WRAPPERS = {
    f"{_WELL_KNOWN}{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_ANY_JSON = {f"{_WELL_KNOWN}{each}" for each in ("Struct", "Value", "ListValue")}
"""Messages that may hold any value; in Spark a STRING with JSON."""
_SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
_MICROS = 1_000_000


def protobuf_message(schema: ProtobufSchema, name: str) -> Descriptor:
    """The schema's message with this full name, or this name in its package; the first if ``name`` is empty."""
    if not name:
        found = schema.first_message()
        if found is None:
            raise InvalidSchema("the schema declares no message, so no value can be one")
        return found
    package = schema.descriptor.package
    found = schema.message_named(name) or schema.message_named(f"{package}.{name}" if package else name)
    if found is None:
        own = ", ".join(sorted(each.full_name for each in schema.own_messages())[:10])
        raise InvalidSchema(f"the schema has no message {name!r}; it has {own}")
    return found


def protobuf_type(message: Descriptor, path: str = "", ancestors: tuple[str, ...] = ()) -> pa.DataType:
    """The Arrow type of a message; raises ``InvalidSchema`` if it is recursive."""
    name = message.full_name
    if name in _INSTANTS:
        return _INSTANTS[name]
    if name in _ANY_JSON:
        return pa.string()
    if name in _WRAPPERS:
        return _value_type(message.fields_by_name["value"], path, ancestors)
    if name in ancestors:
        raise InvalidSchema(
            f"{path or 'the schema'}: {name} lies within itself; Spark has no type for that. Use a version of the "
            "schema that does not"
        )
    inside = (*ancestors, name)
    return pa.struct([pa.field(each.name, _field_type(each, f"{path}.{each.name}", inside)) for each in message.fields])


def _field_type(field: FieldDescriptor, path: str, ancestors: tuple[str, ...]) -> pa.DataType:
    if (entry := _entry(field)) is not None:
        return pa.map_(_value_type(entry["key"], path, ancestors), _value_type(entry["value"], path, ancestors))
    found = _value_type(field, path, ancestors)
    return pa.list_(pa.field("element", found)) if field.is_repeated else found


def _value_type(field: FieldDescriptor, path: str, ancestors: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        return protobuf_type(field.message_type, path, ancestors)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    return _SCALARS[field.cpp_type]


def _entry(field: FieldDescriptor) -> Mapping[str, FieldDescriptor] | None:
    """The key and value fields of a map field; ``None`` if it is no map."""
    inner = field.message_type
    return inner.fields_by_name if inner is not None and inner.GetOptions().map_entry else None


def protobuf_columns(message: Descriptor) -> Column:
    """A function that converts messages, none of which may be ``None``, to Arrow."""
    name = message.full_name
    if name in _INSTANTS:
        arrow = _INSTANTS[name]
        return lambda messages: pa.array([each.seconds * _MICROS + each.nanos // 1_000 for each in messages], arrow)
    if name in _ANY_JSON:
        return lambda messages: pa.array(
            [json_format.MessageToJson(each, indent=None) for each in messages], pa.string()
        )
    if name in _WRAPPERS:
        return _field_column(message.fields_by_name["value"])
    fields = list(protobuf_type(message))
    columns = [_field_column(each) for each in message.fields]

    def struct(messages: Sequence[Message]) -> pa.Array:
        if not fields:
            return pa.array([{}] * len(messages), pa.struct([]))
        return pa.StructArray.from_arrays([each(messages) for each in columns], fields=fields)

    return struct


def _field_column(field: FieldDescriptor) -> Column:
    get = attrgetter(field.name)
    if (entry := _entry(field)) is not None:
        return _map_column(entry, get)
    values = _value_column(field)
    if field.is_repeated:
        return lambda messages: _list_column([get(each) for each in messages], values)
    if not field.has_presence or field.has_default_value:
        return lambda messages: values([get(each) for each in messages])
    name = field.name
    if field.message_type is None:
        return lambda messages: values([get(each) if each.HasField(name) else None for each in messages])

    def optional(messages: Sequence[Message]) -> pa.Array:
        found = values([get(each) for each in messages])
        missing = pa.array([not each.HasField(name) for each in messages], pa.bool_())
        return pa.compute.if_else(missing, pa.scalar(None, found.type), found)

    return optional


def _value_column(field: FieldDescriptor) -> Column:
    if field.message_type is not None:
        return protobuf_columns(field.message_type)
    arrow = _value_type(field, "", ())
    if field.enum_type is None:
        return lambda values: pa.array(values, arrow)
    names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
    # A value written with a newer schema may have numbers that this one does not know.
    return lambda values: pa.array([None if each is None else names.get(each, str(each)) for each in values], arrow)


def _list_column(lists: list[Any], values: Column) -> pa.Array:
    found = values(list(chain.from_iterable(lists)))
    kind = pa.list_(pa.field("element", found.type))
    return pa.ListArray.from_arrays(_offsets(lists), found, type=kind)


def _map_column(entry: Mapping[str, FieldDescriptor], get: Callable[[Any], Any]) -> Column:
    keys, values = _value_column(entry["key"]), _value_column(entry["value"])

    def column(messages: Sequence[Message]) -> pa.Array:
        maps = [get(each) for each in messages]
        # Looking up a key in a map of messages creates an entry, so keys and values are read from its items.
        entries = [each for some in maps for each in some.items()]
        return pa.MapArray.from_arrays(
            _offsets(maps), keys([key for key, _ in entries]), values([value for _, value in entries])
        )

    return column


def _offsets(lists: list[Any]) -> pa.Array:
    offsets = [0]
    for each in lists:
        offsets.append(offsets[-1] + len(each))
    return pa.array(offsets, pa.int32())


def protobuf_builder(message: Descriptor) -> Callable[[Any], Message]:
    """A function that builds a message from a row; ``InvalidMessage`` names the field that does not fit."""
    message_class, ready = GetMessageClass(message), _change(message)

    def make(row: Any) -> Message:
        given = row if ready is None else ready(row)
        try:
            return message_class(**given)
        except (TypeError, ValueError) as error:
            raise InvalidMessage(_find_misfit(message, given) or str(error)) from None

    return make


def _change(message: Descriptor) -> Callable[[Any], Any] | None:
    """The conversion that a value from Arrow needs before a message accepts it; ``None`` if it needs none."""
    name = message.full_name
    if name in _INSTANTS:
        return lambda micros: {"seconds": micros // _MICROS, "nanos": micros % _MICROS * 1_000}
    if name in _ANY_JSON:
        made = GetMessageClass(message)
        return lambda text: json_format.Parse(text, made())
    if name in _WRAPPERS:
        inner = _value_change(message.fields_by_name["value"])
        return lambda value: {"value": value if inner is None else inner(value)}
    changes = {each.name: found for each in message.fields if (found := _field_change(each)) is not None}
    if not changes:
        return None

    def change(row: Any) -> Any:
        made = dict(row)
        for key, each in changes.items():
            if made.get(key) is not None:
                try:
                    made[key] = each(made[key])
                except (ValueError, TypeError, AttributeError, json_format.ParseError, msgspec.MsgspecError) as error:
                    raise InvalidMessage(f"{key}: {error}") from None
        return made

    return change


def _field_change(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if (entry := _entry(field)) is not None:
        key, value = _value_change(entry["key"]), _value_change(entry["value"])
        if key is None and value is None:
            return None
        return lambda row: {(key(k) if key else k): (value(v) if value else v) for k, v in row.items()}
    change = _value_change(field)
    if change is None or not field.is_repeated:
        return change
    return lambda row: [change(each) for each in row]


def _value_change(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if field.message_type is not None:
        return _change(field.message_type)
    if field.enum_type is not None:
        # A number without a known name is decoded as its digits, so digits are encoded as a number.
        return lambda name: int(name) if name.lstrip("-").isdigit() else name
    return int if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else None


def _find_misfit(message: Descriptor, given: Any, path: str = "") -> str | None:
    """The path of the first field that does not fit, and the reason; ``None`` if none is found."""
    if not isinstance(given, dict):
        return None
    for name, value in given.items():
        field = message.fields_by_name.get(name)
        if field is None:
            return f"{path}{name}: {message.full_name} has no such field"
        try:
            GetMessageClass(message)(**{name: value})
        except (TypeError, ValueError) as error:
            inner = field.message_type
            parts = value if field.is_repeated and isinstance(value, list) else [value]
            found = [_find_misfit(inner, each, f"{path}{name}.") for each in parts] if inner is not None else []
            return next(filter(None, found), None) or f"{path}{name}: {error}"
    return None
