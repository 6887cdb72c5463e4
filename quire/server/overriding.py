"""Mark of a method that replaces an inherited one, for the type checker only.

`typing.override` replaces it when Python 3.12 is the oldest supported version.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

MethodT = TypeVar("MethodT", bound=Callable[..., object])

if TYPE_CHECKING:
    from typing_extensions import override as override  # noqa: PLC0414 - re-exported
else:

    def override(method: MethodT) -> MethodT:
        """Return the method unchanged."""
        return method
