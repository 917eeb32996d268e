"""The bodies of the schema registry's requests and responses, named as existing registries name them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.coordination.schema_records import Reference, SchemaRecord
from goqueue.schemas.base import MAX_SCHEMA_BYTES

REGISTRY_JSON = "application/vnd.schemaregistry.v1+json"
VersionNumber = Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class ReferenceBody(Struct):
    """Another schema, under the name that this one uses for it. ``version`` -1 is the latest."""

    name: Annotated[str, Meta(max_length=1_000)]
    subject: Annotated[str, Meta(max_length=1_000)]
    version: VersionNumber


class RegisterSchemaRequest(Struct, kw_only=True):
    """A schema as text. What newer clients send beside it (``metadata``, ``ruleSet``) is kept; anything else is not.

    ``id`` and ``version`` can be given in mode IMPORT.
    """

    schema: Annotated[str, Meta(max_length=MAX_SCHEMA_BYTES)] | UnsetType = UNSET
    schemaType: str | None = None  # noqa: N815
    references: Annotated[list[ReferenceBody], Meta(max_length=1_000)] | None = None
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None  # noqa: N815
    id: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    version: VersionNumber | None = None


class SchemaBody(Struct, omit_defaults=True, kw_only=True):
    """A schema. ``schemaType`` is left out for Avro, as registries do."""

    schema: str
    schemaType: str | UnsetType = UNSET  # noqa: N815
    references: list[ReferenceBody] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    ruleSet: dict[str, Any] | UnsetType = UNSET  # noqa: N815
    guid: str | UnsetType = UNSET
    maxId: int | UnsetType = UNSET  # noqa: N815


class SchemaVersion(SchemaBody, omit_defaults=True, kw_only=True):
    """A schema as a version of a subject."""

    subject: str
    version: int
    id: int
    deleted: bool | UnsetType = UNSET


class RegisterSchemaResponse(SchemaBody, omit_defaults=True, kw_only=True):
    id: int
    version: int


class SubjectVersion(Struct):
    subject: str
    version: int


class ConfigBody(Struct, kw_only=True, omit_defaults=True):
    """``compatibility`` and ``compatibilityLevel`` mean the same; the rest is kept for the clients that send it."""

    compatibility: str | UnsetType | None = UNSET
    compatibilityLevel: str | UnsetType | None = UNSET  # noqa: N815
    normalize: bool | UnsetType | None = UNSET
    alias: str | UnsetType | None = UNSET
    compatibilityGroup: str | UnsetType | None = UNSET  # noqa: N815
    defaultMetadata: dict[str, Any] | UnsetType | None = UNSET  # noqa: N815
    overrideMetadata: dict[str, Any] | UnsetType | None = UNSET  # noqa: N815
    defaultRuleSet: dict[str, Any] | UnsetType | None = UNSET  # noqa: N815
    overrideRuleSet: dict[str, Any] | UnsetType | None = UNSET  # noqa: N815
    validateFields: bool | UnsetType | None = UNSET  # noqa: N815


class ModeBody(Struct):
    mode: str


class CompatibilityResponse(Struct, omit_defaults=True):
    is_compatible: bool
    messages: list[str] | UnsetType = UNSET


class SchemaStats(Struct):
    subjects: int
    schemas: int
    versions: int


def described(record: SchemaRecord) -> dict[str, Any]:
    """What is told of a schema wherever it is."""
    return {
        "schema": record.text,
        "schemaType": UNSET if record.kind == "AVRO" else record.kind,
        "references": [ReferenceBody(each.name, each.subject, each.version) for each in record.references] or UNSET,
        "metadata": record.metadata or UNSET,
        "ruleSet": record.rule_set or UNSET,
    }


def references_of(request: RegisterSchemaRequest) -> list[Reference]:
    return [Reference(each.name, each.subject, max(0, each.version)) for each in request.references or ()]
