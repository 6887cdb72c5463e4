"""Names a step of a world.

Leaves taking it to `steps` and `in_sync_steps`.
"""

from typing import NamedTuple

from tests.model.protocols import show_request
from tests.model.words import Request


class Label(NamedTuple):
    """What happens; `is_fault` if it need not. The text is made only where it is wanted."""

    template: str
    arguments: tuple[object, ...] = ()
    is_fault: bool = False

    @property
    def text(self) -> str:
        """The step in words."""
        shown = [show_request(a) if isinstance(a, Request) else a for a in self.arguments]
        return self.template.format(*shown)
