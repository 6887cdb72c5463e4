"""Mutants put into running code: the code objects of live functions are replaced.

Leaves compiling them to `mutants`, and processes to `forks`.

Invariants: a function keeps its identity, so that whatever imported, decorated or stored it calls
the changed code. Only the process that calls these functions is changed.
"""

import functools
import gc
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType, FunctionType

from tests.mutation.mutants import DefaultValue, FunctionName, Module, Mutant
from tests.mutation.places import Spot

ROOT = Path(__file__).parents[2]
MARKER = "__mutation_reached__"
Reached = set[tuple[str, Spot]]
"""Path of a module and the start of a statement."""


class UnfitMutantError(Exception):
    """The changed code does not fit its function: it uses other variables of enclosing scopes."""


class LiveModules:
    """Functions of the imported modules at some paths, by module and name."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self._modules = modules
        self._files = {str(ROOT / path): path for path in modules}
        self._functions: dict[tuple[str, FunctionName], list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename in self._files:
                code = each.__code__
                name = FunctionName(code.co_qualname, code.co_firstlineno)
                self._functions[self._files[code.co_filename], name].append(each)
        self.clear_caches()

    def apply(self, mutant: Mutant) -> None:
        """Change the functions of a mutant. Raises UnfitMutantError."""
        module = self._modules[mutant.path]
        default = module.default_value(mutant)
        name, code = module.compile(mutant, str(ROOT / mutant.path))
        for function in self._functions[mutant.path, name]:
            if default is not None:
                _set_default(function, default)
            else:
                _set_code(function, code)

    def mark(self, reached: Reached) -> None:
        """Change every function so that it adds each statement that it reaches to `reached`."""
        for path, module in self._modules.items():

            def add(line: int, column: int, path: str = path) -> None:
                reached.add((path, (line, column)))

            file_name = str(ROOT / path)
            for name, code in module.marked(file_name, MARKER).items():
                for function in self._functions[path, name]:
                    function.__globals__[MARKER] = add
                    _set_code(function, code)

    def clear_caches(self) -> None:
        """Drop cached results, so that the next call of a function reaches its statements."""
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] not in {path.partition("/")[0] for path in self._modules}:
                continue
            for var in vars(module).values():
                if isinstance(var, functools._lru_cache_wrapper):
                    var.cache_clear()


def _set_code(function: FunctionType, code: CodeType) -> None:
    if len(code.co_freevars) != len(function.__code__.co_freevars):
        raise UnfitMutantError(function.__qualname__)
    function.__code__ = code


def _set_default(function: FunctionType, changed: DefaultValue) -> None:
    code = function.__code__
    if function.__kwdefaults__ and changed.argument in function.__kwdefaults__:
        function.__kwdefaults__[changed.argument] = changed.value
        return
    names = code.co_varnames[: code.co_argcount]
    values = list(function.__defaults__ or ())
    values[names.index(changed.argument) - len(names)] = changed.value
    function.__defaults__ = tuple(values)
