"""The schema registry, call by call."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

from goqueue.api.grpc.calls import Calls, answered, caller_of
from goqueue.api.grpc.errors import Context
from goqueue.broker.operations import Operations, Reference, SchemaDraft, SchemaRecord, Version, check_subject
from goqueue.broker.operations.limits import MAX_REFERENCES
from goqueue.model.config import GrpcConfig
from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidSchema
from goqueue.wire.proto import goqueue_pb2 as pb
from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

_LISTED = 1_000
_MOST_LISTED = 10_000
_SHOWN_PROBLEMS = 100
_SHOWN_CHARACTERS = 2_000
_MOST_DETAILS_BYTES = 2_500
"""An error travels in a header, where a byte may take three; with more than 8 KiB of them gRPC drops the answer."""

Reply = TypeVar("Reply")


def _briefly(method: Callable[..., Awaitable[Reply]]) -> Callable[..., Awaitable[Reply]]:
    """What is wrong with a schema can be as long as the schema: say only the beginning of it."""

    @wraps(method)
    async def call(service: Any, request: Any, context: Context) -> Reply:
        try:
            return await method(service, request, context)
        except GoQueueError as error:
            raise type(error)(_shortened(str(error)), retry_after_s=error.retry_after_s) from None

    return call


def _shortened(text: str) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= _MOST_DETAILS_BYTES:
        return text
    return encoded[:_MOST_DETAILS_BYTES].decode(errors="ignore") + "…"


class SchemasService(pb_grpc.SchemasServicer):
    """Thin: decodes, asks the registry, encodes."""

    def __init__(self, operations: Operations, config: GrpcConfig, calls: Calls) -> None:
        self._schemas = operations.schemas
        self._max_list_bytes = config.max_message_bytes // 2
        self.calls = calls

    @answered
    @_briefly
    async def RegisterSchema(self, request: pb.RegisterSchemaRequest, context: Context) -> pb.SchemaVersion:
        found = await self._schemas.register(
            caller_of(context), request.subject, _draft(request.schema, registers=True), normalize=request.normalize
        )
        return _to_version(request.subject, found.version, found.record)

    @answered
    async def GetSchema(self, request: pb.GetSchemaRequest, context: Context) -> pb.Schema:
        return _to_schema(await self._schemas.get(caller_of(context), request.id))

    @answered
    async def GetSchemaVersion(self, request: pb.GetSchemaVersionRequest, context: Context) -> pb.SchemaVersion:
        check_subject(request.subject)
        found = await self._schemas.version(
            caller_of(context), request.subject, request.version or None, deleted=request.deleted
        )
        return _to_version(request.subject, found.version, found.record)

    @answered
    @_briefly
    async def FindSchema(self, request: pb.FindSchemaRequest, context: Context) -> pb.SchemaVersion:
        check_subject(request.subject)
        found = await self._schemas.find(
            caller_of(context),
            request.subject,
            _draft(request.schema),
            normalize=request.normalize,
            deleted=request.deleted,
        )
        return _to_version(request.subject, found.version, found.record)

    @answered
    async def ListSubjects(self, request: pb.ListSubjectsRequest, context: Context) -> pb.ListSubjectsResponse:
        limit = request.limit or _LISTED
        if limit > _MOST_LISTED:
            raise InvalidRequest(f"limit is {limit}; at most {_MOST_LISTED} are allowed")
        response = pb.ListSubjectsResponse()
        left = self._max_list_bytes
        names = await self._schemas.names(caller_of(context), deleted=request.deleted)
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

    @answered
    async def ListSchemaVersions(
        self, request: pb.ListSchemaVersionsRequest, context: Context
    ) -> pb.ListSchemaVersionsResponse:
        check_subject(request.subject)
        versions = await self._schemas.versions(caller_of(context), request.subject, deleted=request.deleted)
        return pb.ListSchemaVersionsResponse(versions=[each.version for each in versions])

    @answered
    @_briefly
    async def CheckCompatibility(
        self, request: pb.CheckCompatibilityRequest, context: Context
    ) -> pb.CheckCompatibilityResponse:
        against_all = not request.HasField("version")
        verdict = await self._schemas.verdict(
            caller_of(context),
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

    @answered
    async def DeleteSchemaVersion(
        self, request: pb.DeleteSchemaVersionRequest, context: Context
    ) -> pb.DeleteSchemasResponse:
        check_subject(request.subject)
        number = await self._schemas.delete_version(
            caller_of(context), request.subject, request.version or None, permanent=request.permanent
        )
        return pb.DeleteSchemasResponse(versions=[number])

    @answered
    async def DeleteSubject(self, request: pb.DeleteSubjectRequest, context: Context) -> pb.DeleteSchemasResponse:
        check_subject(request.subject)
        versions = await self._schemas.delete_subject(caller_of(context), request.subject, permanent=request.permanent)
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
