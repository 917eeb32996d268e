"""Records of the schema registry: schemas, versions of subjects and settings; and the events that change them."""

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
"""The framing of messages has four bytes for the id."""
GLOBAL = ""
"""Used in place of a subject for settings of the whole registry."""


class Reference(msgspec.Struct, frozen=True):
    """A version of a subject, under the name that a schema uses for it.

    ``schema_id`` is the id of the version's schema when the referring schema was registered, and 0 before. It keeps a
    registered schema unchanged when the subject is permanently deleted and its version numbers start again.
    """

    name: str
    subject: str
    version: int
    schema_id: SchemaId = SchemaId(0)


class SchemaRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A registered schema. Two schemas with the same ``fingerprint`` are the same schema."""

    schema_id: SchemaId
    kind: str
    text: str
    fingerprint: str
    references: list[Reference] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None

    @property
    def guid(self) -> str:
        """A global id: the same schema has the same one in every registry."""
        return str(UUID(self.fingerprint[:32]))


class Version(msgspec.Struct, frozen=True, omit_defaults=True):
    """A version with ``deleted`` is soft-deleted: only requests for deleted versions find it."""

    version: int
    schema_id: SchemaId
    deleted: bool = False


class Subject(msgspec.Struct):
    """A subject, as stored in a snapshot. Version numbers are reused only after all were permanently deleted."""

    versions: dict[int, Version] = {}
    last_version: int = 0

    def live(self) -> list[Version]:
        return [each for each in self.versions.values() if not each.deleted]


class Setting(msgspec.Struct, omit_defaults=True):
    """The settings of a subject, or of the registry (``GLOBAL``), as stored in a snapshot."""

    config: dict[str, Any] | None = None
    mode: str | None = None


class SchemaAdded(msgspec.Struct, frozen=True, tag="schema_added"):
    record: SchemaRecord


class VersionAdded(msgspec.Struct, frozen=True, tag="version_added"):
    subject: str
    version: int
    schema_id: SchemaId


class VersionsDeleted(msgspec.Struct, frozen=True, tag="versions_deleted"):
    """Versions were soft-deleted, or permanently deleted."""

    subject: str
    versions: list[int]
    permanent: bool


class ConfigSet(msgspec.Struct, frozen=True, tag="config_set"):
    """The settings of the subject; ``None`` removes them."""

    subject: str
    config: dict[str, Any] | None


class ModeSet(msgspec.Struct, frozen=True, tag="mode_set"):
    subject: str
    mode: str | None


class IdsSkipped(msgspec.Struct, frozen=True, tag="ids_skipped"):
    """Ids up to this one are not assigned: they may belong to schemas that a restored backup does not have."""

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
    """Equal for equal schemas. ``referred`` has the fingerprint of the schema of each reference."""
    # Fingerprints and not ids: another registry has other ids for the same schemas.
    uses = [(one.name, one.subject, one.version, means) for one, means in zip(references, referred, strict=True)]
    parts = [kind, canonical, sorted(uses), metadata, rule_set]
    return sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


SchemasEvent = SchemaAdded | VersionAdded | VersionsDeleted | ConfigSet | ModeSet | IdsSkipped


def context_of(name: str) -> str:
    """The context of a subject."""
    context, colon, _ = name[1:].partition(":")
    return context if name.startswith(":.") and colon else "."


def quoted(subject: str) -> str:
    """A subject as other registries quote it in errors."""
    text = subject[:300]
    return f"'{text}'" if text.isprintable() else repr(text)


def one_of(choices: Sequence[str]) -> str:
    """``"a, b, and c"``, as registries list them."""
    *most, last = choices
    return f"{', '.join(most)}, and {last}"
