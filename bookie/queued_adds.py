"""Account of the bytes that the adds of a bookie take in memory while they wait, and its limits.

An add waits in one queue at a time: for the rights of its client (`bookie.server.attachments`),
while its ledger may be deleted (`bookie.server.server_context`), for the state of a cold ledger
(`bookie.storage.cold_ledgers`), for the comparison with stored entries
(`bookie.storage.overlapping`), and for the sync of its group (`bookie.log.log`).

Invariant: a queue takes from its count what it has added for an add, whatever becomes of the add.
Source: storage design, "Limits and refusals".
"""

from dataclasses import dataclass
from typing import Final

UNDECIDED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes of adds that wait for rights; above it, adds are answered UNKNOWN."""
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes of adds that wait while their ledger may be deleted; above it, adds are answered
UNKNOWN.
"""


@dataclass(slots=True, eq=False)
class QueuedAdds:
    """Account of one bookie."""

    accepted_bytes_max: int
    """Limit of `accepted_bytes`: above it, clients are not read."""
    undecided_bytes: int = 0
    """They wait for the rights of their clients."""
    held_bytes: int = 0
    """Their ledgers may be deleted."""
    cold_bytes: int = 0
    """They wait for the states of their ledgers."""
    compared_bytes: int = 0
    """They are compared with stored entries."""
    log_bytes: int = 0
    """They are queued in the log, with control records, or being committed."""

    @property
    def accepted_bytes(self) -> int:
        """Bytes that the storage has, and that are not yet durable."""
        return self.cold_bytes + self.compared_bytes + self.log_bytes

    @property
    def has_room(self) -> bool:
        """Whether the storage may be given more."""
        return self.accepted_bytes < self.accepted_bytes_max
