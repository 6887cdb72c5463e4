"""Decision whether a request for a ledger is accepted.

Leaves the execution to `bookie.storage.bookie_storage`, and the free space of the disk to
`bookie.storage.upkeep`.

Source: protocol rules 2.4, 4.3, 7.2, 9.14, 10.1-10.4.
"""

from typing import Protocol

from bookie.index import replica_state
from bookie.index.replica_state import ReplicaState
from bookie.log.log import Log
from bookie.storage.cold_ledgers import ColdLedgers
from bookie.storage.horizon import LedgerStatus
from bookie.storage.ledgers import Ledgers
from bookie.wire.messages import Status
from metadata.ids import ENTRY_ID_MAX


class AddSwitch(Protocol):
    """Switches for the adds of all ledgers."""

    @property
    def is_writable(self) -> bool:
        """Whether ordinary adds are accepted."""

    @property
    def takes_recovery_adds(self) -> bool:
        """Whether recovery adds are accepted."""

    @property
    def may_have_lost_fences(self) -> bool:
        """Whether an unknown ledger may have been fenced in data that was lost (rule 2.4)."""


class Admission:
    """Reasons to refuse requests, as a status; None means accepted. The ledger must not be cold."""

    def __init__(self, ledgers: Ledgers, cold: ColdLedgers, log: Log, switch: AddSwitch) -> None:
        self.is_closing = False
        self.deleting: dict[int, int] = {}
        """Number of running deletions by ledger, while the tombstone is being written."""
        self.releasing: dict[int, int] = {}
        """Number of running releases by ledger."""
        self._ledgers = ledgers
        self._cold = cold
        self._log = log
        self._switch = switch

    def refuse(self, ledger_id: int, master_key: bytes | None) -> Status | None:
        """Return the reason to refuse any request for a ledger."""
        if self.is_closing:
            return Status.CLOSING
        if self._log.failure is not None or self._cold.failure is not None:
            return Status.UNKNOWN
        state = self._ledgers.states.get(ledger_id)
        if ledger_id in self.deleting or (state is None and self._ledgers.is_deleted(ledger_id)):
            return Status.DELETED
        if state is not None and not replica_state.is_authorized(state, master_key):
            return Status.UNAUTHORIZED
        return None

    def refuse_fence(self, ledger_id: int, master_key: bytes | None) -> Status | None:
        """Return the reason to refuse a fence. One without a key is refused where a key is known:
        only its owner or a client that read the key may end the ledger then (rule 9.14).
        """
        state = self._ledgers.states.get(ledger_id)
        if master_key is None and state is not None and state.master_key is not None:
            return self.refuse(ledger_id, None) or Status.UNAUTHORIZED
        refusal = self.refuse(ledger_id, master_key)
        return refusal or self.refuse_trimmed(ledger_id, exists_is_enough=True)

    def refuse_held(self, state: ReplicaState, master_key: bytes | None) -> Status | None:
        """Return the reason to refuse a request that kept the ledger's state while it waited."""
        return Status.DELETED if state.is_deleted else self.refuse(state.ledger_id, master_key)

    def refuse_add(
        self, ledger_id: int, master_key: bytes | None, *, recovery: bool
    ) -> Status | None:
        """Return the reason to refuse an add. A `recovery` add passes the fence (rule 7.4)."""
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
        """Return the reason to store nothing for a ledger that may be deleted without a tombstone
        here (rules 10.3 and 10.4). `exists_is_enough`: the ledger need not be open, nor name
        this bookie.
        """
        if ledger_id in self._ledgers.states or not self._ledgers.may_be_deleted(ledger_id):
            return None
        standing = self._cold.standings.get(ledger_id, LedgerStatus.UNKNOWN)
        if standing is LedgerStatus.GONE:
            return Status.DELETED
        if standing is LedgerStatus.UNKNOWN:
            return Status.UNKNOWN
        if exists_is_enough or standing is LedgerStatus.OPEN_HERE:
            return None
        return Status.FENCED if standing is LedgerStatus.ENDED else Status.UNKNOWN

    def refuse_held_add(
        self, state: ReplicaState, master_key: bytes | None, *, recovery: bool
    ) -> Status | None:
        """Return the reason to refuse an add that kept the ledger's state while it waited."""
        if state.is_deleted:
            return Status.DELETED
        return self.refuse_add(state.ledger_id, master_key, recovery=recovery)

    def refuse_read(
        self, ledger_id: int, first: int, last: int, master_key: bytes | None
    ) -> Status | None:
        """Return the reason to refuse a read."""
        if not 0 <= first <= last <= ENTRY_ID_MAX:
            return Status.BAD_REQUEST
        return self.refuse(ledger_id, master_key)
