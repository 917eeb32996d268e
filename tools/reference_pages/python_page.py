"""``docs/reference/python.md``, from the public names of the package."""

from __future__ import annotations

import enum
import inspect
import re
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import goqueue
from reference_pages import python_source
from reference_pages.markdown import anchor, block, code, link, page, table

_INTRO = """\
# Python API

What `goqueue`, `goqueue.spark` and `goqueue.testing` offer. Names that are not here may change at any time.
[The guide](../client.md) shows them at work, [its settings](../configuration.md#client) are a table of their own, and
errors have [their page](../errors.md)."""

# What belongs together. A public name that is in none of them comes last.
GROUPS = {
    "Clients": ["Client", "AsyncClient", "ClientConfig"],
    "Publishing": [
        "Producer",
        "AsyncProducer",
        "ProducerConfig",
        "Outgoing",
        "Sent",
        "Transaction",
        "AsyncTransaction",
    ],
    "Consuming": [
        *("Consumer", "AsyncConsumer", "ConsumerConfig", "ReceivedMessage", "AsyncReceivedMessage", "Retry", "Reject"),
        *("TopicPartition", "Record", "Batch"),
    ],
    "Values": [
        *(
            "to_json",
            "from_json",
            "as_text",
            "AvroSerializer",
            "AvroDeserializer",
            "JsonSerializer",
            "JsonDeserializer",
        ),
        *("ProtobufSerializer", "ProtobufDeserializer"),
    ],
    "Schemas": ["Schemas", "AsyncSchemas", "Schema", "SchemaVersion", "SchemaReference", "SchemaProblem"],
    "What a broker tells": [
        *(
            "TopicInfo",
            "PartitionInfo",
            "PurgedPartition",
            "PeekedMessage",
            "GroupInfo",
            "GroupMember",
            "GroupPartition",
            "ReliabilityStats",
        ),
        *("DeadLetter", "RedriveReport", "DelayedMessage", "DelayStats", "GroupLanes", "GroupLane", "PartitionLanes"),
        *("PartitionLane", "TransactionInfo", "TransactionPartition", "TransactionStats", "CommittedKey"),
    ],
    "Traces": ["extracted_context"],
    "A broker in your own process": ["Broker", "Config", "Bounds", "Message", "NewMessage", "Published", "Priority"],
    "Errors": ["GoQueueError", "errors"],
    "Version": ["__version__"],
}


def python_page() -> str:
    """The text of the page."""
    grouped = {name for names in GROUPS.values() for name in names}
    others = [name for name in goqueue.__all__ if name not in grouped]
    parts = [_INTRO]
    for title, names in (GROUPS | ({"More": others} if others else {})).items():
        parts += [f"## {title}", *(_entry(goqueue, name) for name in names)]
    for name in ("goqueue.spark", "goqueue.testing"):
        module = import_module(name)
        parts += [f"## {name}", _prose(inspect.getdoc(module) or "")]
        parts += [_entry(module, own) for own in module.__all__]
    return page(*_linked(parts))


def _linked(parts: list[str]) -> list[str]:
    """Methods that a text names are links to what is said about them."""
    written = "\n\n".join(parts)
    known = set(re.findall(r"^#### `([\w.]+)`$", written, re.MULTILINE))
    pieces = re.split(r"(^```.*?^```$|^[#|][^\n]*$)", written, flags=re.MULTILINE | re.DOTALL)
    for place in range(0, len(pieces), 2):
        pieces[place] = re.sub(
            r"(?<!\[)`(\w+\.\w+)`",
            lambda found: link(found[0], anchor(found[1])) if found[1] in known else found[0],
            pieces[place],
        )
    return ["".join(pieces)]


def _entry(module: ModuleType, name: str) -> str:
    thing = getattr(module, name)
    title = f"### {code(name)}"
    if isinstance(thing, ModuleType):
        rows = _error_rows(thing)
        return "\n\n".join([title, "Every error is a class of this module.", table(("Class", "Is a", "Code"), rows)])
    if isinstance(thing, FunctionType):
        parts = (title, block("python", python_source.function(thing)), _doc(thing))
        return "\n\n".join(part for part in parts if part)
    if isinstance(thing, type):
        return _class(title, name, thing)
    return f"{title}\n\nA {type(thing).__name__}."


def _class(title: str, name: str, kind: type) -> str:
    # Those that others make say so, and by whom.
    made = None if (kind.__doc__ or "").startswith("Made by") else python_source.constructor(kind)
    parts = [title, block("python", made) if made else "", _doc(kind)]
    if issubclass(kind, enum.Enum):
        rows = [(code(value.name), code(str(value.value))) for value in kind]
        return "\n\n".join(part for part in (*parts, table(("Value", "Number"), rows)) if part)
    members = python_source.members(kind)
    fields = [(code(one.written), _in_a_line(one.doc)) for one in members if not one.is_method]
    parts.append(table(("Attribute", "Meaning"), fields))
    for one in members:
        if one.is_method:
            parts += [f"#### {code(f'{name}.{one.name}')}", block("python", one.written), _prose(one.doc)]
    return "\n\n".join(part for part in parts if part)


def _error_rows(module: ModuleType) -> list[tuple[str, ...]]:
    kinds: list[Any] = [
        one for one in vars(module).values() if isinstance(one, type) and issubclass(one, goqueue.GoQueueError)
    ]
    known = [one for one in kinds if one.__module__ == module.__name__]
    return [(code(one.__name__), code(one.__base__.__name__), link(code(one.code), "../errors.md")) for one in known]


def _doc(thing: Any) -> str:
    own = thing.__doc__ or ""
    # A dataclass without a docstring gets its signature for one.
    return "" if own.startswith(f"{thing.__name__}(") else _prose(inspect.cleandoc(own))


def _in_a_line(doc: str) -> str:
    return " ".join(_single_backticks(doc).split())


def _single_backticks(text: str) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def _prose(doc: str) -> str:
    """A docstring as Markdown: examples and lines that are set in become code."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", doc.strip()):
        if paragraph.lstrip().startswith(">>>"):
            lines = [re.sub(r"^(>>>|\.\.\.) ?", "", line) for line in inspect.cleandoc(paragraph).splitlines()]
            parts.append(block("python", "\n".join(lines)))
        elif paragraph.strip() != "::":
            parts.append(_indented(paragraph))
    return "\n\n".join(part for part in parts if part)


def _indented(paragraph: str) -> str:
    if all(line.startswith("    ") for line in paragraph.splitlines()):
        return block("text", inspect.cleandoc("\n" + paragraph))
    return _single_backticks(re.sub(r"::$", ":", paragraph.strip()))
