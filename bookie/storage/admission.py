"""Decides whether a request for a ledger may be carried out at all.

Leaves carrying it out to `bookie.storage.bookie_storage`, and whether the disk has room to
`bookie.storage.upkeep`.

Source: protocol rules 2.4, 4.3, 7.2, 10.1-10.3.
"""

from typing import Protocol

from bookie.index import ledger_state
from bookie.index.ledger_state import LedgerState
from bookie.log.log import Log
from bookie.storage.cold_ledgers import ColdLedgers
from bookie.storage.ledgers import Ledgers
from bookie.storage.standing import Standing
from bookie.wire.messages import Status
from metadata.ids import ENTRY_ID_MAX


class AddSwitch(Protocol):
    """Whether the bookie as a whole accepts ordinary adds."""

    @property
    def is_writable(self) -> bool:
        """Return whether ordinary adds are accepted."""

    @property
    def takes_recovery_adds(self) -> bool:
        """Return whether recovery adds leave enough room for fences, tombstones and cleaning."""

    @property
    def may_have_lost_fences(self) -> bool:
        """Return whether an unknown ledger may have been fenced in data that was lost (rule
        2.4).
        """


class Admission:
    """Reasons to refuse requests, as a status; None admits. The ledger must not be cold."""

    def __init__(self, ledgers: Ledgers, cold: ColdLedgers, log: Log, switch: AddSwitch) -> None:
        self.is_closing = False
        self.deleting: dict[int, int] = {}
        """Ledgers whose tombstone is being written, and how many times."""
        self.releasing: dict[int, int] = {}
        """Ledgers that are being released, and how many times."""
        self._ledgers = ledgers
        self._cold = cold
        self._log = log
        self._switch = switch

    def refuse(self, ledger_id: int, master_key: bytes | None) -> Status | None:
        """Return why any request for a ledger is refused."""
        if self.is_closing:
            return Status.CLOSING
        if self._log.failure is not None or self._cold.failure is not None:
            return Status.UNKNOWN
        state = self._ledgers.states.get(ledger_id)
        if ledger_id in self.deleting or (state is None and self._ledgers.is_deleted(ledger_id)):
            return Status.DELETED
        if state is not None and not ledger_state.is_authorized(state, master_key):
            return Status.UNAUTHORIZED
        return None

    def refuse_held(self, state: LedgerState, master_key: bytes | None) -> Status | None:
        """Return why a request is refused that held the ledger's state across a wait."""
        return Status.DELETED if state.is_deleted else self.refuse(state.ledger_id, master_key)

    def refuse_add(
        self, ledger_id: int, master_key: bytes | None, *, recovery: bool
    ) -> Status | None:
        """Return why an add is refused; `recovery`: it passes the fence (rule 7.4)."""
        refusal = self.refuse(ledger_id, master_key)
        if refusal is not None:
            return refusal
        if recovery and not self._switch.takes_recovery_adds:
            return Status.READ_ONLY
        if ledger_id in self.releasing:
            return Status.UNKNOWN
        state = self._ledgers.states.get(ledger_id)
        if state is None:
            refusal = self.refuse_trimmed(ledger_id, exists_is_enough=recovery)
        if refusal is not None or recovery:
            return refusal
        if state is None and self._switch.may_have_lost_fences:
            return Status.UNKNOWN  # it may have been fenced in what was lost (rule 2.4)
        if state is not None and state.fenced:
            return Status.FENCED
        return None if self._switch.is_writable else Status.READ_ONLY

    def refuse_trimmed(self, ledger_id: int, *, exists_is_enough: bool) -> Status | None:
        """Return why nothing is stored for a ledger that may have been deleted here and its
        tombstone trimmed (rule 10.3); `exists_is_enough`: it need not be open and name this bookie.
        """
        if ledger_id > self._ledgers.horizon or ledger_id in self._ledgers.states:
            return None
        standing = self._cold.standings.get(ledger_id, Standing.UNKNOWN)
        if standing is Standing.GONE:
            return Status.DELETED
        if standing is Standing.UNKNOWN:
            return Status.UNKNOWN
        if exists_is_enough or standing is Standing.OPEN_HERE:
            return None
        return Status.FENCED if standing is Standing.ENDED else Status.UNKNOWN

    def refuse_held_add(
        self, state: LedgerState, master_key: bytes | None, *, recovery: bool
    ) -> Status | None:
        """Return why an add is refused that held the ledger's state across a wait."""
        if state.is_deleted:
            return Status.DELETED
        return self.refuse_add(state.ledger_id, master_key, recovery=recovery)

    def refuse_read(
        self, ledger_id: int, first: int, last: int, master_key: bytes | None
    ) -> Status | None:
        """Return why a read is refused."""
        if not 0 <= first <= last <= ENTRY_ID_MAX:
            return Status.BAD_REQUEST
        return self.refuse(ledger_id, master_key)
