"""The bodies of the schema registry's requests and responses, named as existing registries name them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from goqueue.broker.operations import Reference, SchemaRecord
from goqueue.broker.operations.limits import MAX_EXTRA_BYTES, MAX_SCHEMA_BYTES
from goqueue.model.errors import InvalidRequest, InvalidSchema

REGISTRY_JSON = "application/vnd.schemaregistry.v1+json"
_MOST = 2**31 - 1
_OBJECT: msgspec.json.Decoder[dict[str, Any] | None] = msgspec.json.Decoder(dict[str, Any] | None)
SchemaField = Annotated[str, Meta(description="The schema's text.")]
SchemaTypeField = Annotated[str, Meta(description="JSON or PROTOBUF; left out for Avro, as registries do.")]
MetadataField = Annotated[dict[str, Any], Meta(description="What was registered beside the schema, as it was given.")]
RuleSetField = Annotated[
    dict[str, Any], Meta(description="Rules for serializers, as they were given; none is run here.")
]
SubjectField = Annotated[str, Meta(description="The subject's name.")]
VersionField = Annotated[int, Meta(description="The version's number in the subject, counted from 1.")]
IdField = Annotated[int, Meta(description="The schema's id, the same wherever it is registered.")]
KeptText = Annotated[str | UnsetType | None, Meta(description="Kept for the clients that send it.")]
KeptFlag = Annotated[bool | UnsetType | None, Meta(description="Kept for the clients that send it.")]
SentObject = Annotated[Raw | UnsetType, Meta(extra_json_schema={"anyOf": [{"type": "object"}, {"type": "null"}]})]
"""An object or ``null``, not decoded yet: small values by the million would take a second."""
KeptObject = Annotated[SentObject, Meta(description="Kept for the clients that send it.")]


class ReferenceBody(Struct):
    """Another schema that this one uses."""

    name: Annotated[str, Meta(max_length=1_000, description="The name that this schema uses for it.")]
    subject: Annotated[str, Meta(max_length=1_000, description="The subject that it is registered under.")]
    version: Annotated[int, Meta(ge=-1, le=_MOST, description="Its version; -1 is the latest of now.")]


class RegisterSchemaRequest(Struct, kw_only=True):
    """A schema as text. What newer clients send beside it is kept where it is named here; anything else is not."""

    schema: (
        Annotated[str, Meta(max_length=MAX_SCHEMA_BYTES, description="The schema's text; it must be there.")]
        | UnsetType
    ) = UNSET
    schemaType: Annotated[
        str | None, Meta(description="AVRO, JSON or PROTOBUF; if left out AVRO, at paths under /schemas JSON.")
    ] = None
    references: (
        Annotated[list[ReferenceBody], Meta(max_length=1_000, description="Other schemas that this one uses.")] | None
    ) = None
    metadata: Annotated[SentObject, Meta(description="Kept and told with it; at most 256 KiB.")] = UNSET
    ruleSet: Annotated[
        SentObject, Meta(description="Rules for serializers, kept and told with it; at most 256 KiB.")
    ] = UNSET
    id: Annotated[int, Meta(ge=-1, le=_MOST, description="The id that it is to have, in mode IMPORT.")] | None = None
    version: (
        Annotated[int, Meta(ge=-1, le=_MOST, description="The version that it is to be, in mode IMPORT.")] | None
    ) = None


class SchemaBody(Struct, omit_defaults=True, kw_only=True):
    """A schema."""

    schema: SchemaField
    schemaType: SchemaTypeField | UnsetType = UNSET
    references: Annotated[
        list[ReferenceBody] | UnsetType, Meta(description="Other schemas that it uses; left out if none.")
    ] = UNSET
    metadata: MetadataField | UnsetType = UNSET
    ruleSet: RuleSetField | UnsetType = UNSET
    guid: Annotated[str | UnsetType, Meta(description="The same wherever the same schema is registered.")] = UNSET
    maxId: Annotated[int | UnsetType, Meta(description="The highest id so far, if asked for.")] = UNSET


class SchemaVersion(SchemaBody, omit_defaults=True, kw_only=True):
    """A schema as a version of a subject."""

    subject: SubjectField
    version: VersionField
    id: IdField
    deleted: Annotated[bool | UnsetType, Meta(description="True if it is softly deleted; else left out.")] = UNSET


class RegisterSchemaResponse(SchemaBody, omit_defaults=True, kw_only=True):
    """The schema is registered, by this request or before."""

    id: IdField
    version: VersionField


class SubjectVersion(Struct):
    """Where a schema is used."""

    subject: SubjectField
    version: VersionField


class ConfigBody(Struct, kw_only=True, omit_defaults=True):
    """What is allowed of new versions. In a request what is left out stays."""

    compatibility: Annotated[str | UnsetType | None, Meta(description="The same as compatibilityLevel.")] = UNSET
    compatibilityLevel: Annotated[
        str | UnsetType | None,
        Meta(
            description="NONE, or BACKWARD, FORWARD or FULL, each also with _TRANSITIVE behind it: see docs/schemas.md."
        ),
    ] = UNSET
    normalize: Annotated[
        bool | UnsetType | None, Meta(description="Normalize every schema that is registered or looked for.")
    ] = UNSET
    alias: KeptText = UNSET
    compatibilityGroup: KeptText = UNSET
    defaultMetadata: KeptObject = UNSET
    overrideMetadata: KeptObject = UNSET
    defaultRuleSet: KeptObject = UNSET
    overrideRuleSet: KeptObject = UNSET
    validateFields: KeptFlag = UNSET


class ModeBody(Struct):
    """What may be done with schemas."""

    mode: Annotated[str, Meta(description="READWRITE, READONLY, READONLY_OVERRIDE or IMPORT.")]


class CompatibilityResponse(Struct, omit_defaults=True):
    """Whether a schema fits."""

    is_compatible: Annotated[bool, Meta(description="Whether it could be registered.")]
    messages: Annotated[list[str] | UnsetType, Meta(description="Why not, if verbose.")] = UNSET


class SchemaStats(Struct):
    """What is registered and not deleted."""

    subjects: Annotated[int, Meta(description="Subjects that have versions.")]
    schemas: Annotated[int, Meta(description="Different schemas.")]
    versions: Annotated[int, Meta(description="Versions of all subjects.")]


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


def object_of(name: str, sent: Raw | UnsetType) -> dict[str, Any] | None:
    """What is kept beside a schema, decoded if it is not too large."""
    if sent is UNSET:
        return None
    if len(sent) > MAX_EXTRA_BYTES:
        raise InvalidSchema(f"{name} has more than {MAX_EXTRA_BYTES} bytes")
    try:
        return _OBJECT.decode(sent)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{name}: {error}") from None
