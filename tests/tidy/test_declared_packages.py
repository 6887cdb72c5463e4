"""The product imports packages that `pyproject.toml` declares, and none that comes by chance.

A package that another one brings on some releases of Python only is missing on the others.
"""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OWN = PROJECT["tool"]["importlinter"]["root_packages"]
NOT_OF_A_USER = ("dev", "docs", "browser")
BY_INTENT = {"py4j": "pyspark", "markupsafe": "jinja2"}
"""Modules of packages that a declared one always brings."""


installed = functools.cache(packages_distributions)


@functools.cache
def declared() -> frozenset[str]:
    """Return the names of the distributions that a user's installation may have."""
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = list(PROJECT["project"]["dependencies"])
    for extra, names in extras.items():
        wanted += [] if extra in NOT_OF_A_USER else names
    return frozenset(_normal(re.split(r"[\s\[<>=!~;]", each)[0]) for each in wanted)


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the top-level name of each import that is executed."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name.partition(".")[0]) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]
        waiting += ast.iter_child_nodes(node)


def undeclared(source: str) -> list[tuple[int, str]]:
    """Return the imports of modules whose distribution is not declared."""
    found = []
    for line, name in imported(ast.parse(source)):
        if name in OWN or name in sys.stdlib_module_names:
            continue
        owners = installed().get(name, [BY_INTENT.get(name, name)])
        if not declared() & {_normal(owner) for owner in (*owners, BY_INTENT.get(name, name))}:
            found.append((line, name))
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_imported_package_is_declared() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for package in OWN
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, name in undeclared(path.read_text())
    ]
    assert not found, "declare the distribution in pyproject.toml, or do not import it"


def test_an_undeclared_package_is_found() -> None:
    assert undeclared("import os\nimport kazoo.client\nfrom yaml import load\n") == [(3, "yaml")]


def test_imports_for_type_checkers_do_not_count() -> None:
    source = "if TYPE_CHECKING:\n    import yaml\nelse:\n    import typing_extensions\n"
    assert undeclared(source) == [(4, "typing_extensions")]


def test_the_extras_of_a_user_are_documented() -> None:
    page = (ROOT / "docs" / "embedding.md").read_text()
    section = page.partition("## Install it")[2].partition("## ")[0]
    extras = {*PROJECT["project"]["optional-dependencies"]} - {*NOT_OF_A_USER}
    assert {
        extra for extra in extras if f"`{extra}`" not in section and f"[{extra}]" not in section
    } == set()
