"""Last confirmed entry of a ledger, as far as it is known. Pure.

Leaves reading it to `entry_reading`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """Last confirmed entry of a ledger, as far as it is known."""

    last_confirmed: int
    problem: str = ""
    """Why bookies did not say it, so that only what the metadata proves is known; else empty."""
    is_refused: bool = False
    """Whether bookies refuse the password, or the console's rights."""
