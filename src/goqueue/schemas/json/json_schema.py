"""JSON Schema format: parsing of drafts 4, 6, 7, 2019-09 and 2020-12."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

import jsonschema_rs
import msgspec

from goqueue.model.errors import InvalidSchema
from goqueue.model.fields import shown
from goqueue.schemas.base import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_SCHEMA_BYTES,
    Incompatibility,
    ParsedSchema,
    References,
    SchemaKind,
    Validator,
)
from goqueue.schemas.json.json_bounds import check_new, checked_costs
from goqueue.schemas.json.json_compatibility import JsonReading
from goqueue.schemas.json.json_costs import Costs
from goqueue.schemas.json.json_engine import compile_schema, with_draft
from goqueue.schemas.json.json_graph import SchemaGraph
from goqueue.schemas.json.json_nodes import DRAFT_URIS, Document, Draft, draft_of
from goqueue.schemas.json.json_normal import normal
from goqueue.schemas.json.json_text import pointer, same_text
from goqueue.schemas.json.json_validator import JsonValidator

_DEFAULT_DRAFT: Draft = 7
_MOST_ADDRESSES = 10_000


class JsonSchema:
    """A parsed JSON schema, with the schemas that it refers to."""

    kind: SchemaKind = "JSON"

    def __init__(
        self,
        document: Document,
        references: Mapping[str, JsonSchema],
        compiled: jsonschema_rs.Validator,
        graph: SchemaGraph,
        costs: Costs,
    ) -> None:
        self.document = document
        self.references = references
        self._compiled = compiled
        self._graph = graph
        self._costs = costs

    def canonical(self) -> str:
        return same_text(self.document.raw)

    def normalized(self) -> str:
        return same_text(normal(self.document.root))

    def cannot_read(self, writer: ParsedSchema) -> list[Incompatibility]:
        assert isinstance(writer, JsonSchema)
        return JsonReading().cannot_read(self.document.root, writer.document.root)

    def validator(self) -> Validator:
        return JsonValidator(self._compiled, self._graph, self._costs)


def parse_json_schema(text: str, references: References, *, is_registered: bool = False) -> JsonSchema:
    """Parse a schema; ``InvalidSchema`` says where it is wrong."""
    raw = _load(text)
    draft = _draft(raw)
    known: dict[str, JsonSchema] = {}
    for name, each in references.items():
        if not isinstance(each, JsonSchema):
            raise InvalidSchema(
                f"reference {name!r} is a {each.kind} schema; a JSON schema can refer to JSON schemas only"
            )
        known[name] = each
    document = Document(raw, draft, {name: each.document for name, each in known.items()})
    if document.size + sum(each.document.size for each in _all_of(known).values()) > MAX_NODES:
        raise InvalidSchema(f"the schema and its references have more than {MAX_NODES} parts")
    graph = SchemaGraph(document.root)
    costs = checked_costs(graph)
    if not is_registered:
        check_new(graph)
    compiled = _compile(document, known)
    schema = JsonSchema(document, known, compiled, graph, costs)
    schema.canonical()
    return schema


def _load(text: str) -> dict[str, Any] | bool:
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSchema(f"the schema is no Unicode text: character {error.start} is half of a pair") from None
    if len(encoded) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schema has more than {MAX_SCHEMA_BYTES} bytes")
    try:
        raw = msgspec.json.decode(encoded)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidSchema(f"the schema is no JSON: {error}") from None
    if not isinstance(raw, dict | bool):
        raise InvalidSchema(f"{shown(raw)} is no schema; an object in {{}}, true or false is")
    _check_depth(raw)
    return raw


def _check_depth(raw: object) -> None:
    """Check the nesting. Subschemas are held in lists and maps, so their JSON may be nested twice as deep."""
    level = [raw]
    for _ in range(2 * MAX_DEPTH + 1):
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise InvalidSchema(f"the schema is nested more than {2 * MAX_DEPTH} deep")


def _draft(raw: dict[str, Any] | bool) -> Draft:
    given = raw.get("$schema") if isinstance(raw, dict) else None
    if given is None:
        return _DEFAULT_DRAFT
    found = draft_of(given) if isinstance(given, str) else None
    if found is None:
        raise InvalidSchema(f"/$schema: {shown(given)} is no known draft; {', '.join(DRAFT_URIS.values())} are")
    return found


def _all_of(references: Mapping[str, JsonSchema]) -> dict[int, JsonSchema]:
    """The schemas referred to, directly and indirectly, each once."""
    found: dict[int, JsonSchema] = {}
    waiting = list(references.values())
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += each.references.values()
    return found


def _addresses(document: Document, references: Mapping[str, JsonSchema]) -> dict[str, JsonSchema]:
    """Addresses under which the library will look up schemas. A name is relative to the schema that refers to it."""
    found: dict[str, JsonSchema] = {}
    waiting = [(urljoin(base, name), each) for base in ("", document.base) for name, each in references.items()]
    while waiting:
        address, schema = waiting.pop()
        other = found.setdefault(address, schema)
        if other is not schema and other.canonical() != schema.canonical():
            raise InvalidSchema(f"reference {shown(address)} stands for two different schemas; give them two names")
        if len(found) > _MOST_ADDRESSES:
            raise InvalidSchema(f"the schema refers to more than {_MOST_ADDRESSES} schemas")
        more = [(urljoin(base, name), each) for base in (address, schema.document.base)
                for name, each in schema.references.items()]  # fmt: skip
        if schema.document.base:
            more.append((schema.document.base, schema))
        waiting += ((key, each) for key, each in more if key not in found or found[key] is not each)
    return found


def _compile(document: Document, references: Mapping[str, JsonSchema]) -> jsonschema_rs.Validator:
    assert isinstance(document.raw, dict | bool)
    try:
        jsonschema_rs.meta.validate(with_draft(document.raw, document.draft))
        resources = {
            address: with_draft(each.document.raw, each.document.draft)
            for address, each in _addresses(document, references).items()
        }
        return compile_schema(document.raw, document.draft, resources)
    except jsonschema_rs.ValidationError as error:
        where = pointer("", *error.instance_path) or "/"
        raise InvalidSchema(f"{where}: {error.message[:300]}") from None
    except (jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
        raise InvalidSchema(f"the schema cannot be used: {str(error)[:300]}") from None
