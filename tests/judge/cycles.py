"""Shortest cycles of a directed graph with labelled edges: one for each strongly connected part.

Leaves the meaning of nodes and edges to `elle`.

Invariants: pure. The cost is linear in nodes and edges, except for the parts that have cycles. The
search for parts is Tarjan's, without recursion: histories have chains of many thousand nodes.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

Edge = tuple[int, str, int]
"""From node, label, to node."""


@dataclass(slots=True)
class Graph:
    """Nodes 0, 1, ... and their edges."""

    edges: list[list[tuple[int, str]]] = field(default_factory=list)

    def add_node(self) -> int:
        """Add a node; return its number."""
        self.edges.append([])
        return len(self.edges) - 1

    def add_edge(self, start: int, label: str, end: int) -> None:
        """Add an edge."""
        self.edges[start].append((end, label))

    def without(self, label: str) -> "Graph":
        """Return the graph without the edges of this label."""
        return Graph([[end for end in ends if end[1] != label] for ends in self.edges])


def find_cycles(graph: Graph) -> list[list[Edge]]:
    """Return a shortest cycle through the first node of each part that has cycles."""
    return [_cycle_through(graph, min(part), part) for part in _parts(graph) if len(part) > 1]


def _cycle_through(graph: Graph, start: int, part: Collection[int]) -> list[Edge]:
    within = frozenset(part)
    came_by: dict[int, Edge] = {}
    queue = deque([start])
    while start not in came_by:
        node = queue.popleft()
        for end, label in graph.edges[node]:
            if end in within and end not in came_by:
                came_by[end] = (node, label, end)
                queue.append(end)
    cycle = [came_by[start]]
    while cycle[-1][0] != start:
        cycle.append(came_by[cycle[-1][0]])
    return cycle[::-1]


class _Search:
    """State of the search for strongly connected parts."""

    def __init__(self, size: int) -> None:
        self.number = [-1] * size
        """When a node was reached; -1 before."""
        self.low = [0] * size
        """The earliest node of the stack that a node leads to."""
        self.is_on_stack = [False] * size
        self.stack: list[int] = []
        self.count = 0

    def reach(self, node: int) -> None:
        """Give a node its number, and put it on the stack."""
        self.number[node] = self.low[node] = self.count
        self.count += 1
        self.stack.append(node)
        self.is_on_stack[node] = True

    def take_part(self, root: int) -> list[int]:
        """Remove the part that begins with `root` from the stack."""
        part: list[int] = []
        while not part or part[-1] != root:
            part.append(self.stack.pop())
            self.is_on_stack[part[-1]] = False
        return part


def _parts(graph: Graph) -> Sequence[list[int]]:
    search = _Search(len(graph.edges))
    parts: list[list[int]] = []
    for root in range(len(graph.edges)):
        if search.number[root] >= 0:
            continue
        search.reach(root)
        path = [(root, iter(graph.edges[root]))]
        while path:
            node, ends = path[-1]
            for end, _ in ends:
                if search.number[end] < 0:
                    search.reach(end)
                    path.append((end, iter(graph.edges[end])))
                    break
                if search.is_on_stack[end]:
                    search.low[node] = min(search.low[node], search.number[end])
            else:
                path.pop()
                if path:
                    before = path[-1][0]
                    search.low[before] = min(search.low[before], search.low[node])
                if search.low[node] == search.number[node]:
                    parts.append(search.take_part(node))
    return parts
