"""What an error means that an operation did not expect."""

from __future__ import annotations

from goqueue.model.errors import GoQueueError
from goqueue.storage.files.disk_errors import is_of_the_disk, told


def disk_failure(error: Exception) -> GoQueueError | None:
    """The error to answer with if a failing disk is the cause; ``None`` for anything else, which is a defect."""
    return told(error, "reading or writing") if isinstance(error, OSError) and is_of_the_disk(error) else None
