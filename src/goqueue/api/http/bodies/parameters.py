"""Parameters that several paths have, and what they mean."""

from __future__ import annotations

from typing import Annotated

from litestar.params import PathParameter, QueryParameter

from goqueue.api.http.bodies.fields import Encoding

TopicPath = Annotated[str, PathParameter(description="The topic's name.")]
PartitionPath = Annotated[int, PathParameter(description="The partition's number, counted from 0.")]
DelayedOffsetPath = Annotated[int, PathParameter(description="The message's offset, as its publish answered it.")]
GroupPath = Annotated[str, PathParameter(description="The group's name.")]
TransactionPath = Annotated[str, PathParameter(description="The transaction's id, as begin answered it.")]

AfterParameter = Annotated[str | None, QueryParameter(description="Where to go on: next of the page before.")]
EncodingParameter = Annotated[
    Encoding | None,
    QueryParameter(description="base64: every message so; text or nothing: only those that are not text."),
]
