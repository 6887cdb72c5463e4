"""Page of the public Python interface, from the source text of the packages."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quire.server.overriding import override
from tests.reference.markdown import code, first_sentence, page, prose, table

ROOT: Final = Path(__file__).parents[2]
INTRODUCTION: Final = """\
What programs may import. Signatures and first lines come from the source; the complete
docstrings have units, limits and exceptions. `ledger_client.sync` has the same classes without
`async`. Failures are in [errors.md](errors.md), fields of `ClientConfig` in
[options.md](options.md#client), examples in the [tutorial](../tutorial.md)."""
INTERNAL: Final = (
    "LedgerClient.from_parts",
    "LedgerReader.start",
    "LedgerWriter.admission",
    "LedgerWriter.is_usable",
    "LedgerWriter.spare_joined",
)
"""Methods without an underscore that other modules of the package call, and programs do not."""
CONSTRUCTED: Final = ("Encryption", "LedgerClient", "LocalCluster")
"""Classes that programs construct, beside those with fields; calls return the others."""
EXTRA: Final = {
    "quire": (
        ("quire/local_cluster.py", "LocalCluster"),
        ("quire/local/local_server.py", "LocalServer"),
        ("quire/local/local_server.py", "LocalBookie"),
    ),
}
"""Names that are public though no `__all__` lists them."""
PACKAGES: Final = ("ledger_client", "broker_layer", "spark_io")


def python_api_page() -> str:
    """Return the page."""
    sections = []
    for package in PACKAGES:
        sections.append(f"## {package}")
        classes = [_found(package, name) for name in _public(package)]
        errors = [
            class_.name for class_ in classes if class_ is not None and _is_error(class_.name)
        ]
        for class_ in classes:
            if class_ is not None and not _is_error(class_.name):
                sections += list(_class(class_))
        if errors:
            sections.append("Errors: " + ", ".join(map(code, errors)) + ".")
    for package, places in EXTRA.items():
        sections.append(f"## {package}")
        for path, name in places:
            sections += list(_class(_class_in(ROOT / path, name)))
    return page("Python interface", INTRODUCTION, sections)


def _is_error(name: str) -> bool:
    return name.endswith("Error")


def _public(package: str) -> list[str]:
    for node in _tree(ROOT / package / "__init__.py").body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                return [str(name.value) for name in names if isinstance(name, ast.Constant)]
            case _:
                continue
    return []


def _found(package: str, name: str) -> ast.ClassDef | None:
    """Return the class that a package exports under a name; None for another kind of name."""
    for node in ast.walk(_tree(ROOT / package / "__init__.py")):
        match node:
            case ast.ImportFrom(module=str() as module, names=names):
                if any(alias.name == name for alias in names):
                    path = ROOT / Path(*module.split(".")).with_suffix(".py")
                    found = [class_ for class_ in _classes(path) if class_.name == name]
                    return found[0] if found else None
            case _:
                continue
    return None


def _class_in(path: Path, name: str) -> ast.ClassDef:
    (found,) = (class_ for class_ in _classes(path) if class_.name == name)
    return found


def _classes(path: Path) -> Iterator[ast.ClassDef]:
    yield from (node for node in _tree(path).body if isinstance(node, ast.ClassDef))


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _class(node: ast.ClassDef) -> Iterator[str]:
    yield f"### {node.name}"
    yield prose(first_sentence(ast.get_docstring(node)))
    rows = []
    for part in node.body:
        match part:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                if node.name != "ClientConfig":
                    rows.append([code(f"{name}: {_plain(part.annotation)}"), ""])
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                rows.append([code(f"{name} = {ast.unparse(part.value)}"), ""])
            case ast.Expr(value=ast.Constant(value=str() as text)) if rows and not rows[-1][1]:
                rows[-1][1] = prose(first_sentence(text))
            case ast.FunctionDef(name="__init__") if node.name in CONSTRUCTED:
                signature = _signature(part).replace("__init__", node.name).replace(" -> None", "")
                text = ast.get_docstring(part) or ast.get_docstring(node) or ""
                rows.append([signature, prose(text)])
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if _is_shown(node.name, part.name):
                    rows.append([_signature(part), prose(first_sentence(ast.get_docstring(part)))])
            case _:
                continue
    if rows:
        yield table(["name", "meaning"], rows)


def _is_shown(owner: str, name: str) -> bool:
    return not name.startswith("_") and f"{owner}.{name}" not in INTERNAL


class _PlainTypes(ast.NodeTransformer):
    """Removes from types how a field is stored (`metadata.records`)."""

    @override
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Leave the type that is annotated."""
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        if is_annotated and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        return self.generic_visit(node)

    @override
    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Name the type for a number with a unit."""
        return ast.Name("int") if node.id in ("Bytes", "Count", "Ms", "Seconds") else node


def _plain(annotation: ast.expr) -> str:
    return ast.unparse(_PlainTypes().visit(annotation))


def _annotation(node: ast.expr) -> str:
    """Return an annotation, without the quotes of one that is imported for type checkers alone."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case _:
            return ast.unparse(node)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    decorators = [ast.unparse(each) for each in node.decorator_list]
    result = f" -> {_annotation(node.returns)}" if node.returns else ""
    if "property" in decorators:
        return code(f"{node.name}{result.replace(' -> ', ': ')}")
    arguments = ast.unparse(node.args)
    for first in ("self, ", "cls, "):
        arguments = arguments.removeprefix(first)
    arguments = "" if arguments in ("self", "cls") else arguments
    kind = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return code(f"{kind}{node.name}({arguments}){result}")
