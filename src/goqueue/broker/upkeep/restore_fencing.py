"""The first start on a folder that was made from a backup.

What the broker gave out after the backup's instant is not known in the folder, and may still be in use: by producers,
by those who cached schemas, by workers that hold messages. None of it may be given out a second time, to mean something
else.
"""

from __future__ import annotations

from goqueue.broker.runtime.journal import Journal
from goqueue.coordination.catalog import Catalog
from goqueue.coordination.schemas import Schemas
from goqueue.model.clock import Randomness
from goqueue.model.logging import get_logger
from goqueue.storage.files.data_folder import DataFolder

log = get_logger(__name__)

RECEIPT_KEY_BYTES = 32
_PRODUCER_IDS = 1 << 32
_SCHEMA_IDS = 1_000_000
"""At least so many are skipped, and up to twice as many: the same backup may be restored more than once."""


async def skip_issued_ids(
    folder: DataFolder,
    catalog: Journal[Catalog],
    schemas: Journal[Schemas],
    randomness: Randomness,
) -> None:
    """Before anything is given out. The marker goes last: whoever is killed in between does all of it again."""
    if not folder.files.exists(folder.restored):
        return
    producer_ids, schema_ids = _jump(randomness, _PRODUCER_IDS), _jump(randomness, _SCHEMA_IDS)
    key = randomness.random_bytes(RECEIPT_KEY_BYTES)
    await catalog.submit(lambda state: state.ids.decide_skip(producer_ids))
    skipped = await schemas.submit(lambda state: state.decide_skip(schema_ids))
    if not skipped:
        log.warning(
            "too few ids of schemas are left to skip those that may be in use; schemas registered from now on may get "
            "an id that a client knows from before",
            last_id=schemas.machine.last_id,
        )
    await catalog.submit(lambda state: state.decide_receipt_key(key, renew=True))
    folder.files.remove(folder.restored)
    folder.files.sync_dir(folder.root)
    log.info("the folder was made from a backup: ids that may be in use are skipped, and older receipts are void")


def _jump(randomness: Randomness, least: int) -> int:
    return least + int.from_bytes(randomness.random_bytes(8)) % least
