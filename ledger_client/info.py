"""Public view of a stored ledger.

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
from metadata.ledgers.lost_entries import LostRange
from metadata.ledgers.payload_encryption import PayloadEncryption


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """One ledger at one moment."""

    id: LedgerId
    state: LedgerState
    quorum: QuorumSpec
    fragments: tuple[Fragment, ...]
    digest: DigestType
    metadata: Mapping[str, str | bytes]
    """Custom metadata given at creation."""
    creation_token: bytes
    """Identifies the ledger: no other ledger, of this cluster or of another one, has this token."""
    created_ms: int
    """Creation time by the creator's clock, in milliseconds since 1970."""
    last_entry_id: EntryId | None
    """None until the ledger is closed; -1 if it was closed without an entry."""
    length: int | None
    """Payload bytes, as they are stored; None until the ledger is closed."""
    in_sync: tuple[BookieId, ...] = ()
    """In in-sync mode, the stored members that hold every entry. Only the writer knows whether they
    are alive (`LedgerWriter.in_sync`).
    """
    given_up: tuple[Fragment, ...] = ()
    """Fragments that an unclean recovery cut off: the entries from the first one's first
    entry on.
    """
    lost: tuple[LostRange, ...] = ()
    """Entries whose loss an operator accepted: reads of them raise EntryLostError."""
    encryption: PayloadEncryption | None = None
    """How the payloads are encrypted, with the id of the key; None for plain payloads."""
    owner: str = ""
    """Principal that created the ledger; empty if none was known."""

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> "LedgerInfo":
        """Return the public view of stored metadata."""
        return cls(
            id=metadata.ledger_id,
            state=metadata.state,
            quorum=metadata.quorum,
            fragments=metadata.fragments,
            digest=metadata.digest,
            metadata=metadata.custom,
            creation_token=metadata.creation_token,
            created_ms=metadata.created_ms,
            last_entry_id=metadata.last_entry_id,
            length=metadata.length,
            in_sync=metadata.in_sync_members if metadata.quorum.is_in_sync else (),
            given_up=metadata.given_up,
            lost=metadata.lost,
            encryption=metadata.encryption,
            owner=metadata.owner,
        )

    @property
    def ledger_id(self) -> LedgerId:
        """The same as `id`."""
        return self.id

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is closed: nothing can be appended."""
        return self.state is LedgerState.CLOSED

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """Every bookie that holds a part of the ledger, each once, in order of first mention."""
        return tuple(dict.fromkeys(bookie for part in self.fragments for bookie in part.ensemble))
