"""Shows a ledger as it is stored, to users.

Leaves the stored value itself, and its changes, to `metadata.ledgers.ledger_metadata`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """One ledger at one moment."""

    id: LedgerId
    state: LedgerState
    quorum: QuorumSpec
    fragments: tuple[Fragment, ...]
    digest: DigestType
    metadata: Mapping[str, str | bytes]
    """What its creator gave along."""
    created_ms: int
    """By the creator's clock, since 1970."""
    last_entry_id: EntryId | None
    """None until the ledger is closed; -1 if it was closed without an entry."""
    length: int | None
    """Payload bytes; None until the ledger is closed."""
    in_sync: tuple[BookieId, ...] = ()
    """In in-sync mode, the members that hold every entry, as stored; whether they are alive, their
    writer knows (`LedgerWriter.in_sync`)."""
    given_up: tuple[Fragment, ...] = ()
    """What an unclean recovery cut off: the entries from the first one's first entry on."""

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> "LedgerInfo":
        """Return what is shown of stored metadata."""
        return cls(
            id=metadata.ledger_id,
            state=metadata.state,
            quorum=metadata.quorum,
            fragments=metadata.fragments,
            digest=metadata.digest,
            metadata=metadata.custom,
            created_ms=metadata.created_ms,
            last_entry_id=metadata.last_entry_id,
            length=metadata.length,
            in_sync=metadata.in_sync_members if metadata.quorum.is_in_sync else (),
            given_up=metadata.given_up,
        )

    @property
    def ledger_id(self) -> LedgerId:
        """The same as `id`."""
        return self.id

    @property
    def is_closed(self) -> bool:
        """Whether nothing will be appended any more."""
        return self.state is LedgerState.CLOSED

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """Every bookie that holds a part of the ledger, each once, in order of appearance."""
        return tuple(dict.fromkeys(each for part in self.fragments for each in part.ensemble))
