"""Answers of a bookie that say what it holds of a ledger: nothing counts as well as something.

Source: protocol rules 3.2 and 8.1.
"""

from typing import Final

from bookie.wire.messages import Status

KNOWN: Final = (Status.OK, Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)
