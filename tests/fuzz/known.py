"""List of the kinds of findings that are known and not fixed, so that new ones are reported.

Leaves the search for them to the targets. An entry is removed when its defect is fixed.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Known:
    """Kind of finding: the targets that meet it, its first words, and why it may wait."""

    targets: tuple[str, ...]
    what: str
    why: str


KNOWN: Final[tuple[Known, ...]] = ()
