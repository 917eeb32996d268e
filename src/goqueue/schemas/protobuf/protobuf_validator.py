"""Validation of payloads against a message of a Protobuf schema.

Detected are: bytes that are not Protobuf or are truncated, proto3 strings that are not UTF-8, and missing required
fields of proto2. Not detected is most else: the encoding carries only field numbers and lengths, so a payload of
another message is refused only if it has one of these problems, fields unknown to the schema are allowed (this is how
schemas evolve), and a field encoded with another wire type counts as unknown. An empty payload is a message in which no
field is set.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from goqueue.schemas.protobuf.protobuf_costs import MessageCosts

MAX_MISSING = 5
"""Limit on the missing fields named in one result."""
_MOST_LOOKED_AT = 2_000
"""Limit on the nested messages searched for missing fields."""
_MOST_MEMORY = 256 << 20
_MOST_MEMORY_ON_LOOP = 4 << 20
"""Limit on the memory for parsing a value on the event loop; each MiB takes about a quarter of a millisecond."""
_MOST_ON_LOOP = 256 << 10


class ProtobufValidator:
    """Validates payloads of one message."""

    def __init__(self, message: Descriptor | None) -> None:
        self._name = message.full_name if message else ""
        self._class = GetMessageClass(message) if message else None
        self._may_miss_fields = message is not None and _reaches_required(message)
        messages = [message] if message else []
        self._most_bytes = MessageCosts(messages).most_bytes(_MOST_MEMORY)
        self.most_on_loop = most_on_loop(messages)

    def check(self, values: Sequence[bytes]) -> list[str | None]:
        """For each payload ``None``, or a description of the problem."""
        if self._class is None:
            return ["the schema declares no message, so no payload can be one"] * len(values)
        parse = self._class.FromString
        results: list[str | None] = [None] * len(values)
        for index, value in enumerate(values):
            if len(value) > self._most_bytes:
                results[index] = (
                    f"{self._name}: the schema is too costly for a value of this size, {len(value)} bytes; with as "
                    f"many fields as its messages have, {self._most_bytes} bytes are allowed, since reading more could "
                    f"take over {_MOST_MEMORY >> 20} MiB of memory; split the value, or the message"
                )
                continue
            try:
                message = parse(value)
            except DecodeError as error:
                results[index] = self._explain(error)
            else:
                if self._may_miss_fields and not message.IsInitialized():
                    results[index] = f"{self._name}: required but missing: {_missing(message)}"
        return results

    def _explain(self, error: DecodeError) -> str:
        reason = str(error)
        if "UTF-8" in reason or "utf-8" in reason:
            return f"{self._name}: a string is not UTF-8 ({reason[:200]})"
        return f"{self._name}: the bytes are not a message of this type ({reason[:200]})"


def most_on_loop(messages: Iterable[Descriptor]) -> int:
    """Size up to which a value of any of these messages is checked within about a millisecond."""
    return min(_MOST_ON_LOOP, MessageCosts(messages).most_bytes(_MOST_MEMORY_ON_LOOP))


def _missing(message: Message) -> str:
    """Paths of the first missing required fields. A value can lack any number of them, so they are not counted."""
    found = [*itertools.islice(_paths_of_missing(message), MAX_MISSING + 1)]
    if not found:
        return "a field of one of the many messages in it"
    return ", ".join(found[:MAX_MISSING]) + (" and more" if len(found) > MAX_MISSING else "")


def _paths_of_missing(root: Message) -> Iterator[str]:
    left = _MOST_LOOKED_AT
    waiting: list[Iterator[tuple[str, Message]]] = [iter([("", root)])]
    while waiting:
        path, message = next(waiting[-1], ("", None))
        if message is None:
            waiting.pop()
            continue
        left -= 1
        if left < 0:
            return
        if message.IsInitialized():
            continue
        for field in message.DESCRIPTOR.fields:
            if field.is_required and not message.HasField(field.name):
                yield path + field.name
        waiting.append(_within(message, path))


def _within(message: Message, path: str) -> Iterator[tuple[str, Message]]:
    for field, content in message.ListFields():
        if field.message_type is None:
            continue
        name = f"{path}({field.full_name})" if field.is_extension else path + field.name
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                yield from ((f"{name}[{key}].", each) for key, each in content.items())
        elif field.is_repeated:
            yield from ((f"{name}[{place}].", each) for place, each in enumerate(content))
        else:
            yield f"{name}.", content


def _reaches_required(message: Descriptor) -> bool:
    """Whether the message, or a message nested in it, has required fields; extensions may add some too."""
    seen = {message.full_name}
    pending = [message]
    while pending:
        current = pending.pop()
        if current.is_extendable:
            return True
        for field in current.fields:
            if field.is_required:
                return True
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                pending.append(inner)
    return False
