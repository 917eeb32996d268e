"""Interfaces that every schema format implements, and limits on the size of schemas that all formats share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]
KINDS: tuple[SchemaKind, ...] = ("AVRO", "JSON", "PROTOBUF")

MAX_SCHEMA_BYTES = 1 << 20
MAX_DEPTH = 100
"""Limit on how deep types may be nested, references included."""
MAX_NODES = 100_000
"""Limit on the number of nodes in a schema, references included."""


TOO_COMPLEX = "TOO_COMPLEX"
"""Rule reported when comparing two schemas would take too long."""


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why data written with one schema cannot be read with another."""

    rule: str
    """Stable name in capitals, such as ``READER_FIELD_MISSING_DEFAULT_VALUE``."""
    path: str
    """Location in the reader's schema: a JSON pointer or a dotted name (``/fields/2/type``, ``orders.Order.total``)."""
    message: str
    """Description of the problem, and of a change that would be compatible."""


class ParsedSchema(Protocol):
    """A parsed schema. Immutable."""

    @property
    def kind(self) -> SchemaKind: ...

    def canonical(self) -> str:
        """Canonical text of the schema: differences of notation (whitespace, the order of JSON keys where it has no
        meaning) are removed. Two schemas with the same canonical text are the same schema."""

    def normalized(self) -> str:
        """Canonical text with equivalent constructs unified as well (notation of a type, order of declarations)."""

    def cannot_read(self, writer: ParsedSchema) -> list[Incompatibility]:
        """Reasons why this schema, as the reader's, cannot read data written with ``writer``, a schema of the same
        format. Empty if it can; at most a hundred reasons."""

    def validator(self) -> Validator: ...


class Validator(Protocol):
    """Validates messages. Built once per schema and reused for many batches."""

    @property
    def most_on_loop(self) -> int:
        """Size in bytes of the largest value that is checked within about a millisecond, or a few if it is invalid."""

    def check(self, values: Sequence[bytes]) -> list[str | None]:
        """For each value ``None``, or a description of the problem with its path. Never raises, whatever the bytes.
        The validating library holds the interpreter while it checks one value, so a value that would take too long
        is rejected for that reason."""


References = Mapping[str, ParsedSchema]
"""Referenced schemas, by the names under which a schema refers to them. Each was parsed with its own references."""
