"""Limits on the validation cost of a JSON schema, checked when the schema is parsed."""

from __future__ import annotations

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.json.json_costs import Costs, costs_of
from goqueue.schemas.json.json_graph import SchemaGraph

MOST_WAYS = 1_000
"""Limit on how often a schema may be applied to the same part of a value."""
MOST_WORK_AT_ONCE = 100_000
"""Limit on the cost of checking one part of a value, in units of about ten nanoseconds."""
MOST_PATTERNS = 400
"""Limit on the number of regular expressions in a schema; compiling one takes about a millisecond at most."""
MOST_PATTERN_BYTES = 32 << 10
"""Limit on the total length of a schema's regular expressions: compiling them blocks all other threads."""


def checked_costs(graph: SchemaGraph) -> Costs:
    """Validation costs of the schema; ``InvalidSchema`` if they exceed what a registered schema may cost."""
    patterns = graph.patterns()
    if len(patterns) > MOST_PATTERNS:
        raise InvalidSchema(f"the schema has {len(patterns)} regular expressions; it may have {MOST_PATTERNS}")
    _check_endless(graph)
    ways: dict[int, int] = {}
    for node in graph.nodes:
        beside, onward = 1, {"member": 0, "item": 0}
        for way, to in graph.edges[id(node)]:
            count = 1 if graph.is_inside(node, to) else ways[id(to)]
            if way in onward:
                onward[way] = max(onward[way], count)
            else:
                beside += count
        ways[id(node)] = beside + max(onward.values())
        if ways[id(node)] > MOST_WAYS:
            raise InvalidSchema(
                f"{node.path or '/'}: alternatives and references multiply to more than {MOST_WAYS} checks of one "
                "value; refer to fewer schemas from within anyOf, oneOf and allOf"
            )
    costs = costs_of(graph)
    if max(costs.once, costs.part) > MOST_WORK_AT_ONCE:
        raise InvalidSchema(
            "the schema is too costly: too many of its keywords can apply to one part of a value; use fewer "
            "alternatives, or shorter lists in 'enum' and in what depends on properties"
        )
    return costs


def check_new(graph: SchemaGraph) -> None:
    """Check the limits that were introduced later, which schemas registered before need not keep."""
    length = sum(len(each.encode(errors="surrogatepass")) for each in graph.patterns())
    if length > MOST_PATTERN_BYTES:
        raise InvalidSchema(
            f"the schema's regular expressions ('pattern', 'patternProperties') have {length} bytes in all; "
            f"{MOST_PATTERN_BYTES} are allowed"
        )


def _check_endless(graph: SchemaGraph) -> None:
    """Refuse a schema that refers to itself for the same value: validating it would never end."""
    under_way: set[int] = set()
    done: set[int] = set()
    for start in graph.nodes:
        stack = [(start, False)]
        while stack:
            node, is_left = stack.pop()
            if is_left:
                under_way.discard(id(node))
                done.add(id(node))
                continue
            if id(node) in done:
                continue
            if id(node) in under_way:
                raise InvalidSchema(
                    f"{node.path or '/'}: the schema refers to itself for the same value, without end; refer to it "
                    "from a property or from the items only"
                )
            under_way.add(id(node))
            stack.append((node, True))
            stack += ((to, False) for way, to in graph.edges[id(node)] if way == "here" and id(to) not in done)
