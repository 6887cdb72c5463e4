"""Places in a syntax tree, and what replaces the node that one holds.

Leaves which nodes are replaced to `expressions` and `statements`.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Spot = tuple[int, int]
"""Line and column where a statement starts: the name of a statement within a module."""


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """What a field of a node holds, or one item of it if the field is a list."""

    owner: ast.AST
    field: str
    index: int | None = None

    @property
    def node(self) -> ast.AST:
        """The node in this place."""
        held = getattr(self.owner, self.field)
        node: ast.AST = held if self.index is None else held[self.index]
        return node


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A node that replaces another one; None takes it out of its list."""

    slot: Slot
    new: ast.AST | None
    description: str
    line: int

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Change the tree while in the context."""
        owner, field, index = self.slot.owner, self.slot.field, self.slot.index
        held = getattr(owner, field)
        if index is None:
            setattr(owner, field, self.new)
        else:
            fresh = [] if self.new is None else [self.new]
            setattr(owner, field, [*held[:index], *fresh, *held[index + 1 :]])
        try:
            yield
        finally:
            setattr(owner, field, held)


def change(slot: Slot, new: ast.AST | None, description: str, line: int | None = None) -> Change:
    """Return a change at the line of the replaced node, or of the node around an operator."""
    lines = (line, getattr(slot.node, "lineno", None), getattr(slot.owner, "lineno", None))
    return Change(slot, new, description, next(each for each in lines if each is not None))


def slots(node: ast.AST, field: str) -> Iterator[Slot]:
    """Yield the places of a field that hold a node."""
    held = getattr(node, field, None)
    if isinstance(held, list):
        yield from (Slot(node, field, i) for i, each in enumerate(held) if each is not None)
    elif isinstance(held, ast.AST):
        yield Slot(node, field)


def shown(node: ast.AST) -> str:
    """Return the text of a node in one line."""
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())


def is_constant(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring or an ellipsis."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def blocks(statement: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes and fields that hold the statements inside of a statement."""
    for field in ("body", "orelse", "finalbody"):
        if getattr(statement, field, None):
            yield statement, field
    for each in [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]:
        yield each, "body"
