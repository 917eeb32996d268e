"""Describes the contents of a backup, as a sentence and as figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.cli.commands.topic.topic_view import at_most_messages
from goqueue.cli.terminal.figure_words import size
from goqueue.model.names import INTERNAL_PREFIX
from goqueue.model.units import counted
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.storage.backup.backup_format import Manifest, PartitionEntry


def summary_json(manifest: Manifest) -> dict[str, object]:
    head, users = manifest.head, _user_partitions(manifest)
    return {
        "instant": head.instant,
        "node_id": head.node_id,
        "goqueue_version": head.goqueue_version,
        "topics": len({each.topic for each in users}),
        "partitions": len(users),
        "messages": sum(each.records for each in users),
        "files": head.files,
        "bytes": head.size_bytes,
    }


def summary_text(manifest: Manifest) -> str:
    users = _user_partitions(manifest)
    topics, messages = len({each.topic for each in users}), sum(each.records for each in users)
    held = f"{counted(topics, 'topic')} with {at_most_messages(messages)} in {counted(len(users), 'partition')}"
    return f"{held}, {size(manifest.head.size_bytes)}, as of {escape(manifest.head.instant)}"


def _user_partitions(manifest: Manifest) -> list[PartitionEntry]:
    """Partitions of users' topics, without the broker's own journals."""
    return [each for each in manifest.partitions if not each.topic.startswith(INTERNAL_PREFIX)]
