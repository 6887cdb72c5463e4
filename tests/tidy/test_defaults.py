"""No default is written in two configuration classes: one class derives it from the other."""

import ast
from collections import defaultdict

from bookie.config import GIB, KIB, MIB
from tests.tidy.test_tidy import PRODUCT

UNITS = {"KIB": KIB, "MIB": MIB, "GIB": GIB}


def numbers_above_one(tree: ast.Module) -> list[tuple[str, float]]:
    """Return the name and the value of each field's default that is written as a number above 1.
    The default of `option(...)` is its first argument.
    """
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(ast.Name(name), value=ast.Call(ast.Name("option"), [value, *_])):
                pass
            case ast.AnnAssign(ast.Name(name), value=ast.Constant() | ast.BinOp() as value):
                pass
            case _:
                continue
        names = [t.id for t in ast.walk(value) if isinstance(t, ast.Name)]
        if name.islower() and all(each in UNITS for each in names):
            number = eval(ast.unparse(value), dict(UNITS))
            if isinstance(number, int | float) and number > 1:
                found.append((name, number))
    return found


def test_no_default_is_written_twice() -> None:
    places = defaultdict[tuple[str, float], list[str]](list)
    for path, source in PRODUCT.items():
        for found in numbers_above_one(source.tree):
            places[found].append(path)
    assert {found: paths for found, paths in places.items() if len(paths) > 1} == {}


def test_numbers_are_read_from_fields_and_options() -> None:
    text = "class A:\n a: int = option(2 * KIB, 'text')\n b: int = 3\n c: int = X\n d: int = 2 * X"
    assert numbers_above_one(ast.parse(text)) == [("a", 2048), ("b", 3)]
