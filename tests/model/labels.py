"""Name of a step of a world.

Leaves taking the step to `steps` and `in_sync_steps`.
"""

from typing import NamedTuple

from tests.model.protocols import show_request
from tests.model.words import Request


class Label(NamedTuple):
    """Name of a step; `is_fault` if it is a fault. The text is made only when needed."""

    template: str
    arguments: tuple[object, ...] = ()
    is_fault: bool = False

    @property
    def text(self) -> str:
        """Text of the step."""
        shown = [show_request(a) if isinstance(a, Request) else a for a in self.arguments]
        return self.template.format(*shown)
