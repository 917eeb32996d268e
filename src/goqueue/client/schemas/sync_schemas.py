"""Synchronous client of the schema registry."""

from __future__ import annotations

from goqueue.client.connection.loop_thread import LoopThread
from goqueue.client.schemas.schemas import AsyncSchemas, Schema, SchemaGiven, SchemaProblem, SchemaVersion, Version
from goqueue.schemas.base import SchemaKind


class Schemas:
    """The registry: ``Client.schemas``; see the methods of ``AsyncSchemas``."""

    def __init__(self, schemas: AsyncSchemas, thread: LoopThread) -> None:
        self._schemas = schemas
        self._thread = thread

    def register(
        self, subject: str, schema: SchemaGiven, kind: SchemaKind = "AVRO", *, normalize: bool = False
    ) -> SchemaVersion:
        """As ``AsyncSchemas.register``."""
        return self._thread.run(self._schemas.register(subject, schema, kind, normalize=normalize))

    def find(
        self, subject: str, schema: SchemaGiven, kind: SchemaKind = "AVRO", *, normalize: bool = False
    ) -> SchemaVersion:
        """As ``AsyncSchemas.find``."""
        return self._thread.run(self._schemas.find(subject, schema, kind, normalize=normalize))

    def get(self, schema_id: int) -> Schema:
        """As ``AsyncSchemas.get``."""
        return self._thread.run(self._schemas.get(schema_id))

    def version(self, subject: str, version: Version, *, deleted: bool = False) -> SchemaVersion:
        """As ``AsyncSchemas.version``."""
        return self._thread.run(self._schemas.version(subject, version, deleted=deleted))

    def latest(self, subject: str) -> SchemaVersion:
        """As ``AsyncSchemas.latest``."""
        return self._thread.run(self._schemas.latest(subject))

    def versions(self, subject: str) -> list[int]:
        """As ``AsyncSchemas.versions``."""
        return self._thread.run(self._schemas.versions(subject))

    def subjects(self, prefix: str = "") -> list[str]:
        """As ``AsyncSchemas.subjects``."""
        return self._thread.run(self._schemas.subjects(prefix))

    def check(
        self, subject: str, schema: SchemaGiven, kind: SchemaKind = "AVRO", *, version: Version | None = None
    ) -> list[SchemaProblem]:
        """As ``AsyncSchemas.check``."""
        return self._thread.run(self._schemas.check(subject, schema, kind, version=version))

    def delete(self, subject: str, version: Version | None = None, *, permanent: bool = False) -> list[int]:
        """As ``AsyncSchemas.delete``."""
        return self._thread.run(self._schemas.delete(subject, version, permanent=permanent))
