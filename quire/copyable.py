"""Errors that can be copied and pickled, for processes and tasks that send them on.

Imports nothing else of Quire.
"""

from typing import Any, TypeVar

ErrorT = TypeVar("ErrorT", bound=Exception)


def remade(kind: type[ErrorT], arguments: tuple[Any, ...]) -> ErrorT:
    """Return an error of a class with these `args`, without a call of its `__init__`."""
    error = kind.__new__(kind)
    error.args = arguments
    return error


class CopyableError(Exception):
    """Error that can be copied and pickled, whatever the parameters of its `__init__`."""

    # (`typing.override` needs Python 3.12.)
    def __reduce__(self) -> tuple[Any, ...]:  # type: ignore[explicit-override]
        """Return how to make the error again: from its class, its `args` and its fields."""
        return remade, (type(self), self.args), self.__dict__
