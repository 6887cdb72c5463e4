"""Names the identifiers that every package shares.

Leaves their allocation to `metadata.ledgers.ledger_ids` and their registration to
`metadata.registry.registry`.

Source: protocol rules 1.1 and 2.1.
"""

import re
from typing import Final, NewType

LedgerId = NewType("LedgerId", int)
"""A ledger's number: 0 .. 2^63 - 1, unique in a cluster for ever, not dense."""

EntryId = NewType("EntryId", int)
"""An entry's number within its ledger: 0 .. 2^63 - 2, without gaps; `NO_ENTRY` stands before the
first.
"""

BookieId = NewType("BookieId", str)
"""A bookie's name for life: a readable prefix and a random part, made when its disks are
formatted.
"""

ClientId = NewType("ClientId", str)
"""Names one client process while its metadata session lives; a ledger names its writer's client."""

Version = NewType("Version", int)
"""Counts the writes of one stored value: compare-and-set succeeds only at the version read."""

UpdateToken = NewType("UpdateToken", bytes)
"""16 random bytes written with every update, so that its author can recognise it (rule 1.3)."""

NO_ENTRY: Final = EntryId(-1)
LEDGER_ID_MAX: Final = 2**63 - 1
ENTRY_ID_MAX: Final = 2**63 - 2
UPDATE_TOKEN_BYTES: Final = 16

_BOOKIE_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def is_ledger_id(value: int) -> bool:
    """Tell whether a number read from outside can be a ledger id."""
    return 0 <= value <= LEDGER_ID_MAX


def is_bookie_id(text: str) -> bool:
    """Tell whether a text read from outside can be a bookie id: 1-63 of a-z, 0-9, '.', '_' and
    '-'.
    """
    return _BOOKIE_ID.fullmatch(text) is not None
