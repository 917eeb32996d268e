"""Nodes of JSON schemas: each schema and subschema is a node with its keywords and references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urldefrag, urljoin

from goqueue.model.errors import InvalidSchema
from goqueue.model.fields import shown
from goqueue.schemas.base import MAX_DEPTH, MAX_NODES
from goqueue.schemas.json.json_text import pointer

Draft = Literal[4, 6, 7, 2019, 2020]
DRAFT_URIS: Mapping[Draft, str] = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}

_SINCE: Mapping[str, int] = {
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7,
    "contentEncoding": 6, "contentMediaType": 6,
    "dependentRequired": 2019, "dependentSchemas": 2019, "minContains": 2019, "maxContains": 2019,
    "unevaluatedProperties": 2019, "unevaluatedItems": 2019, "$defs": 2019, "$anchor": 2019, "$recursiveRef": 2019,
    "prefixItems": 2020, "$dynamicRef": 2020, "$dynamicAnchor": 2020,
}  # fmt: skip
_UNTIL: Mapping[str, int] = {
    "id": 4, "contentEncoding": 7, "contentMediaType": 7, "additionalItems": 2019, "$recursiveRef": 2019,
}  # fmt: skip
"""The drafts up to which a keyword has a meaning. Keywords not listed have one in all drafts."""

Way = Literal["here", "member", "item", "also", "apart"]
"""Scope of a subschema: the same value (``here``); one member of it, disjoint from the other ``member`` subschemas;
one item, likewise (``item``); members or items in addition to others (``also``); or nothing, if it is only a
definition (``apart``)."""
ONE_SCHEMA: Mapping[str, Way] = {
    "not": "here", "if": "here", "then": "here", "else": "here", "additionalProperties": "member",
    "additionalItems": "item", "contains": "also", "propertyNames": "also", "unevaluatedProperties": "also",
    "unevaluatedItems": "also", "items": "item",
}  # fmt: skip
SCHEMA_LISTS: Mapping[str, Way] = {"allOf": "here", "anyOf": "here", "oneOf": "here", "prefixItems": "item"}
SCHEMA_MAPS: Mapping[str, Way] = {
    "properties": "member", "patternProperties": "also", "dependentSchemas": "here", "dependencies": "here",
    "definitions": "apart", "$defs": "apart",
}  # fmt: skip
_WAYS: Mapping[str, Way] = {**ONE_SCHEMA, **SCHEMA_LISTS, **SCHEMA_MAPS}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(eq=False, slots=True)
class Node:
    """A schema or subschema within a document. Nodes are equal only if they are the same object."""

    raw: dict[str, object] | bool
    document: Document
    base: str
    """URI that references in the node are relative to."""
    path: str
    """Path at which the node was first found, for messages."""
    _maps: dict[str, dict[str, Node]] = field(default_factory=dict)

    @property
    def draft(self) -> Draft:
        return self.document.draft

    def get(self, keyword: str) -> object:
        """Value of a keyword; ``None`` if it is absent or has no meaning in this draft."""
        return self.raw[keyword] if isinstance(self.raw, dict) and keyword in self.raw and self.knows(keyword) else None

    def knows(self, keyword: str) -> bool:
        """Whether the keyword has a meaning at this node."""
        if (
            self.draft <= 7
            and keyword != "$ref"
            and isinstance(self.raw, dict)
            and isinstance(self.raw.get("$ref"), str)
        ):
            return False  # In older drafts, ``$ref`` overrides all keywords beside it.
        return _SINCE.get(keyword, 0) <= self.draft <= _UNTIL.get(keyword, 9999)

    def one(self, keyword: str) -> Node | None:
        """Subschema under a keyword."""
        raw = self.get(keyword)
        return self._part(raw, keyword) if isinstance(raw, dict | bool) else None

    def many(self, keyword: str) -> list[Node]:
        """Subschemas in the list under a keyword."""
        raw = self.get(keyword)
        if not isinstance(raw, list):
            return []
        return [self._part(each, keyword, place) for place, each in enumerate(raw) if isinstance(each, dict | bool)]

    def named(self, keyword: str) -> dict[str, Node]:
        """Subschemas under a keyword, by name."""
        found = self._maps.get(keyword)
        if found is None:
            raw = self.get(keyword)
            each_raw = raw.items() if isinstance(raw, dict) else ()
            found = {name: self._part(each, keyword, name) for name, each in each_raw if isinstance(each, dict | bool)}
            self._maps[keyword] = found
        return found

    def referred(self) -> list[Node]:
        """Schemas that the node refers to, which apply to the same value."""
        if isinstance(self.raw, bool) or self.raw.keys().isdisjoint(_REFERENCES):
            return []
        return [self.document.resolve(self, text) for key in _REFERENCES if isinstance(text := self.get(key), str)]

    def parts(self) -> Iterator[tuple[Way, Node]]:
        """Direct subschemas with their scopes, without references."""
        for keyword in self.raw if isinstance(self.raw, dict) else ():
            way = _WAYS.get(keyword)
            if way is None:
                continue
            if keyword in SCHEMA_MAPS:
                for part in self.named(keyword).values():
                    yield way, part
            else:
                for part in self.many(keyword):
                    yield way, part
                if keyword not in SCHEMA_LISTS and (one := self.one(keyword)) is not None:
                    yield way, one

    def _part(self, raw: dict[str, object] | bool, *steps: str | int) -> Node:
        return self.document.node(raw, self.base, pointer(self.path, *steps))


class Document:
    """The text of one schema as nodes, with the documents that it may refer to by name."""

    def __init__(self, raw: dict[str, object] | bool, draft: Draft, references: Mapping[str, Document]) -> None:
        self.raw = raw
        self.draft = draft
        self.references = dict(references)
        self._nodes: dict[int, Node] = {}
        """Nodes by the identity of their JSON, which lives as long as the document."""
        self._resources: dict[str, Node] = {}
        self._anchors: dict[tuple[str, str], Node] = {}
        self._flags = {each: Node(each, self, "", "") for each in (True, False)}
        self.root = self.node(raw, "", "")
        self.base = self.root.base
        self._resources[self.base] = self.root
        for name, each in references.items():
            # A name may be relative to the schema's own id, and a schema may be referred to by its id.
            self.references.setdefault(urljoin(self.base, name), each)
            if each.base:
                self.references.setdefault(each.base, each)
        self.size = 0
        self._collect_nodes(self.root)

    def node(self, raw: dict[str, object] | bool, base: str, path: str) -> Node:
        if isinstance(raw, bool):
            return self._flags[raw]
        found = self._nodes.get(id(raw))
        if found is None:
            found = self._nodes[id(raw)] = Node(raw, self, base, path)
            found.base = self._base_within(raw, base)
        return found

    def _base_within(self, raw: dict[str, object], base: str) -> str:
        own = raw.get("id" if self.draft == 4 else "$id")
        if not isinstance(own, str) or (self.draft <= 7 and "$ref" in raw):
            return base
        return _join_uri(base, own).partition("#")[0]

    def resolve(self, node: Node, reference: str) -> Node:
        """The node that a reference leads to. ``InvalidSchema`` if there is none here or in the references."""
        uri, fragment = urldefrag(_join_uri(node.base, reference))
        target: Node | None = self._resources.get(uri)
        if target is None and (document := self.references.get(uri)) is not None:
            target = document.root
        found = None if target is None else target.document._within(target, unquote(fragment))
        if found is None:
            raise InvalidSchema(
                f"{node.path or '/'}: $ref {shown(reference)} leads to nothing; it can lead to a part of the schema, "
                "or to a schema among its references, by the name given there or by its $id"
            )
        return found

    def _within(self, resource: Node, fragment: str) -> Node | None:
        if not fragment:
            return resource
        if not fragment.startswith("/"):
            return self._anchors.get((resource.base, fragment))
        at: object = resource.raw
        base = resource.base
        for step in fragment[1:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(at, list) and step.isascii() and step.isdigit() and len(step) < 7 and int(step) < len(at):
                at = at[int(step)]
            elif isinstance(at, dict) and step in at:
                at = at[step]
            else:
                return None
            if isinstance(at, dict):
                base = self._base_within(at, base)
        return self.node(at, base, fragment) if isinstance(at, dict | bool) else None

    def _collect_nodes(self, root: Node) -> None:
        """Find every node: first those that can be referred to by a name, then those found by following references."""
        waiting = [root]
        seen: set[int] = set()
        while waiting:
            found = self._descendants(waiting.pop(), seen)
            for each in found:
                waiting += (
                    to for to in each.referred() if to.document is self and not isinstance(to.raw, bool)
                    and id(to) not in seen
                )  # fmt: skip

    def _descendants(self, start: Node, seen: set[int]) -> list[Node]:
        found: list[Node] = []
        stack = [(start, 0)]
        while stack:
            node, depth = stack.pop()
            self.size += 1
            if depth > MAX_DEPTH:
                raise InvalidSchema(f"{node.path}: schemas lie in one another more than {MAX_DEPTH} deep")
            if self.size > MAX_NODES:
                raise InvalidSchema(f"{node.path or '/'}: the schema has more than {MAX_NODES} parts")
            if isinstance(node.raw, bool) or id(node) in seen:
                continue
            seen.add(id(node))
            found.append(node)
            self._name(node)
            # In older drafts, only definitions are kept beside a reference; these are visited when they are referred
            # to.
            stack += ((part, depth + 1) for _, part in node.parts())
        return found

    def _name(self, node: Node) -> None:
        assert isinstance(node.raw, dict)
        own = node.raw.get("$schema")
        if node is not self.root and isinstance(own, str) and draft_of(own) != self.draft:
            raise InvalidSchema(f"{node.path}/$schema: {shown(own)} is not the draft of the whole schema; use one")
        own = node.raw.get("id" if self.draft == 4 else "$id")
        if isinstance(own, str) and not (self.draft <= 7 and "$ref" in node.raw):
            if node is not self.root and node.base not in ("", self.base):
                self._resources.setdefault(node.base, node)
            if self.draft <= 7 and "#" in own:
                self._anchors[node.base, own.partition("#")[2]] = node
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(keyword), str):
                self._anchors[node.base, anchor] = node


def draft_of(uri: str) -> Draft | None:
    """The draft for an address in ``$schema``, with or without the trailing ``#`` and the ``s`` of ``https``."""
    wanted = uri.rstrip("#").partition("://")[2]
    return next((draft for draft, each in DRAFT_URIS.items() if each.rstrip("#").partition("://")[2] == wanted), None)


def _join_uri(base: str, reference: str) -> str:
    try:
        if base.startswith("urn:") and reference.startswith("#"):
            return base + reference
        return urljoin(base, reference)
    except ValueError:
        raise InvalidSchema(f"{shown(reference)} is no address") from None
