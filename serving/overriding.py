"""Marks a method that replaces an inherited one, for the type checker alone.

Leaves `typing.override` to the day when Python 3.12 is the oldest supported.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

MethodT = TypeVar("MethodT", bound=Callable[..., object])

if TYPE_CHECKING:
    from typing_extensions import override as override  # noqa: PLC0414 - handed on
else:

    def override(method: MethodT) -> MethodT:
        """Return the method as it is."""
        return method
