"""The schema registry, call by call."""

from __future__ import annotations

from bisect import bisect_right

from goqueue.api.calls.limits import AnswerLimits
from goqueue.broker.operations import Caller, Operations, Reference, SchemaDraft, SchemaRecord, Version, check_subject
from goqueue.broker.operations.limits import MAX_REFERENCES
from goqueue.model.errors import InvalidRequest, InvalidSchema
from goqueue.wire.proto import goqueue_pb2 as pb

_LISTED = 1_000
_MOST_LISTED = 10_000
_SHOWN_PROBLEMS = 100
_SHOWN_CHARACTERS = 2_000


class SchemaCalls:
    """The service ``Schemas``."""

    def __init__(self, operations: Operations, limits: AnswerLimits) -> None:
        self._schemas = operations.schemas
        self._max_list_bytes = limits.max_message_bytes // 2

    async def RegisterSchema(self, caller: Caller, request: pb.RegisterSchemaRequest) -> pb.SchemaVersion:
        found = await self._schemas.register(
            caller, request.subject, _draft(request.schema, registers=True), normalize=request.normalize
        )
        return _to_version(request.subject, found.version, found.record)

    async def GetSchema(self, caller: Caller, request: pb.GetSchemaRequest) -> pb.Schema:
        return _to_schema(await self._schemas.get(caller, request.id))

    async def GetSchemaVersion(self, caller: Caller, request: pb.GetSchemaVersionRequest) -> pb.SchemaVersion:
        check_subject(request.subject)
        found = await self._schemas.version(caller, request.subject, request.version or None, deleted=request.deleted)
        return _to_version(request.subject, found.version, found.record)

    async def FindSchema(self, caller: Caller, request: pb.FindSchemaRequest) -> pb.SchemaVersion:
        check_subject(request.subject)
        found = await self._schemas.find(
            caller,
            request.subject,
            _draft(request.schema),
            normalize=request.normalize,
            deleted=request.deleted,
        )
        return _to_version(request.subject, found.version, found.record)

    async def ListSubjects(self, caller: Caller, request: pb.ListSubjectsRequest) -> pb.ListSubjectsResponse:
        limit = request.limit or _LISTED
        if limit > _MOST_LISTED:
            raise InvalidRequest(f"limit is {limit}; at most {_MOST_LISTED} are allowed")
        response = pb.ListSubjectsResponse()
        left = self._max_list_bytes
        names = await self._schemas.names(caller, deleted=request.deleted)
        for place in range(bisect_right(names, request.after), len(names)):
            name = names[place]
            if not name.startswith(request.prefix):
                continue
            left -= len(name.encode())
            if len(response.names) == limit or left < 0:
                response.more = True
                break
            response.names.append(name)
        return response

    async def ListSchemaVersions(
        self, caller: Caller, request: pb.ListSchemaVersionsRequest
    ) -> pb.ListSchemaVersionsResponse:
        check_subject(request.subject)
        versions = await self._schemas.versions(caller, request.subject, deleted=request.deleted)
        return pb.ListSchemaVersionsResponse(versions=[each.version for each in versions])

    async def CheckCompatibility(
        self, caller: Caller, request: pb.CheckCompatibilityRequest
    ) -> pb.CheckCompatibilityResponse:
        against_all = not request.HasField("version")
        verdict = await self._schemas.verdict(
            caller,
            request.subject,
            _draft(request.schema),
            request.version or None,
            against_all=against_all,
            normalize=request.normalize,
        )
        problems = [
            pb.SchemaProblem(
                version=version,
                rule=each.rule,
                path=each.path[:_SHOWN_CHARACTERS],
                message=each.message[:_SHOWN_CHARACTERS],
            )
            for version, found in verdict.problems.items()
            for each in found
        ]
        return pb.CheckCompatibilityResponse(compatible=verdict.is_compatible, problems=problems[:_SHOWN_PROBLEMS])

    async def DeleteSchemaVersion(
        self, caller: Caller, request: pb.DeleteSchemaVersionRequest
    ) -> pb.DeleteSchemasResponse:
        check_subject(request.subject)
        number = await self._schemas.delete_version(
            caller, request.subject, request.version or None, permanent=request.permanent
        )
        return pb.DeleteSchemasResponse(versions=[number])

    async def DeleteSubject(self, caller: Caller, request: pb.DeleteSubjectRequest) -> pb.DeleteSchemasResponse:
        check_subject(request.subject)
        versions = await self._schemas.delete_subject(caller, request.subject, permanent=request.permanent)
        return pb.DeleteSchemasResponse(versions=versions)


def _draft(schema: pb.Schema, *, registers: bool = False) -> SchemaDraft:
    if registers and schema.id:
        raise InvalidRequest("a schema's id is given by the registry; leave it out")
    if len(schema.references) > MAX_REFERENCES:
        raise InvalidSchema(f"Invalid schema: it has {len(schema.references)} references; {MAX_REFERENCES} are allowed")
    references = [Reference(each.name, each.subject, each.version) for each in schema.references]
    return SchemaDraft(schema.text, schema.kind or None, references)


def _to_version(subject: str, version: Version, record: SchemaRecord) -> pb.SchemaVersion:
    return pb.SchemaVersion(subject=subject, version=version.version, schema=_to_schema(record))


def _to_schema(record: SchemaRecord) -> pb.Schema:
    return pb.Schema(
        id=record.schema_id,
        kind=record.kind,
        text=record.text,
        references=[
            pb.SchemaReference(name=each.name, subject=each.subject, version=each.version) for each in record.references
        ],
    )
