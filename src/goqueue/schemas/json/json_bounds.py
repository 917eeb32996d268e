"""How much work a JSON schema can make of a value, found before any value comes."""

from __future__ import annotations

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.json.json_costs import costs_of
from goqueue.schemas.json.json_nodes import Node

MOST_WAYS = 1_000
"""How often a schema may look at the same place of a value."""
MOST_WORK_AT_ONCE = 100_000
"""What looking at one place may cost, in units of about ten nanoseconds."""
MOST_PATTERNS = 400
"""How many regular expressions a schema may have; each costs about a millisecond at most to make."""
MOST_PATTERN_BYTES = 32 << 10
"""How long all of them together may be: nobody else runs while they are made."""


class SchemaGraph:
    """Every node that a schema can come to, and which of them come back to themselves."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.edges: dict[int, list[tuple[str, Node]]] = {}
        self._order: list[Node] = []
        self._circle: dict[int, int] = {}
        """Nodes that can come to one another have the same number."""
        self._together: list[list[Node]] = []
        self._find_circles(root)

    def nodes(self) -> list[Node]:
        """Each before those that come to it, as far as they are not in a circle."""
        return self._order

    def circles(self) -> list[list[Node]]:
        """Nodes that can come to one another, together; the others each alone. Each before those that come to it."""
        return self._together

    def is_circle(self, node: Node) -> bool:
        return self._circle[id(node)] != 0

    def check_new(self) -> None:
        """Bounds that came later: what was registered before need not keep them."""
        length = sum(len(each.encode(errors="surrogatepass")) for each in self._patterns())
        if length > MOST_PATTERN_BYTES:
            raise InvalidSchema(
                f"the schema's regular expressions ('pattern', 'patternProperties') have {length} bytes in all; "
                f"{MOST_PATTERN_BYTES} are allowed"
            )

    def _patterns(self) -> set[str]:
        patterns: set[str] = set()
        for node in self._order:
            if isinstance(text := node.get("pattern"), str):
                patterns.add(text)
            if isinstance(by_pattern := node.get("patternProperties"), dict):
                patterns.update(by_pattern)
        return patterns

    def check(self) -> None:
        patterns = self._patterns()
        if len(patterns) > MOST_PATTERNS:
            raise InvalidSchema(f"the schema has {len(patterns)} regular expressions; it may have {MOST_PATTERNS}")
        self._check_endless()
        ways: dict[int, int] = {}
        for node in self._order:
            beside, onward = 1, {"member": 0, "item": 0}
            for way, to in self.edges[id(node)]:
                count = 1 if self._is_inside(node, to) else ways[id(to)]
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
        self.costs = costs_of(self)
        if max(self.costs.once, self.costs.part) > MOST_WORK_AT_ONCE:
            raise InvalidSchema(
                "the schema is too costly: too many of its keywords can apply to one part of a value; use fewer "
                "alternatives, or shorter lists in 'enum' and in what depends on properties"
            )

    def _check_endless(self) -> None:
        """A schema that comes to itself without going on to a part of the value would never come to an end."""
        under_way: set[int] = set()
        done: set[int] = set()
        for start in self._order:
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
                stack += ((to, False) for way, to in self.edges[id(node)] if way == "here" and id(to) not in done)

    def explains_quickly(self) -> bool:
        """Whether finding out why a value does not fit is no more work than finding out that it does not. It is not
        where a schema comes back to itself in two ways for the same part of a value."""
        return self.goes_on_once(self._order)

    def goes_on_once(self, nodes: list[Node]) -> bool:
        """Whether none of these comes back to itself in two ways for the same part of a value."""
        for node in nodes:
            inside = [way for way, to in self.edges[id(node)] if self._is_inside(node, to)]
            beside = sum(way not in ("member", "item") for way in inside)
            if beside + max("member" in inside, "item" in inside) > 1:
                return False
        return True

    def has_alternatives(self) -> bool:
        return any(node.get(each) for node in self._order for each in ("anyOf", "oneOf"))

    def _is_inside(self, node: Node, to: Node) -> bool:
        return self._circle[id(node)] == self._circle[id(to)] != 0

    def _edges(self, node: Node) -> list[tuple[str, Node]]:
        found = [(way, to) for way, to in node.parts() if way != "apart" and not isinstance(to.raw, bool)]
        found += (("here", to) for to in node.referred() if not isinstance(to.raw, bool))
        self.edges[id(node)] = [(str(way), to) for way, to in found]
        return self.edges[id(node)]

    def _find_circles(self, root: Node) -> None:
        """Tarjan's way to find strongly connected parts, without recursion."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        path: list[Node] = []
        on_path: set[int] = set()
        stack: list[tuple[Node, int]] = [(root, 0)]
        circles = 0
        while stack:
            node, place = stack.pop()
            key = id(node)
            if place == 0:
                if key in index:
                    continue
                index[key] = low[key] = len(index)
                path.append(node)
                on_path.add(key)
                self._edges(node)
            edges = self.edges[key]
            if place > 0 and id(edges[place - 1][1]) in on_path:
                low[key] = min(low[key], low[id(edges[place - 1][1])])
            while place < len(edges):
                to = edges[place][1]
                place += 1
                if id(to) not in index:
                    stack += ((node, place), (to, 0))
                    break
                if id(to) in on_path:
                    low[key] = min(low[key], index[id(to)])
            else:
                if low[key] == index[key]:
                    circles += 1
                    self._close(node, path, on_path, circles)

    def _close(self, first: Node, path: list[Node], on_path: set[int], number: int) -> None:
        members: list[Node] = []
        while True:
            node = path.pop()
            on_path.discard(id(node))
            members.append(node)
            if node is first:
                break
        is_circle = len(members) > 1 or any(to is first for _, to in self.edges[id(first)])
        for each in members:
            self._circle[id(each)] = number if is_circle else 0
        self._order += members
        self._together.append(members)
