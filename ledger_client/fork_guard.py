"""Check that a handle is used only in the process that created it: after a fork, its connections
belong to the parent.

Source: api design, "Client".
"""

import os

from ledger_client.errors import ClientClosedError
from metadata.ids import LedgerId


class OwnProcess:
    """Process in which a handle was created."""

    __slots__ = ("_ledger_id", "_process_id", "_what")

    def __init__(self, what: str, ledger_id: LedgerId) -> None:
        self._what = what
        self._ledger_id = ledger_id
        self._process_id = os.getpid()

    def require(self) -> None:
        """Raise ClientClosedError in any other process."""
        if self._process_id != os.getpid():
            text = f"this {self._what} was created before a fork: create a client in this process"
            raise ClientClosedError(text, ledger_id=self._ledger_id)
