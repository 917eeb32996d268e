"""Synchronous client of the schema registry."""

from __future__ import annotations

from goqueue.client.connection.loop_thread import BlockingFace, blocking
from goqueue.client.schemas.schemas import AsyncSchemas


class Schemas(BlockingFace[AsyncSchemas]):
    """The registry: ``Client.schemas``; the methods of ``AsyncSchemas``, blocking."""

    register = blocking(AsyncSchemas.register)
    find = blocking(AsyncSchemas.find)
    get = blocking(AsyncSchemas.get)
    version = blocking(AsyncSchemas.version)
    latest = blocking(AsyncSchemas.latest)
    versions = blocking(AsyncSchemas.versions)
    subjects = blocking(AsyncSchemas.subjects)
    check = blocking(AsyncSchemas.check)
    delete = blocking(AsyncSchemas.delete)
