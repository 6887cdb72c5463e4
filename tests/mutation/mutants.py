"""Mutants of one module: small wrong changes to its functions, one at a time.

Leaves what is changed into what to `statements` and `expressions`, putting a mutant into running
code to `swapping`, and running tests to `session`.

Invariants: the order of a module's mutants depends on its text alone. Only functions are changed:
their bodies and the defaults of their arguments. Statements of modules and classes are not, because
other modules copy their values when they import them; nor are assertions, log calls, the arguments
of raised errors, strings and annotations.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from tests.mutation.places import Change, FunctionNode, Spot, blocks, is_constant
from tests.mutation.statements import argument_of_default, changes_of

TEXT_LENGTH_MAX = 120


@dataclass(frozen=True, slots=True)
class FunctionName:
    """Name of a function within a module, and the line where it starts, as code objects have it."""

    qualname: str
    first_line: int


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. `function`, `text` and `change` say which, also after lines have moved."""

    path: str
    function: str
    line: int
    text: str
    """The line of the change, without its indentation."""
    change: str
    statement: Spot
    """The innermost statement around the change; tests that do not reach it cannot notice."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Name that stays while lines above it are added or removed."""
        return self.path, self.function, self.text, self.change

    @property
    def described(self) -> str:
        """Place, line and change, in two lines."""
        return f"{self.path}:{self.line} {self.function}: {self.text}\n    {self.change}"


@dataclass(frozen=True, slots=True)
class DefaultValue:
    """A changed default of an argument, by the argument's name."""

    argument: str
    value: object


@dataclass(frozen=True, slots=True)
class _Function:
    classes: tuple[ast.ClassDef, ...]
    node: FunctionNode

    @property
    def name(self) -> FunctionName:
        parts = [*(class_.name for class_ in self.classes), self.node.name]
        first = self.node.decorator_list[0] if self.node.decorator_list else self.node
        return FunctionName(".".join(parts), first.lineno)


class Module:
    """One parsed module, its mutants, and their compiled functions."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._lines = text.splitlines()
        self._tree = ast.parse(text)
        self._mutants: list[Mutant] = []
        self._changes: dict[Mutant, tuple[_Function, Change]] = {}
        for function in _functions(self._tree.body, ()):
            seen: Counter[tuple[str, str]] = Counter()
            for changed, statement in changes_of(function.node):
                self._add(function, changed, statement, seen)

    @property
    def mutants(self) -> list[Mutant]:
        """All mutants, in the order of the text."""
        return self._mutants

    def compile(self, mutant: Mutant, file_name: str) -> tuple[FunctionName, CodeType]:
        """Return a mutant's function and its changed code."""
        function, changed = self._changes[mutant]
        with changed.applied():
            return function.name, _compiled(function, file_name)

    def default_value(self, mutant: Mutant) -> DefaultValue | None:
        """Return the changed default, if a default is what the mutant changes."""
        function, changed = self._changes[mutant]
        if (argument := argument_of_default(function.node, changed)) is None:
            return None
        assert isinstance(changed.new, ast.Constant)
        return DefaultValue(argument, changed.new.value)

    def marked(self, file_name: str, marker: str) -> dict[FunctionName, CodeType]:
        """Return every function's code, which calls `marker(line, column)` before a statement."""
        functions = list(_functions(copy.deepcopy(self._tree).body, ()))
        for function in functions:
            _mark(function.node.body, marker)
        return {each.name: _compiled(each, file_name) for each in functions}

    def _add(
        self,
        function: _Function,
        changed: Change,
        statement: Spot,
        seen: Counter[tuple[str, str]],
    ) -> None:
        text = self._lines[changed.line - 1].strip()
        described = changed.description[:TEXT_LENGTH_MAX]
        seen[text, described] += 1
        if (number := seen[text, described]) > 1:
            described += f" ({number})"
        name = function.name.qualname
        mutant = Mutant(self.path, name, changed.line, text, described, statement)
        assert mutant not in self._changes
        self._mutants.append(mutant)
        self._changes[mutant] = function, changed


def _functions(body: list[ast.stmt], classes: tuple[ast.ClassDef, ...]) -> Iterator[_Function]:
    """Yield functions of modules and classes; those inside of functions are part of these."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, (*classes, statement))
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _Function(classes, statement)


def _compiled(function: _Function, file_name: str) -> CodeType:
    """Compile a function in empty classes of the names that are around it."""
    node: ast.stmt = function.node
    for class_ in reversed(function.classes):
        node = ast.copy_location(ast.ClassDef(class_.name, [], [], [node], []), class_)
    tree = ast.fix_missing_locations(ast.Module([node], []))
    code: CodeType = compile(tree, file_name, "exec", dont_inherit=True)
    for name in [*(class_.name for class_ in function.classes), function.node.name]:
        code = next(
            const
            for const in code.co_consts
            if isinstance(const, CodeType) and const.co_name == name
        )
    return code


def _mark(body: list[ast.stmt], marker: str) -> None:
    """Put a call of the marker before each statement, of inner blocks too."""
    marked: list[ast.stmt] = []
    for statement in body:
        line, column = statement.lineno, statement.col_offset
        call = ast.parse(f"{marker}({line}, {column})").body[0]
        for t in ast.walk(call):
            ast.copy_location(t, statement)
        is_docstring = statement is body[0] and is_constant(statement)
        marked += [statement] if is_docstring else [call, statement]
        if not isinstance(statement, ast.ClassDef):
            for owner, field in blocks(statement):
                _mark(getattr(owner, field), marker)
    body[:] = marked
