"""Reference graph of a JSON schema: the nodes reachable from its root, and their cycles."""

from __future__ import annotations

from goqueue.schemas.json.json_nodes import Node


class SchemaGraph:
    """Every node reachable from the root of a schema, and the cycles (strongly connected components) among them."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.edges: dict[int, list[tuple[str, Node]]] = {}
        self.nodes: list[Node] = []
        """Nodes in topological order: each before those that refer to it, unless they are in one cycle."""
        self._circle: dict[int, int] = {}
        """Number of the cycle of each node: nodes that can reach one another have the same number."""
        self.circles: list[list[Node]] = []
        """Strongly connected components in topological order: nodes that can reach one another together, all others
        alone. Each component comes before those that refer to it."""
        self._find_cycles(root)

    def is_circle(self, node: Node) -> bool:
        return self._circle[id(node)] != 0

    def patterns(self) -> set[str]:
        """Distinct regular expressions of all nodes."""
        patterns: set[str] = set()
        for node in self.nodes:
            if isinstance(text := node.get("pattern"), str):
                patterns.add(text)
            if isinstance(by_pattern := node.get("patternProperties"), dict):
                patterns.update(by_pattern)
        return patterns

    def explains_quickly(self) -> bool:
        """Whether explaining why a value is invalid takes no more work than detecting it. False where a schema
        reaches itself by two edges that apply to the same part of a value."""
        return self.goes_on_once(self.nodes)

    def goes_on_once(self, nodes: list[Node]) -> bool:
        """Whether none of these nodes reaches itself by two edges that apply to the same part of a value."""
        for node in nodes:
            inside = [way for way, to in self.edges[id(node)] if self.is_inside(node, to)]
            beside = sum(way not in ("member", "item") for way in inside)
            if beside + max("member" in inside, "item" in inside) > 1:
                return False
        return True

    def has_alternatives(self) -> bool:
        return any(node.get(each) for node in self.nodes for each in ("anyOf", "oneOf"))

    def is_inside(self, node: Node, to: Node) -> bool:
        """Whether the edge from ``node`` to ``to`` stays in one cycle."""
        return self._circle[id(node)] == self._circle[id(to)] != 0

    def _edges(self, node: Node) -> list[tuple[str, Node]]:
        found = [(way, to) for way, to in node.parts() if way != "apart" and not isinstance(to.raw, bool)]
        found += (("here", to) for to in node.referred() if not isinstance(to.raw, bool))
        return [(str(way), to) for way, to in found]

    def _find_cycles(self, root: Node) -> None:
        """Tarjan's algorithm for strongly connected components, without recursion."""
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
                self.edges[key] = self._edges(node)
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
                    self._close_cycle(node, path, on_path, circles)

    def _close_cycle(self, first: Node, path: list[Node], on_path: set[int], number: int) -> None:
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
        self.nodes += members
        self.circles.append(members)
