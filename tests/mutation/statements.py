"""Changes of a function's statements: those that are left out, returned values, loops that go on or
end, and handlers of exceptions that handle nothing.

Leaves what is inside of an expression to `expressions`, and names and compilation to `mutants`.
"""

import ast
from collections.abc import Iterator
from typing import Final

from tests.mutation.expressions import (
    condition,
    constant,
    expression,
    is_negated_by_its_own_change,
    operators,
)
from tests.mutation.places import (
    Change,
    FunctionNode,
    Slot,
    Spot,
    blocks,
    change,
    is_constant,
    shown,
    slots,
)

LOG_NAMES: Final = ("_log", "log", "logger", "_logger")
EMPTY_RESULTS: Final = {
    "list": "[]",
    "dict": "{}",
    "Sequence": "()",
    "Mapping": "{}",
    "Iterable": "()",
    "Iterator": "iter(())",
    "frozenset": "frozenset()",
    "set": "set()",
    "str": "''",
    "bytes": "b''",
}
Found = Iterator[tuple[Change, Spot]]
"""Changes, and the start of the innermost statement around each."""


def changes_of(function: FunctionNode) -> Found:
    """Yield every change of a function: the defaults of its arguments, and its statements."""
    body = [each for each in function.body if not is_constant(each)]
    if not body:
        return
    for field in ("defaults", "kw_defaults"):
        for slot in slots(function.args, field):
            for each in constant(slot):
                yield each, _start(body[0])
    yield from _block(function, "body", function)


def argument_of_default(function: FunctionNode, changed: Change) -> str | None:
    """Return the argument whose default a change replaces, or None for other changes."""
    arguments, slot = function.args, changed.slot
    if slot.owner is not arguments or slot.index is None:
        return None
    if slot.field == "kw_defaults":
        return arguments.kwonlyargs[slot.index].arg
    every = [*arguments.posonlyargs, *arguments.args]
    return every[len(every) - len(arguments.defaults) + slot.index].arg


def _block(owner: ast.AST, field: str, function: FunctionNode) -> Found:
    for slot in slots(owner, field):
        node = slot.node
        assert isinstance(node, ast.stmt)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from changes_of(node)
        elif not (isinstance(node, ast.Assert) or is_constant(node) or _is_log_call(node)):
            yield from _statement(slot, node, function)


def _statement(slot: Slot, node: ast.stmt, function: FunctionNode) -> Found:
    own = [*_itself(slot, node, function), *_expressions_of(node)]
    yield from ((each, _start(node)) for each in own)
    for owner, field in blocks(node):
        if isinstance(owner, ast.ExceptHandler):
            yield from ((each, _start(owner.body[0])) for each in _unhandled(owner))
        yield from _block(owner, field, function)


def _itself(slot: Slot, node: ast.stmt, function: FunctionNode) -> Iterator[Change]:
    """Yield changes of a statement as a whole."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise():
            yield _left_out(slot)
        case ast.Assign(targets=targets) if all(map(_is_of_an_object, targets)):
            if function.name != "__init__":  # a missing attribute is always noticed
                yield _left_out(slot)
        case ast.AugAssign():
            yield _left_out(slot)
            yield from operators(node)
        case ast.Return(value=None):
            if node is not function.body[-1]:
                yield _left_out(slot)
        case ast.Return():
            yield from _returned(Slot(node, "value"), function)
        case ast.Break():
            yield change(slot, ast.Continue(), "break becomes continue")
        case ast.Continue():
            yield change(slot, ast.Break(), "continue becomes break")
        case _:
            pass


def _expressions_of(node: ast.stmt) -> Iterator[Change]:
    """Yield changes of the expressions of a statement, not of those of inner statements."""
    if isinstance(node, ast.Raise):
        return
    if isinstance(node, ast.If | ast.While):
        yield from condition(Slot(node, "test"), is_loop=isinstance(node, ast.While))
        return
    for field in node._fields:
        for slot in slots(node, field):
            if isinstance(slot.node, ast.withitem):
                yield from expression(Slot(slot.node, "context_expr"))
            elif isinstance(slot.node, ast.expr) and field != "annotation":
                yield from expression(slot)
            elif isinstance(slot.node, ast.match_case) and slot.node.guard is not None:
                yield from condition(Slot(slot.node, "guard"))


def _returned(slot: Slot, function: FunctionNode) -> Iterator[Change]:
    value = slot.node
    if isinstance(value, ast.Constant) or not isinstance(value, ast.expr):
        return  # changed as a constant
    kind = _result_kind(function.returns)
    if kind == "bool":
        if not is_negated_by_its_own_change(value):
            yield change(slot, ast.UnaryOp(ast.Not(), value), f"return not: {shown(value)}")
    elif kind == "int":
        more = ast.BinOp(value, ast.Add(), ast.Constant(1))
        yield change(slot, more, f"return 1 +: {shown(value)}")
    else:
        is_empty_known = kind in EMPTY_RESULTS and not isinstance(value, ast.Tuple)
        empty = EMPTY_RESULTS[kind] if is_empty_known else "None"
        if empty != shown(value):
            new = ast.parse(empty, mode="eval").body
            yield change(slot, new, f"return {empty}, not {shown(value)}")


def _unhandled(node: ast.ExceptHandler) -> Iterator[Change]:
    first = node.body[0]
    if not (isinstance(first, ast.Raise) and first.exc is None):
        kind = "everything" if node.type is None else shown(node.type)
        yield change(Slot(node, "body", 0), ast.Raise(), f"not handled: {kind}", node.lineno)


def _left_out(slot: Slot) -> Change:
    return change(slot, ast.Pass(), f"without: {shown(slot.node)}")


def _start(node: ast.stmt) -> Spot:
    return node.lineno, node.col_offset


def _is_log_call(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    called = node.value.func
    if not isinstance(called, ast.Attribute):
        return False
    owner = called.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name in LOG_NAMES and called.attr != "close"


def _is_of_an_object(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple):
        return all(map(_is_of_an_object, target.elts))
    return isinstance(target, ast.Attribute | ast.Subscript)


def _result_kind(returns: ast.expr | None) -> str:
    if isinstance(returns, ast.Subscript):
        returns = returns.value
    return returns.id if isinstance(returns, ast.Name) else ""
