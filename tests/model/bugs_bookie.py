"""Bugs of a bookie.

Leaves finding them to `bugs`. Source: protocol rules 4.3, 7.2, 7.4.
"""

from typing import Any

from bookie.log.records import RecordKind
from bookie.storage import opening, overlapping
from bookie.storage.admission import Admission
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.commits import Commits
from bookie.storage.ledger_reads import LedgerReads
from bookie.wire.messages import Status
from tests.model.patches import Patches


def adds_are_accepted_behind_a_fence(patches: Patches) -> None:
    original = Admission.refuse_add

    def refuse_add(self: Any, ledger_id: int, master_key: Any, *, recovery: bool) -> Status | None:
        status = original(self, ledger_id, master_key, recovery=recovery)
        return None if status is Status.FENCED else status

    patches.set(Admission, "refuse_add", refuse_add)


def an_add_is_answered_before_its_sync(patches: Patches) -> None:
    original = Commits.accept

    def accept(self: Any, state: Any, batch: Any, gaps: Any, key: Any, done: Any) -> None:
        original(self, state, batch, gaps, key, done)
        done(Status.OK)

    patches.set(Commits, "accept", accept)


def a_fence_is_answered_before_its_sync(patches: Patches) -> None:
    async def fence(self: Any, ledger_id: Any, _key: Any) -> Any:
        state = self._ledgers.get_or_make(ledger_id)
        if not state.fenced:
            state.fenced = True
            self._log.append(RecordKind.FENCE, b"", lambda _status: None)
        return self.reads.snapshot(ledger_id, Status.OK)

    patches.set(BookieStorage, "fence", fence)


def a_fence_is_lost_in_a_crash(patches: Patches) -> None:
    original = opening._Applier.apply

    def apply(self: Any, record: Any) -> None:
        if record.header.kind is not RecordKind.FENCE:
            original(self, record)

    patches.set(opening._Applier, "apply", apply)


def limbo_ends_without_the_fences(patches: Patches) -> None:
    """Accept adds at a bookie that returned on an old copy, as if it had lost no fence (9.13)."""
    original = Admission.refuse_add

    def refuse_add(self: Any, ledger_id: int, master_key: Any, *, recovery: bool) -> Status | None:
        self._switch.may_have_lost_fences = False
        return original(self, ledger_id, master_key, recovery=recovery)

    patches.set(Admission, "refuse_add", refuse_add)


def a_negative_overtakes_an_accepted_add(patches: Patches) -> None:
    """Answer fences and reads from the durable records, though more are queued."""

    async def fence(self: Any, ledger_id: Any, _key: Any) -> Any:
        state = self._ledgers.get_or_make(ledger_id)
        state.fenced = state.is_fence_durable = True
        return self.reads.snapshot(ledger_id, Status.OK)

    async def read(
        self: Any, ledger_id: Any, first: Any, last: Any, size: int, *_: Any, **_to: Any
    ) -> Any:
        return await self._reader.read(self._ledgers.states[ledger_id], first, last, size)

    patches.set(BookieStorage, "fence", fence)
    patches.set(LedgerReads, "read", read)


def a_write_back_with_another_lac_is_refused(patches: Patches) -> None:
    original = overlapping._is_same

    def is_same(stored: Any, batch: Any) -> bool:
        return original(stored, batch) and stored.header.lac == batch.header.lac

    patches.set(overlapping, "_is_same", is_same)
