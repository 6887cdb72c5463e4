"""Lists the kinds of findings that are known and not mended, so that others show.

Leaves looking for them to the targets. An entry goes when what it names is mended.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Known:
    """A kind of finding: the targets that meet it, how it begins, and why it may wait."""

    targets: tuple[str, ...]
    what: str
    why: str


_FORGED_BODY: Final = (
    "a record whose checksums hold and whose body its kind cannot have: damage does not make one; "
    "the start ends all the same, by an error that does not say what to do"
)
KNOWN: Final[tuple[Known, ...]] = (
    Known(("segment",), "BatchError:", _FORGED_BODY),
    Known(("segment",), "error: unpack_from requires a buffer", _FORGED_BODY),
    Known(("segment",), "error: iterative unpacking requires a buffer", _FORGED_BODY),
    Known(
        ("cookie",),
        "CookieDamagedError: the cookie in a directory cannot be read: its lines",
        "a forged cookie whose lines end in another sign than a newline is read, and cannot be "
        "written and read again",
    ),
)
