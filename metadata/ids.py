"""Identifiers that every package shares.

Leaves their allocation to `metadata.ledgers.ledger_ids` and their registration to
`metadata.registry.registry`.

Source: protocol rules 1.1 and 2.1.
"""

import re
from typing import Final, NewType

LedgerId = NewType("LedgerId", int)
"""Number of a ledger: 0 .. 2^63 - 1, never reused in a cluster, not dense."""

EntryId = NewType("EntryId", int)
"""Number of an entry within its ledger: 0 .. 2^63 - 2, without gaps. `NO_ENTRY` is the position
before the first entry.
"""

BookieId = NewType("BookieId", str)
"""Permanent name of a bookie: a readable prefix and a random part, made when its disks are
formatted.
"""

ClientId = NewType("ClientId", str)
"""Name of one client process while its metadata session lives; a ledger records its writer's client
id.
"""

Version = NewType("Version", int)
"""Number of writes to one stored value; compare-and-set succeeds only at the version read."""

UpdateToken = NewType("UpdateToken", bytes)
"""16 random bytes written with every update, by which the author recognises its own write (rule
1.3).
"""

NO_ENTRY: Final = EntryId(-1)
LEDGER_ID_MAX: Final = 2**63 - 1
ENTRY_ID_MAX: Final = 2**63 - 2
UPDATE_TOKEN_BYTES: Final = 16

_BOOKIE_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def is_ledger_id(value: int) -> bool:
    """Return whether a number read from outside can be a ledger id."""
    return 0 <= value <= LEDGER_ID_MAX


def is_bookie_id(text: str) -> bool:
    """Return whether a text read from outside can be a bookie id: 1-63 of a-z, 0-9, '.', '_' and
    '-'.
    """
    return _BOOKIE_ID.fullmatch(text) is not None
