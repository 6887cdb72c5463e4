"""Bytes copied for one ledger, over all its copies. Pure.

Leaves copying to `ledger_client.in_sync`, and storing the sum to the claim.

Invariants: the copies of a ledger follow each other, each with one fragment or range and one
target; a copy that ended before it was complete counts no more once the next one begins.

Source: protocol rule 9.3.
"""

from ledger_client.copying import CopyProgress


class CopiedBytes:
    """Sum of the copies of one ledger."""

    def __init__(self) -> None:
        self._complete = 0
        self._last: CopyProgress | None = None

    def add(self, progress: CopyProgress) -> int:
        """Record the progress of the copy under way; return the bytes of all copies."""
        last = self._last
        if last is not None and _copy_of(last) != _copy_of(progress):
            self._complete += last.copied_bytes if _is_complete(last) else 0
        self._last = progress
        return self._complete + progress.copied_bytes


def _copy_of(progress: CopyProgress) -> tuple[int, str]:
    return progress.fragment_first_entry_id, progress.target


def _is_complete(progress: CopyProgress) -> bool:
    return progress.copied_entries == progress.total_entries
