"""Parser for the values of options and the defaults of fields in ``.proto`` text."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Literal, TypeAlias

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from goqueue.schemas.base import MAX_DEPTH
from goqueue.schemas.protobuf.proto_tokens import (
    END,
    MAX_DIGITS,
    NUMBER,
    SIGN,
    STRING,
    WORD,
    Tokens,
    is_fraction,
    is_whole,
    shortened,
    whole,
)

FieldType: TypeAlias = FieldDescriptorProto.Type.ValueType

_SIGNED = ("int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64")
_UNSIGNED = ("uint32", "uint64", "fixed32", "fixed64")
SCALAR_TYPES: dict[str, FieldType] = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (*_SIGNED, *_UNSIGNED, "double", "float", "bool", "string", "bytes")
}
_WHOLE_BOUNDS = {
    **{SCALAR_TYPES[name]: (-(1 << int(name[-2:]) - 1), (1 << int(name[-2:]) - 1) - 1) for name in _SIGNED},
    **{SCALAR_TYPES[name]: (0, (1 << int(name[-2:])) - 1) for name in _UNSIGNED},
}
_BYTES_ESCAPES = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}


@dataclass(frozen=True, slots=True)
class NamePart:
    """One part of an option's name: ``deprecated``, or ``(acme.owner)``, which names an extension."""

    name: str
    is_extension: bool


ValueKind = Literal["word", "number", "string", "message"]


@dataclass(frozen=True, slots=True)
class OptionValue:
    """The value of an option."""

    kind: ValueKind
    text: str
    """The value in the notation of the text format; for a ``message``, the text between the braces."""
    string: bytes = b""
    """Decoded value of a ``string``."""


def read_option_name(tokens: Tokens) -> tuple[NamePart, ...]:
    """Parse the name before an option's ``=``."""
    parts = []
    while True:
        if tokens.take("("):
            parts.append(NamePart(tokens.dotted("the option's name", leading_dot=True), True))
            tokens.expect(")")
        else:
            parts.append(NamePart(tokens.word("the option's name"), False))
        if len(parts) > MAX_DEPTH:
            raise tokens.error(f"the option's name has more than {MAX_DEPTH} parts")
        if not tokens.take("."):
            return tuple(parts)


def read_option_value(tokens: Tokens) -> OptionValue:
    """Parse the value after an option's ``=``."""
    if tokens.take("{"):
        return OptionValue("message", _read_aggregate(tokens))
    if tokens.kind == STRING:
        value = tokens.string_bytes("the option's value")
        return OptionValue("string", f'"{escaped_bytes(value)}"', value)
    sign = "-" if tokens.take("-") else ""
    if tokens.kind == NUMBER:
        if not is_whole(tokens.text) and not is_fraction(tokens.text):
            raise tokens.error(f"{shortened(tokens.text)} is not a number")
        value_text = sign + tokens.text
        tokens.advance()
        return OptionValue("number", value_text)
    if tokens.kind != WORD or (sign and tokens.text not in ("inf", "nan")):
        raise tokens.error(f"expected the option's value, but {tokens.found()}")
    word = tokens.word("the option's value")
    return OptionValue("number" if sign else "word", sign + word)


def _read_aggregate(tokens: Tokens) -> str:
    """Parse a message literal up to its closing brace, with spaces between tokens where the text format needs them."""
    pieces: list[str] = []
    depth = 1
    glued = True
    while True:
        if tokens.kind == END:
            raise tokens.error("the option's value does not end; a closing brace is missing")
        if tokens.kind == SIGN:
            if tokens.text in "{[<":
                depth += 1
            elif tokens.text in "}]>":
                depth -= 1
            if depth == 0:
                if tokens.text != "}":
                    raise tokens.error(f"expected '}}' at the end of the option's value, but {tokens.found()}")
                tokens.advance()
                return "".join(pieces)
            if depth > MAX_DEPTH:
                raise tokens.error(f"the option's value lies more than {MAX_DEPTH} levels deep")
        if not glued and tokens.text not in "./":
            pieces.append(" ")
        pieces.append(tokens.text)
        glued = tokens.kind == SIGN and tokens.text in "-./"
        tokens.advance()


def read_default(tokens: Tokens, field_type: FieldType | None) -> str:
    """Parse a field's default into a descriptor's notation. ``field_type`` ``None`` stands for a type that can only
    be an enum, as far as is known before names are resolved."""
    at = tokens.at
    if field_type is None:
        return tokens.word("the default, a name of the field's enum")
    if field_type in _WHOLE_BOUNDS:
        lowest, highest = _WHOLE_BOUNDS[field_type]
        return str(tokens.whole_number("the default", lowest, highest))
    if field_type == FieldDescriptorProto.TYPE_BOOL:
        if tokens.text not in ("true", "false"):
            raise tokens.error(f"expected the default, true or false, but {tokens.found()}")
        return tokens.word("the default")
    if field_type in (FieldDescriptorProto.TYPE_FLOAT, FieldDescriptorProto.TYPE_DOUBLE):
        return number_text(_read_number(tokens), single=field_type == FieldDescriptorProto.TYPE_FLOAT)
    if field_type == FieldDescriptorProto.TYPE_STRING:
        return tokens.string("the default")
    if field_type == FieldDescriptorProto.TYPE_BYTES:
        return escaped_bytes(tokens.string_bytes("the default"))
    raise tokens.error("a message cannot have a default", at)


def _read_number(tokens: Tokens) -> float:
    sign = -1.0 if tokens.take("-") else 1.0
    if tokens.text in ("inf", "nan"):
        return sign * float(tokens.word("the default"))
    if tokens.kind != NUMBER:
        raise tokens.error(f"expected the default, a number, but {tokens.found()}")
    if is_whole(tokens.text):
        try:
            value = float(whole(tokens.text)) if len(tokens.text) <= MAX_DIGITS else math.inf
        except OverflowError:
            value = math.inf
    elif is_fraction(tokens.text):
        value = float(tokens.text)
    else:
        raise tokens.error(f"{shortened(tokens.text)} is not a number")
    tokens.advance()
    return sign * value


def number_text(value: float, *, single: bool) -> str:
    """A number with the fewest digits that distinguish it from its neighbours, as in descriptors."""
    if math.isnan(value):
        return "nan"
    if single:
        value = as_single(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    short = f"{value:.6g}" if single else f"{value:.15g}"
    again = as_single(float(short)) if single else float(short)
    if again == value:
        return short
    return f"{value:.9g}" if single else f"{value:.17g}"


def as_single(value: float) -> float:
    """Nearest single-precision number."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def escaped_bytes(value: bytes) -> str:
    """Bytes escaped as ASCII for the inside of a string literal."""
    return "".join(_BYTES_ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in value)
