"""Lists the kinds of findings that are known and not fixed, so that new ones show.

Leaves looking for them to the targets. An entry goes when what it names is fixed.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Known:
    """A kind of finding: the targets that meet it, how it begins, and why it may wait."""

    targets: tuple[str, ...]
    what: str
    why: str


KNOWN: Final[tuple[Known, ...]] = ()
