"""What every kind of schema can do, and the bounds within which all of them stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]
KINDS: tuple[SchemaKind, ...] = ("AVRO", "JSON", "PROTOBUF")

MAX_SCHEMA_BYTES = 1 << 20
MAX_DEPTH = 100
"""How deep types may lie in one another, references included."""
MAX_NODES = 100_000
"""How many parts a schema may have, references included."""


TOO_COMPLEX = "TOO_COMPLEX"
"""The rule of two schemas that would take too long to be compared."""


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why data of one schema cannot be read with another."""

    rule: str
    """A stable name in capitals, such as ``READER_FIELD_MISSING_DEFAULT_VALUE``."""
    path: str
    """Where in the reader's schema, as a JSON pointer or a dotted name: ``/fields/2/type``, ``orders.Order.total``."""
    message: str
    """What is wrong there, and what would be compatible."""


class ParsedSchema(Protocol):
    """A schema that was understood. Immutable."""

    @property
    def kind(self) -> SchemaKind: ...

    def canonical(self) -> str:
        """The schema as one text for everything that only looks different (spacing, the order of JSON keys where it
        means nothing). Two schemas with the same canonical text are the same schema."""

    def normalized(self) -> str:
        """The same, and what is only said differently (a longer way to write a type, the order of declarations)."""

    def cannot_read(self, writer: ParsedSchema) -> list[Incompatibility]:
        """Why this schema, as the reader's, cannot read what was written with ``writer``, of the same kind. Empty: it
        can. At most a hundred reasons."""

    def validator(self) -> Validator: ...


class Validator(Protocol):
    """Checks messages. Made once for a schema and used for many batches."""

    @property
    def most_on_loop(self) -> int:
        """The largest value, in bytes, that is checked within about a millisecond, or a few if it is wrong."""

    def check(self, values: Sequence[bytes]) -> list[str | None]:
        """For each value ``None``, or what is wrong with it and where (a path). Never raises for any bytes. While a
        library looks at one value nobody else can run, so a value that would take it long is refused for that."""


References = Mapping[str, ParsedSchema]
"""Schemas that a schema refers to, by the names that it uses for them. Each was parsed with its own references."""
