"""Avro format: parsed schemas and their references."""

from __future__ import annotations

import json
from typing import NoReturn

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.avro.avro_chains import steps_of_a_byte
from goqueue.schemas.avro.avro_checks import AvroValidator
from goqueue.schemas.avro.avro_compatibility import AvroReading
from goqueue.schemas.avro.avro_parser import AvroParser
from goqueue.schemas.avro.avro_plain import Definitions, TooDeep, definitions, plain, resolved, written
from goqueue.schemas.avro.avro_types import PRIMITIVES, AvroType, Named
from goqueue.schemas.base import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_SCHEMA_BYTES,
    Incompatibility,
    ParsedSchema,
    References,
    SchemaKind,
    Validator,
)


class AvroSchema:
    """A parsed schema with every named type that it knows, its own and those it refers to."""

    kind: SchemaKind = "AVRO"

    def __init__(
        self, root: AvroType, named: dict[str, Named], own: object, others: AvroReferences, nodes: int
    ) -> None:
        self.root = root
        self.named = named
        self._plain = own
        self._text = written(own)
        self._others = others
        self.definitions: Definitions = others.definitions | definitions(own)
        self.sizes = others.sizes | {self._text: nodes}
        """Number of nodes of this schema and of each schema that it refers to."""
        self._steps_of_a_byte = steps_of_a_byte(root)

    def canonical(self) -> str:
        return self._text

    def normalized(self) -> str:
        return self._text

    def cannot_read(self, writer: ParsedSchema) -> list[Incompatibility]:
        assert isinstance(writer, AvroSchema)
        if self._text == writer._text and self.sizes == writer.sizes:
            return []
        return AvroReading().cannot_read(self.root, writer.root)

    def resolved(self) -> str:
        """The schema with the types that it refers to defined at their first use."""
        try:
            return written(resolved(self._plain, self._others.definitions, MAX_DEPTH))
        except TooDeep:
            raise InvalidSchema(
                f"the schema and those that it refers to lie in one another more than {MAX_DEPTH} deep"
            ) from None

    def validator(self) -> Validator:
        return AvroValidator(self.root, self._steps_of_a_byte)


class AvroReferences:
    """All definitions of the schemas that a schema refers to."""

    def __init__(self, references: References) -> None:
        self.named: dict[str, Named] = {}
        self.definitions: Definitions = {}
        self.sizes: dict[str, int] = {}
        for name, each in references.items():
            if not isinstance(each, AvroSchema):
                raise InvalidSchema(
                    f"reference {name!r} is a {each.kind} schema; an AVRO schema can refer to AVRO schemas only"
                )
            self._add(name, each)
        if sum(self.sizes.values()) > MAX_NODES:
            raise InvalidSchema(f"the schemas that are referred to have more than {MAX_NODES} parts together")

    def _add(self, name: str, schema: AvroSchema) -> None:
        for full_name, definition in schema.definitions.items():
            if self.definitions.setdefault(full_name, definition) != definition:
                raise InvalidSchema(
                    f"reference {name!r} defines {full_name!r} in another way than a reference before it; refer to "
                    "schemas that agree"
                )
        # Keep types that are present already: they are the same types, and types are compared by identity.
        self.named = schema.named | self.named
        self.sizes |= schema.sizes


def parse_avro(text: str, references: References) -> AvroSchema:
    """Parse a schema; ``InvalidSchema`` says where it is wrong."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidSchema("the schema is no text: it has half of a surrogate pair") from None
    if size > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schema has {size} bytes; at most {MAX_SCHEMA_BYTES} are allowed")
    others = AvroReferences(references)
    parser = AvroParser(others.named, sum(others.sizes.values()))
    try:
        raw = _load(text)
        root = parser.parse(raw)
        own = plain(raw, parser.named)
        made = AvroSchema(root, parser.named, own, others, parser.nodes)
        made.canonical().encode()
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None
    except UnicodeEncodeError:
        raise InvalidSchema("the schema has half of a surrogate pair (\\ud800 to \\udfff) in a text") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema cannot be written as JSON: {error}") from None
    return made


def _load(text: str) -> object:
    if text.strip() in PRIMITIVES:
        return text.strip()
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidSchema(f"the schema is no JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
