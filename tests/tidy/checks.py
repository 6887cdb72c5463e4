"""Checkers of one module's source text: each returns what is wrong, one line per finding.

It leaves finding the modules, and which checkers apply to which, to test_tidy.py.
Invariants: pure; a finding starts with the line number it is about.
"""

import ast
import re
from collections.abc import Iterator
from functools import cached_property

FUNCTION_LINES_MAX = 49

BANNED_MODULE_NAMES = ("utils", "util", "common", "helpers", "helper", "base", "misc")

# An abbreviation (a part of a name between underscores) and the word that style asks for.
BANNED_WORDS = {
    "btch": "batch",
    "buf": "buffer",
    "cfg": "config",
    "conn": "connection",
    "ctx": "context",
    "eid": "entry_id",
    "ens": "ensemble",
    "evt": "event",
    "frag": "fragment",
    "fut": "future",
    "idx": "index",
    "lh": "ledger",
    "lid": "ledger_id",
    "mgr": "the thing's own name",
    "msg": "message",
    "qa": "ack_quorum",
    "qw": "write_quorum",
    "req": "request",
    "resp": "response",
}

# Archaic words, in any form, and what to write instead (docs/glossary.md has the terms to use).
ARCHAIC_WORDS = {
    "anew": "again, a new one",
    "boastful": "that announces large frames",
    "borne": "allowed, tolerated",
    "forgets": "drops, loses",
    "mend": "fix (code), repair (data)",
    "mended": "fixed, repaired",
    "mending": "fixing, repairing",
    "mends": "fixes, repairs",
    "nobody": "none, no client, no member",
    "stranger": "another client, an unknown client",
    "strangers": "other clients, unknown clients",
    "tells": "reports, says, calls",
    "vain": "without effect, without success",
    "whence": "from where",
    "whoever": "each client that, every waiter",
}
_WORD = re.compile("[A-Za-z]+")

# A method that reaches past the three doors, and where it belongs.
SIDE_DOORS = {
    "read_bytes": "files go through bookie/files/disk.py",
    "read_text": "files go through bookie/files/disk.py",
    "write_bytes": "files go through bookie/files/disk.py",
    "write_text": "files go through bookie/files/disk.py",
    "run_in_executor": "threads live behind the doors",
}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """One module: its text, and its tree, which is parsed when it is first needed."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def tree(self) -> ast.Module:
        """Parsed text."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, in the order of `ast.walk`."""
        return tuple(ast.walk(self.tree))


def find_missing_docstring(source: Source) -> list[str]:
    """Report a module that does not say its job."""
    return [] if ast.get_docstring(source.tree) else ["1: module has no docstring"]


def find_long_functions(source: Source) -> list[str]:
    """Report functions above the ceiling; docstrings, comments and blank lines are free."""
    lines = source.text.splitlines()
    findings = []
    for node in source.nodes:
        if isinstance(node, FunctionNode):
            count = _code_line_count(node, lines)
            if count > FUNCTION_LINES_MAX:
                ceiling = f"the ceiling is {FUNCTION_LINES_MAX}"
                findings.append(f"{node.lineno}: {node.name}() has {count} lines, {ceiling}")
    return findings


def find_banned_words(source: Source) -> list[str]:
    """Report names defined here with an abbreviation in them; names of other libraries are free."""
    return [
        f"{line}: {name}: write {BANNED_WORDS[part]}, not {part}"
        for line, name in _defined_names(source)
        for part in name.lower().split("_")
        if part in BANNED_WORDS
    ]


def find_archaic_words(text: str) -> list[str]:
    """Report words that plain technical English does not use, in any text: parts of names too."""
    return [
        f"{number}: write {ARCHAIC_WORDS[word.lower()]}, not {word}"
        for number, line in enumerate(text.splitlines(), 1)
        for word in _WORD.findall(line)
        if word.lower() in ARCHAIC_WORDS
    ]


def find_set_iteration(source: Source) -> list[str]:
    """Report iteration over what is visibly a set: its order changes from run to run."""
    known = _names_bound_to_sets(source)
    return [
        f"{iterated.lineno}: iterates over a set: {ast.unparse(iterated)}"
        for node in source.nodes
        for iterated in _iterated(node)
        if _is_set(iterated) or ast.unparse(iterated) in known
    ]


def find_side_doors(source: Source) -> list[str]:
    """Report calls that open files or start threads and that ruff's banned-api does not see."""
    findings = []
    for node in source.nodes:
        match node:
            case ast.Call(func=ast.Name(id="open")):
                findings.append(f"{node.lineno}: open(): files go through bookie/files/disk.py")
            case ast.Call(func=ast.Attribute(attr=name)) if name in SIDE_DOORS:
                findings.append(f"{node.lineno}: {name}(): {SIDE_DOORS[name]}")
            case _:
                continue
    return findings


def find_joined_addresses(source: Source) -> list[str]:
    """Report `f"{host}:{port}"`, which is no address if the host is an IPv6 address."""
    return [
        f"{node.lineno}: a host and a port: join_address of quire/addresses.py"
        for node in source.nodes
        if isinstance(node, ast.JoinedStr)
        for before, colon, after in zip(node.values, node.values[1:], node.values[2:], strict=False)
        if isinstance(colon, ast.Constant)
        and str(colon.value).startswith(":")
        and "host" in ast.unparse(before).lower()
        and "port" in ast.unparse(after).lower()
    ]


def find_imports(source: Source) -> list[str]:
    """List every dotted name that the module imports; `from a import b` counts as a and as a.b."""
    names = []
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def find_strings(source: Source) -> list[str]:
    """List every string constant of the module."""
    return [
        node.value
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def _code_line_count(function: FunctionNode, lines: list[str]) -> int:
    first, last = function.lineno, function.end_lineno
    assert last is not None
    free: list[range] = []
    if ast.get_docstring(function):
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        free.append(range(docstring.lineno, docstring.end_lineno + 1))
    return sum(
        1
        for number in range(first, last + 1)
        if lines[number - 1].strip()
        and not lines[number - 1].lstrip().startswith("#")
        and not any(number in lines_of for lines_of in free)
    )


def _defined_names(source: Source) -> Iterator[tuple[int, str]]:
    for node in source.nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case _:
                continue


def _iterated(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            yield node.iter
        case ast.Starred():
            yield node.value
        case ast.Call(func=ast.Name(id="list" | "tuple" | "enumerate" | "iter" | "map" | "zip")):
            yield from node.args
        case _:
            return


def _is_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return _is_set(node.left) or _is_set(node.right)
        case _:
            return False


def _names_bound_to_sets(source: Source) -> list[str]:
    """List each `name` and `self.name` that annotations and assignments bind to sets only."""
    sets: dict[str, bool] = {}
    for node in source.nodes:
        match node:
            case ast.AnnAssign():
                name, is_set = ast.unparse(node.target), _is_set_annotation(node.annotation)
            case ast.arg(annotation=ast.expr() as annotation):
                name, is_set = node.arg, _is_set_annotation(annotation)
            case ast.Assign(targets=[target]):
                name, is_set = ast.unparse(target), _is_set(node.value)
            case _:
                continue
        sets[name] = sets.get(name, True) and is_set
    return [name for name, is_set in sets.items() if is_set]


def _is_set_annotation(annotation: ast.expr) -> bool:
    match annotation:
        case ast.Name(id="set" | "frozenset"):
            return True
        case ast.Subscript(value=ast.Name(id="set" | "frozenset" | "AbstractSet")):
            return True
        case _:
            return False
