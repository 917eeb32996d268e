"""What the schema registry keeps: schemas, versions of subjects, settings, and the events that change them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from goqueue.model.ids import SchemaId

COMPATIBILITIES = (
    "NONE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
READ_ONLY = ("READONLY", "READONLY_OVERRIDE")
MAX_ID = (1 << 31) - 1
"""Messages have four bytes for it."""
GLOBAL = ""
"""Stands for the whole registry where a subject could stand."""


class Reference(msgspec.Struct, frozen=True):
    """A version of a subject, under the name that a schema uses for it.

    ``schema_id`` is what the version was when the schema was registered, 0 before: numbers of versions begin again when
    a subject is deleted for good, and what a registered schema means must not change with that.
    """

    name: str
    subject: str
    version: int
    schema_id: SchemaId = SchemaId(0)


class SchemaRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema as it was registered first. ``fingerprint`` decides whether another is the same."""

    schema_id: SchemaId
    kind: str
    text: str
    fingerprint: str
    references: list[Reference] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None

    @property
    def guid(self) -> str:
        """The same wherever the same schema is registered."""
        return str(UUID(self.fingerprint[:32]))


class Version(msgspec.Struct, frozen=True, omit_defaults=True):
    """``deleted``: softly, so that it can still be found by who asks for deleted ones, and be deleted for good."""

    version: int
    schema_id: SchemaId
    deleted: bool = False


class Subject(msgspec.Struct):
    """What a snapshot holds of a subject. Version numbers are not given twice, unless all were deleted for good."""

    versions: dict[int, Version] = {}
    last_version: int = 0

    def live(self) -> list[Version]:
        return [each for each in self.versions.values() if not each.deleted]


class Setting(msgspec.Struct, omit_defaults=True):
    """What a snapshot holds of the settings of a subject, or, for ``GLOBAL``, of the registry's own."""

    config: dict[str, Any] | None = None
    mode: str | None = None


class SchemaAdded(msgspec.Struct, frozen=True, tag="schema_added"):
    record: SchemaRecord


class VersionAdded(msgspec.Struct, frozen=True, tag="version_added"):
    subject: str
    version: int
    schema_id: SchemaId


class VersionsDeleted(msgspec.Struct, frozen=True, tag="versions_deleted"):
    """Softly, or for good."""

    subject: str
    versions: list[int]
    permanent: bool


class ConfigSet(msgspec.Struct, frozen=True, tag="config_set"):
    """``None``: nothing is set for the subject any more."""

    subject: str
    config: dict[str, Any] | None


class ModeSet(msgspec.Struct, frozen=True, tag="mode_set"):
    subject: str
    mode: str | None


class IdsSkipped(msgspec.Struct, frozen=True, tag="ids_skipped"):
    """Ids up to this one may stand for schemas that are not known here."""

    last_id: int


def fingerprint_of(
    kind: str,
    canonical: str,
    references: Sequence[Reference] = (),
    metadata: dict[str, Any] | None = None,
    rule_set: dict[str, Any] | None = None,
    *,
    referred: Sequence[str] = (),
) -> str:
    """The same for schemas that are the same. ``referred`` has the fingerprint of what each reference refers to."""
    # Not their ids: those of the same schemas are others elsewhere.
    uses = [(one.name, one.subject, one.version, means) for one, means in zip(references, referred, strict=True)]
    parts = [kind, canonical, sorted(uses), metadata, rule_set]
    return sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


SchemasEvent = SchemaAdded | VersionAdded | VersionsDeleted | ConfigSet | ModeSet | IdsSkipped


def context_of(name: str) -> str:
    """Of a subject."""
    context, colon, _ = name[1:].partition(":")
    return context if name.startswith(":.") and colon else "."


def quoted(subject: str) -> str:
    """A subject, or what stands in its place, as registries write it in an error."""
    text = subject[:300]
    return f"'{text}'" if text.isprintable() else repr(text)


def one_of(choices: Sequence[str]) -> str:
    """``"a, b, and c"``, as registries list them."""
    *most, last = choices
    return f"{', '.join(most)}, and {last}"
