"""A schema that a client asks to register, or asks about, and the limits that it must keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from goqueue.coordination.schema_records import Reference, quoted
from goqueue.model.errors import InvalidSchema, InvalidSubject
from goqueue.model.ids import SchemaId

MAX_SUBJECT_LENGTH = 1_000
MAX_REFERENCES = 1_000
MAX_EXTRA_BYTES = 256 << 10
"""Limit on metadata, on a rule set, and on the configuration of a subject."""


@dataclass(frozen=True, slots=True)
class SchemaDraft:
    """``schema_id`` and ``version`` may be given in mode IMPORT only."""

    text: str
    kind: str | None = None
    references: Sequence[Reference] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    schema_id: SchemaId = SchemaId(0)
    version: int | None = None

    def check(self) -> None:
        if len(self.references) > MAX_REFERENCES:
            raise InvalidSchema(f"the schema has {len(self.references)} references; {MAX_REFERENCES} are allowed")
        names: set[str] = set()
        for each in self.references:
            if each.name in names:
                raise InvalidSchema(f"two references have the name {each.name[:300]!r}; each needs one of its own")
            names.add(each.name)
        for extra, name in ((self.metadata, "metadata"), (self.rule_set, "ruleSet")):
            if extra is not None and len(msgspec.json.encode(extra)) > MAX_EXTRA_BYTES:
                raise InvalidSchema(f"{name} has more than {MAX_EXTRA_BYTES} bytes")


def check_subject(name: str) -> None:
    if not 1 <= len(name) <= MAX_SUBJECT_LENGTH or not name.isprintable():
        raise InvalidSubject(
            f"The specified subject {quoted(name)} is not a valid subject; that has 1 to {MAX_SUBJECT_LENGTH} "
            "printable characters"
        )
