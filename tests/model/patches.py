"""Reversible changes of production code in this process.

Leaves the changes to the modules `bugs_*`.
"""

from typing import Any


class Patches:
    """Changes attributes, and restores them."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Change one attribute."""
        self._undo.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Restore all attributes."""
        while self._undo:
            setattr(*self._undo.pop())
