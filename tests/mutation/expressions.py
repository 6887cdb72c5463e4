"""Changes of expressions: comparisons and their boundaries, Boolean and arithmetic operators,
numbers, conditions, bounds of slices, and fields that `replace` leaves as they were.

Leaves statements to `statements`. The operators are the usual ones of mutation testing; those that
matter to decisions.
"""

import ast
from collections.abc import Iterator
from typing import Final

from tests.mutation.places import Change, Slot, change, shown, slots

OTHER_OPERATORS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
ORDERINGS: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
SWAPPED_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.USub: "-",
    ast.Invert: "~",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


def condition(slot: Slot, *, is_loop: bool = False) -> Iterator[Change]:
    """Yield changes of a condition: always true (not for a loop), always false, and its parts."""
    node = slot.node
    if isinstance(node, ast.Constant):
        return
    for value in (False,) if is_loop else (True, False):
        described = f"always {str(value).lower()}: {shown(node)}"
        yield change(slot, ast.Constant(value), described)
    if is_negated_by_its_own_change(node):
        yield from _children(node)  # a test that notices one of the two above notices it
    else:
        yield from expression(slot)


def is_negated_by_its_own_change(node: ast.AST) -> bool:
    """Return whether the change of an expression's operator is its negation."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if not isinstance(node, ast.Compare) or len(node.ops) > 1:
        return False
    return not isinstance(node.ops[0], ORDERINGS)


def expression(slot: Slot) -> Iterator[Change]:
    """Yield changes of an expression and of its parts."""
    node = slot.node
    match node:
        case ast.Constant():
            yield from constant(slot)
        case ast.Compare() | ast.BinOp():
            yield from operators(node)
        case ast.BoolOp():
            yield from _junction(slot, node)
        case ast.UnaryOp(op=op, operand=operand):
            if type(op) in SIGNS and not isinstance(operand, ast.Constant):
                yield change(slot, operand, f"without {SIGNS[type(op)]}: {shown(node)}")
        case ast.IfExp():
            yield from condition(Slot(node, "test"))
        case ast.Call(func=ast.Name(name)):
            yield from _call(node, name)
        case ast.Slice():
            for field in ("lower", "upper"):
                for bound in slots(node, field):
                    yield change(bound, None, f"[{shown(node)}] without {shown(bound.node)}")
        case _:
            pass
    yield from _children(node)


def constant(slot: Slot) -> Iterator[Change]:
    """Yield other numbers, or the other truth value."""
    value = getattr(slot.node, "value", None)
    others: list[bool | int | float] = []
    if isinstance(value, bool):
        others = [not value]
    elif isinstance(value, int | float):
        others = [value + 1] if value == 0 else [value + 1, value - 1]
    for other in others:
        yield change(slot, ast.Constant(other), f"{value} becomes {other}")


def operators(node: ast.Compare | ast.BinOp | ast.AugAssign) -> Iterator[Change]:
    """Yield other operators between the operands of a node."""
    for slot in slots(node, "ops" if isinstance(node, ast.Compare) else "op"):
        kind = type(slot.node)
        other = OTHER_OPERATORS.get(kind)
        if other is not None and not _is_mask(node) and not _joins_texts(node):
            described = f"{SIGNS[kind]} becomes {SIGNS[other]}: {shown(node)}"
            yield change(slot, other(), described)


def _junction(slot: Slot, node: ast.BoolOp) -> Iterator[Change]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    described = f"{SIGNS[type(node.op)]} becomes {SIGNS[type(other)]}: {shown(node)}"
    yield change(Slot(node, "op"), other, described)
    for position, value in enumerate(node.values):
        rest = [*node.values[:position], *node.values[position + 1 :]]
        new = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        yield change(slot, new, f"without {shown(value)}: {shown(node)}", value.lineno)


def _call(node: ast.Call, name: str) -> Iterator[Change]:
    if (other := SWAPPED_CALLS.get(name)) is not None:
        described = f"{name} becomes {other}: {shown(node)}"
        yield change(Slot(node, "func"), ast.Name(other, ast.Load()), described)
    if name == "replace":
        for position, keyword in enumerate(node.keywords):
            described = f"replace without {keyword.arg}={shown(keyword.value)}"
            yield change(Slot(node, "keywords", position), None, described)


def _children(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.JoinedStr):
        return
    if _is_mask(node):
        yield from expression(Slot(node, "right"))
        return
    for field in node._fields:
        if field == "test":
            continue  # changed as a condition
        for slot in slots(node, field):
            if isinstance(slot.node, ast.expr):
                yield from expression(slot)
            elif isinstance(slot.node, ast.keyword):
                yield from expression(Slot(slot.node, "value"))
            elif isinstance(slot.node, ast.comprehension):
                yield from expression(Slot(slot.node, "iter"))
                for each in slots(slot.node, "ifs"):
                    yield from condition(each)


def _is_mask(node: ast.AST) -> bool:
    """Return whether a node is `1 << position`: every error in it is noticed."""
    match node:
        case ast.BinOp(left=ast.Constant(value=1), op=ast.LShift()):
            return True
        case _:
            return False


def _joins_texts(node: ast.AST) -> bool:
    if not isinstance(node, ast.BinOp):
        return False
    return any(
        isinstance(each, ast.JoinedStr)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in (node.left, node.right)
    )
