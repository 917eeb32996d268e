"""``/admin/backup``: everything that the broker holds, as of one instant."""

from __future__ import annotations

from collections.abc import AsyncIterator

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.response import Stream

from goqueue.api.http.bodies.errors import documented
from goqueue.api.http.caller import AnyRequest, caller_of
from goqueue.broker.operations import Backup, Operations
from goqueue.model.errors import RequestTimeout

TAR = "application/x-tar"


def backup_routes(operations: Operations) -> list[HTTPRouteHandler]:
    @get(
        "/admin/backup",
        tags=["Broker"],
        media_type=TAR,
        responses={
            **documented(409),
            200: ResponseSpec(
                bytes,
                media_type=TAR,
                generate_examples=False,
                description="A tar for 'goqueue restore'. It is whole if its last file is manifest.json.",
            ),
        },
        summary="A backup: the state at one instant, while the broker runs",
    )
    async def backup(request: AnyRequest) -> Stream:
        """Everything that the broker holds, for 'goqueue restore'. There is one at a time."""
        begun = await operations.maintenance.begin_backup(caller_of(request))
        return Stream(_pieces(begun), media_type=TAR, headers={"GoQueue-Backup-Bytes": str(begun.size_bytes)})

    return [backup]


async def _pieces(backup: Backup) -> AsyncIterator[bytes]:
    try:
        while piece := await backup.next():
            yield piece
    finally:
        backup.end(RequestTimeout("whoever took the backup has gone"))
