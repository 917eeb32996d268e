"""Parameters that several paths have, and what they mean."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from goqueue.api.http.bodies.fields import Encoding

TopicPath = Annotated[str, Meta(description="The topic's name.")]
PartitionPath = Annotated[int, Meta(description="The partition's number, counted from 0.")]
DelayedOffsetPath = Annotated[int, Meta(description="The message's offset, as its publish answered it.")]
GroupPath = Annotated[str, Meta(description="The group's name.")]
TransactionPath = Annotated[str, Meta(description="The transaction's id, as begin answered it.")]

AfterParameter = Annotated[str | None, Meta(description="Where to go on: next of the page before.")]
EncodingParameter = Annotated[
    Encoding | None, Meta(description="base64: every message so; text or nothing: only those that are not text.")
]
