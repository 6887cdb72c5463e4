"""Weight of the repository: lines by kind and modules, per package and per folder of tests.

`make weight` prints it. A *sliver* is a module of fewer than 120 lines that one other module
imports: its idea may belong there.
"""

import ast
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SLIVER_LINES: Final = 120
COLUMNS: Final = ("modules", "slivers", "raw", "code", "docstrings", "imports", "comments", "blank")


class Module:
    """One module: its lines by kind, and what it imports."""

    def __init__(self, path: str) -> None:
        text = (ROOT / path).read_text()
        lines = text.splitlines()
        tree = ast.parse(text)
        kinds = ["code"] * len(lines)
        for number, line in enumerate(lines):
            if not line.strip():
                kinds[number] = "blank"
            elif line.lstrip().startswith("#"):
                kinds[number] = "comments"
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                _mark(kinds, node, "imports")
            elif isinstance(node, ast.Expr) and _is_text(node.value):
                _mark(kinds, node, "docstrings")
        self.name = ".".join(PurePosixPath(path).with_suffix("").parts)
        self.group = _group(path)
        self.lines = Counter(kinds)
        self.imported = frozenset(_imports(tree))

    @property
    def raw(self) -> int:
        """All lines."""
        return self.lines.total()


def _mark(kinds: list[str], node: ast.stmt, kind: str) -> None:
    for number in range(node.lineno - 1, node.end_lineno or node.lineno):
        kinds[number] = kind


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _group(path: str) -> str:
    parts = path.split("/")
    is_divided = parts[0] in ("quire", "tests") and len(parts) > 2
    return "/".join(parts[:2]) if is_divided else parts[0]


def slivers(modules: list[Module]) -> set[str]:
    """Return the names of the modules that are slivers."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for name in module.imported - {module.name}:
            importers[name].add(module.name)
    return {
        module.name
        for module in modules
        if module.raw < SLIVER_LINES
        and len(importers[module.name]) == 1
        and not module.name.endswith((".__init__", ".main", ".__main__"))
    }


def table(modules: list[Module]) -> str:
    """Return a table with a row per group, and a row of all."""
    small = slivers(modules)
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for module in modules:
        for row in (groups[module.group], groups["all"]):
            row.update(module.lines, modules=1, slivers=module.name in small, raw=module.raw)
    last = groups.pop("all")
    lines = [f"{'':28}" + "".join(f"{column:>11}" for column in COLUMNS)]
    for name, row in [*sorted(groups.items()), ("all", last)]:
        lines.append(f"{name:28}" + "".join(f"{row[column]:>11,}" for column in COLUMNS))
    return "\n".join(lines)


def main() -> None:
    """Print the weight of the product, then that of tests and benchmarks."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    product = tools["hatch"]["build"]["targets"]["wheel"]["packages"]
    for title, folders in (("Product", product), ("Tests and benchmarks", ["tests", "benchmarks"])):
        listed = subprocess.run(
            ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        paths = [path for path in listed if path.endswith(".py") and (ROOT / path).is_file()]
        sys.stdout.write(f"{title}\n{table([Module(path) for path in paths])}\n\n")


if __name__ == "__main__":
    main()
