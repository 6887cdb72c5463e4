"""Fence phase of a recovery: when enough bookies of the last fragment have fenced, and where
reading starts.

Leaves sending to the shell, and the next phases to `recovery.py`.

Invariant: a bookie counts only if its answer says that the ledger is fenced; a negative counts as
well as a LAC; an unsure answer never counts.

In in-sync mode one member would be sufficient. Recovery nevertheless waits for all members that can
be reached, because it is better to keep an entry that one of them holds than to cut it off. Each
request has a separate time limit.

Source: protocol rules 3.2, 7.2, 7.3, 11.5.
"""

from dataclasses import replace

from ledger_client.protocol.known_answers import KNOWN
from ledger_client.protocol.recovery_events import Fence, FenceAnswered, FenceFailed, Undecided
from metadata.ids import BookieId, EntryId
from metadata.ledgers.copies import covers
from metadata.ledgers.ledger_metadata import Fragment, QuorumSpec


class FencePhase:
    """Answers to the fencing LAC reads of one fragment."""

    __slots__ = ("_fragment", "_lac", "_quorum", "_unknown", "_waiting", "known_positions")

    def __init__(self, quorum: QuorumSpec, fragment: Fragment) -> None:
        self._quorum = quorum
        self._fragment = fragment
        self._waiting: dict[BookieId, int] = {b: p for p, b in enumerate(fragment.ensemble)}
        self._unknown: dict[BookieId, str] = {}
        self._lac = EntryId(fragment.first_entry_id - 1)
        self.known_positions: list[int] = []

    def requests(self) -> list[Fence]:
        """Return one request to each bookie of the fragment."""
        return [Fence(bookie_id) for bookie_id in self._fragment.ensemble]

    def answered(self, event: FenceAnswered) -> None:
        """Count an answer; repeated answers change nothing."""
        if event.bookie_id not in self._waiting:
            return
        if event.status not in KNOWN:
            why = event.reason or f"answered {event.status.name}"
            self._note_missing(event.bookie_id, why)
        elif not event.fenced:
            self._note_missing(event.bookie_id, "did not fence")
        else:
            self.known_positions.append(self._waiting.pop(event.bookie_id))
            self._lac = max(self._lac, event.lac)

    def failed(self, event: FenceFailed) -> None:
        """Record a bookie that could not be reached."""
        if event.bookie_id in self._waiting:
            self._note_missing(event.bookie_id, event.reason)

    @property
    def is_covered(self) -> bool:
        """Return whether no ack quorum can form any more without a bookie that has fenced."""
        if self._quorum.is_in_sync and self._waiting:
            return False
        return self.is_sufficient

    @property
    def is_sufficient(self) -> bool:
        """Return whether the fenced bookies are sufficient if no other could be reached."""
        return covers(self._quorum, self.known_positions)

    @property
    def fenced_fragment(self) -> Fragment:
        """The fragment with only the bookies that have fenced. In in-sync mode each of them holds
        every committed entry, so recovery needs to read from no other.
        """
        members = tuple(self._fragment.ensemble[p] for p in sorted(self.known_positions))
        return replace(self._fragment, ensemble=members)

    @property
    def start_entry_id(self) -> EntryId:
        """The first undecided entry: everything before it was confirmed (rule 7.3)."""
        return EntryId(self._lac + 1)

    def verdict(self) -> Undecided | None:
        """Return the failure once every bookie has answered or failed and the fences are not
        sufficient.
        """
        if self._waiting or self.is_covered:
            return None
        quorum = self._quorum
        needed = (
            f"fences at {quorum.write_quorum - quorum.ack_quorum + 1} of every "
            f"{quorum.write_quorum} neighbours in the last ensemble"
        )
        return Undecided(None, needed, dict(self._unknown))

    def _note_missing(self, bookie_id: BookieId, reason: str) -> None:
        del self._waiting[bookie_id]
        self._unknown[bookie_id] = reason
