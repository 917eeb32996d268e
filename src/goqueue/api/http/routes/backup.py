"""``/admin/backup``: everything that the broker holds, as of one instant."""

from __future__ import annotations

from collections.abc import AsyncIterator

from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.routes.broker_routes import BrokerRoutes
from goqueue.api.http.routing.declaration import Documented, get
from goqueue.broker.operations import Backup, Caller
from goqueue.model.errors import RequestTimeout

TAR = "application/x-tar"


class BackupRoutes(BrokerRoutes):
    """Taking a backup."""

    tag = "Broker"

    @get(
        "/admin/backup",
        media_type=TAR,
        errors=(409,),
        has_effects=True,
        answer=Documented("A tar for 'goqueue restore'. It is whole if its last file is manifest.json.", kind=bytes),
        summary="A backup: the state at one instant, while the broker runs",
    )
    async def backup(self, caller: Caller) -> Answer:
        """Everything that the broker holds, for 'goqueue restore'. There is one at a time."""
        begun = await self._operations.maintenance.begin_backup(caller)
        return Answer(_pieces(begun), 200, TAR, {"GoQueue-Backup-Bytes": str(begun.size_bytes)})


async def _pieces(backup: Backup) -> AsyncIterator[bytes]:
    try:
        while piece := await backup.next():
            yield piece
    finally:
        backup.end(RequestTimeout("the client that took the backup has left"))
