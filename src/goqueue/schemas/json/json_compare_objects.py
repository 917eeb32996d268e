"""Compatibility of JSON Schema objects: whether every object that the writer's schema allows is allowed by the
reader's, for properties in open, closed and partially open content models."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.model.fields import shown
from goqueue.schemas.base import Incompatibility
from goqueue.schemas.json.json_compare_values import Reading, counts
from goqueue.schemas.json.json_nodes import Node
from goqueue.schemas.json.json_text import pointer
from goqueue.schemas.json.json_written import Written, made, next_reference


class ObjectRules:
    """Rules that compare one node of the reader's schema with the writer's."""

    def __init__(self, reading: Reading, reader: Node, written: Written, path: str) -> None:
        self._reading = reading
        self._reader = reader
        self._written = written
        self._path = path
        self._properties = reader.named("properties")
        self._patterns = reader.named("patternProperties")
        self._rest = reader.one("additionalProperties")
        self._named_before = {name for node in written.nodes for name in node.named("properties")}
        self._added_to_open: set[str] = set()

    def reasons(self) -> Iterator[Incompatibility]:
        if "object" not in self._written.kinds:
            return
        if self._properties or self._patterns or self._rest is not None:
            names = [*self._properties, *sorted(self._named_before - self._properties.keys())]
            for name in names:
                yield from self._property(name)
            for pattern, schema in self._patterns.items():
                yield from self._pattern(pattern, schema)
            yield from self._additional()
        yield from self._required()
        yield from self._dependencies()
        yield from self._property_names()
        yield from counts("object", self._reader, self._written, self._path)

    def _applicable_schemas(self, node: Node, name: str) -> list[tuple[str, Node]]:
        """Schemas that apply to a property of that name, with their paths."""
        found: list[tuple[str, Node]] = []
        if (own := node.named("properties").get(name)) is not None:
            found.append((pointer("", "properties", name), own))
        for pattern, schema in node.named("patternProperties").items():
            if self._reading.pattern_matches(pattern, name):
                found.append((pointer("", "patternProperties", pattern), schema))
        if not found and (rest := node.one("additionalProperties")) is not None and rest.raw is not True:
            found.append(("/additionalProperties", rest))
        return found

    def _writer_schemas(self, name: str) -> tuple[Node, ...]:
        return tuple(each for node in self._written.nodes for _, each in self._applicable_schemas(node, name))

    def _property(self, name: str) -> Iterator[Incompatibility]:
        self._reading.spend(1)
        before = self._writer_schemas(name)
        if any(each.raw is False for each in before):
            return  # The writer never writes a property of that name.
        governing = self._applicable_schemas(self._reader, name)
        found: list[Incompatibility] = []
        for where, schema in governing:
            found += self._reading.compare(schema, before, self._path + where)
        if not found:
            return
        here = pointer(self._path, "properties", name)
        if name in self._properties and name in self._named_before:
            yield from found
        elif name in self._properties and not before:
            self._added_to_open.add(name)
            yield Incompatibility(
                "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
                here,
                f"anything may have been written as {shown(name)}, since the other schema allows properties that it "
                "does not name; give the property no schema ({}), or close the other schema with "
                "'additionalProperties': false",
            )
        elif name in self._properties:
            yield Incompatibility(
                "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
                here,
                f"what the other schema allows for properties that it does not name may have been written as "
                f"{shown(name)}; allow at least that",
            )
            yield from found
        elif any(schema.raw is False for _, schema in governing):
            yield Incompatibility(
                "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
                here,
                f"property {shown(name)} may have been written, and the schema allows no properties that it does not "
                "name; keep it, or allow additional properties",
            )
        else:
            yield Incompatibility(
                "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
                here,
                f"property {shown(name)} may have been written, and what the schema allows for properties that it does "
                "not name does not cover it; keep it, or allow at least its schema",
            )
            yield from found

    def _compare_unlisted(self, wanted: Node, writer: Node, but: dict[str, Node], path: str) -> list[Incompatibility]:
        """Reasons why not all values that the writer allows under names it does not list are allowed by ``wanted``."""
        found: list[Incompatibility] = []
        for pattern, schema in writer.named("patternProperties").items():
            if pattern not in but:
                found += self._reading.compare(wanted, (schema,), path)
        rest = writer.one("additionalProperties")
        return found + self._reading.compare(wanted, () if rest is None else (rest,), path)

    def _pattern(self, pattern: str, schema: Node) -> Iterator[Incompatibility]:
        here = pointer(self._path, "patternProperties", pattern)
        same = tuple(each for node in self._written.nodes if (each := node.named("patternProperties").get(pattern)))
        found = self._reading.compare(schema, same, here)
        if not found or any(not self._compare_unlisted(schema, node, {}, here) for node in self._written.nodes):
            return
        yield Incompatibility(
            "PATTERN_PROPERTY_CHANGED" if same else "PATTERN_PROPERTY_ADDED",
            here,
            f"other values may have been written under names like {shown(pattern)}; allow at least what was allowed",
        )
        if same:
            yield from found

    def _additional(self) -> Iterator[Incompatibility]:
        rest = self._rest
        if rest is None or rest.raw is True:
            return
        here = pointer(self._path, "additionalProperties")
        closest: list[Incompatibility] = []
        is_open = True
        for node in self._written.nodes:
            found = self._compare_unlisted(rest, node, self._patterns, here)
            if not found:
                return
            before = node.one("additionalProperties")
            if before is not None and before.raw is not True:
                closest, is_open = found, False
        if not self._written.nodes and not self._reading.compare(rest, (), here):
            return
        if rest.raw is False:
            yield Incompatibility(
                "ADDITIONAL_PROPERTIES_REMOVED",
                here,
                "properties that are not named may have been written; keep allowing additional properties",
            )
        elif is_open:
            yield Incompatibility(
                "ADDITIONAL_PROPERTIES_NARROWED",
                here,
                "any additional properties may have been written; give them no schema",
            )
        else:
            yield from closest

    def _required(self) -> Iterator[Incompatibility]:
        wanted = self._reader.get("required")
        before = {name for each in self._written.all_of("required") if isinstance(each, list) for name in each}
        for name in wanted if isinstance(wanted, list) else []:
            own = self._properties.get(name)
            if name in before or name in self._added_to_open or (own is not None and _has_default(own)):
                continue
            here = pointer(self._path, "required", name)
            rule = "REQUIRED_ATTRIBUTE_ADDED"
            if name in self._properties and name not in self._named_before:
                here = pointer(self._path, "properties", name)
                openness = "UNOPEN" if self._writer_schemas(name) else "OPEN"
                rule = f"REQUIRED_PROPERTY_ADDED_TO_{openness}_CONTENT_MODEL"
            yield Incompatibility(
                rule,
                here,
                f"property {shown(name)} is required, and may be missing in what was written; give it a default, or "
                "do not require it",
            )

    def _dependencies(self) -> Iterator[Incompatibility]:
        for keyword in ("dependencies", "dependentRequired"):
            wanted = self._reader.get(keyword)
            for name, others in wanted.items() if isinstance(wanted, dict) else ():
                if isinstance(others, list) and not self._is_never_written(name):
                    yield from self._needs(keyword, name, {str(each) for each in others})
        for keyword in ("dependencies", "dependentSchemas"):
            for name, schema in self._reader.named(keyword).items():
                if self._is_never_written(name):
                    continue
                before = tuple(
                    each
                    for node in self._written.nodes
                    for other in ("dependencies", "dependentSchemas")
                    if (each := node.named(other).get(name)) is not None
                )
                here = pointer(self._path, keyword, name)
                found = self._reading.compare(schema, (*self._written.nodes, *before), here)
                if found and not before:
                    yield Incompatibility(
                        "DEPENDENCY_SCHEMA_ADDED",
                        here,
                        f"values with {shown(name)} may have been written that do not fit this; leave it out",
                    )
                else:
                    yield from found

    def _is_never_written(self, name: str) -> bool:
        return any(each.raw is False for each in self._writer_schemas(name))

    def _needs(self, keyword: str, name: str, others: set[str]) -> Iterator[Incompatibility]:
        before: set[str] = set()
        for each in (*self._written.all_of("dependencies"), *self._written.all_of("dependentRequired")):
            if isinstance(each, dict) and isinstance(listed := each.get(name), list):
                before.update(listed)
        had = bool(before)
        sure = {name, *before}
        for each in self._written.all_of("required"):
            sure.update(each if isinstance(each, list) else ())
        if others <= sure:
            return
        moved = "ADDED" if not had else "EXTENDED" if before <= others else "CHANGED"
        yield Incompatibility(
            f"DEPENDENCY_ARRAY_{moved}",
            pointer(self._path, keyword, name),
            f"{shown(name)} may have been written without {', '.join(sorted(others - sure)[:5])}; do not require them",
        )

    def _property_names(self) -> Iterator[Incompatibility]:
        wanted = self._reader.one("propertyNames")
        if wanted is None or wanted.raw is True:
            return
        before = [each for node in self._written.nodes if (each := node.one("propertyNames")) is not None]
        for node in self._written.nodes:
            rest = node.one("additionalProperties")
            if rest is not None and rest.raw is False and not node.named("patternProperties"):
                before.append(self._reading.keep(made({"enum": [*node.named("properties")]}, node)))
        before.append(self._reading.keep(made({"type": "string"}, self._reader)))
        yield from self._reading.compare(wanted, tuple(before), pointer(self._path, "propertyNames"))


def _has_default(node: Node) -> bool:
    seen: set[int] = set()
    while id(node) not in seen:
        seen.add(id(node))
        if isinstance(node.raw, dict) and "default" in node.raw:
            return True
        following = next_reference(node)
        if following is None:
            return False
        node = following
    return False
