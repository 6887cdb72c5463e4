"""Bugs of a recovery.

Leaves finding them to `bugs`. Source: protocol section 7.
"""

from dataclasses import replace
from typing import Any

from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from ledger_client.protocol import recovery, recovery_read, recovery_write
from ledger_client.protocol import recovery_events as r
from metadata.ids import EntryId
from metadata.ledgers.ledger_metadata import Fragment
from tests.model import bookies
from tests.model.bugs_append import the_writer_closes_from_in_recovery
from tests.model.patches import Patches
from tests.model.words import Answer
from tests.scenarios.words import LEDGER


def recovery_reads_do_not_fence(patches: Patches) -> None:
    async def answer(self: Any, request: Any) -> None:
        if request.kind == "fence":
            await _answer(self, request)
            return
        state = self._ledgers.get_or_make(LEDGER)
        first, last = EntryId(request.first), EntryId(request.last)
        found = await self.read(state, first, last, 0)
        answer = Answer(request, found.status, found.next_entry_id, state.fenced)
        self.answers.append(answer)

    _answer = bookies._Parts._answer
    patches.set(bookies._Parts, "_answer", answer)


def one_fence_is_enough(patches: Patches) -> None:
    patches.set(recovery, "covers", lambda _quorum, known: len(known) >= 1)


def one_fence_is_enough_and_reads_do_not_fence(patches: Patches) -> None:
    one_fence_is_enough(patches)
    recovery_reads_do_not_fence(patches)


def one_negative_is_enough(patches: Patches) -> None:
    patches.set(recovery_read, "negatives_needed", lambda _quorum: 1)


def a_majority_of_negatives_is_enough(patches: Patches) -> None:
    patches.set(recovery_read, "negatives_needed", lambda quorum: quorum.write_quorum // 2 + 1)


def silence_is_a_negative(patches: Patches) -> None:
    patches.set(recovery_read, "NEGATIVES", (Status.NO_SUCH_ENTRY, Status.UNKNOWN))


def a_silent_bookie_counts_as_fenced(patches: Patches) -> None:
    def failed(self: Any, event: r.FenceFailed) -> None:
        if event.bookie_id in self._waiting:
            self.known_positions.append(self._waiting.pop(event.bookie_id))

    patches.set(recovery.FencePhase, "failed", failed)


def a_silent_bookie_counts_as_fenced_and_reads_do_not_fence(patches: Patches) -> None:
    a_silent_bookie_counts_as_fenced(patches)
    recovery_reads_do_not_fence(patches)


def silence_fences_and_denies(patches: Patches) -> None:
    silence_is_a_negative(patches)
    a_silent_bookie_counts_as_fenced(patches)


def recovery_starts_one_too_late(patches: Patches) -> None:
    patches.set(
        recovery.FencePhase, "start_entry_id", property(lambda self: EntryId(self._lac + 2))
    )


def recovery_starts_below_the_last_fragment(patches: Patches) -> None:
    original = recovery.FencePhase.__init__

    def init(self: Any, quorum: Any, fragment: Any) -> None:
        original(self, quorum, fragment)
        self._lac = EntryId(-1)

    patches.set(recovery.FencePhase, "__init__", init)


def the_write_back_is_skipped(patches: Patches) -> None:
    original = recovery_write.WriteBackPhase.add

    def add(self: Any, stretch: Any) -> Any:
        original(self, stretch)
        self._pending.clear()
        return []

    patches.set(recovery_write.WriteBackPhase, "add", add)


def the_write_back_does_not_pass_the_fence(patches: Patches) -> None:
    original = BookieStorage.add

    def add(self: Any, batch: Any, *, recovery: bool, master_key: Any, done: Any) -> None:
        assert recovery in (True, False)
        original(self, batch, recovery=False, master_key=master_key, done=done)

    patches.set(BookieStorage, "add", add)


def the_write_back_is_not_resent(patches: Patches) -> None:
    original = recovery_write.WriteBackPhase.replaced

    def replaced(self: Any, chosen: Any) -> Any:
        kept = original(self, chosen)
        return [each for each in kept if not isinstance(each, r.WriteBack)]

    patches.set(recovery_write.WriteBackPhase, "replaced", replaced)


def the_whole_last_fragment_is_replaced(patches: Patches) -> None:
    original = recovery_write.WriteBackPhase.replaced

    def replaced(self: Any, chosen: Any) -> Any:
        actions = original(self, chosen)
        self._fragments[:] = [Fragment(self._original.first_entry_id, self._ensemble)]
        return actions

    patches.set(recovery_write.WriteBackPhase, "replaced", replaced)


def answers_of_bookies_replaced_in_recovery_count(patches: Patches) -> None:
    patches.set(
        recovery_write._PendingSpan,
        "count_stored",
        lambda self, _ensemble: len(dict.fromkeys(self.stored_at)),
    )


def the_lac_advances_in_write_back(patches: Patches) -> None:
    original = recovery_write.WriteBackPhase.add

    def add(self: Any, stretch: Any) -> Any:
        self._lac = EntryId(stretch.first_entry_id + len(stretch.lengths) - 1)
        return original(self, stretch)

    patches.set(recovery_write.WriteBackPhase, "add", add)


def older_fragments_are_stored_as_they_were(patches: Patches) -> None:
    original = recovery.RecoveryProtocol._close_on

    def close_on(self: Any, stored: Any, version: Any) -> Any:
        stale = replace(stored, fragments=self._metadata.fragments)
        return original(self, stale, version)

    patches.set(recovery.RecoveryProtocol, "_close_on", close_on)


def the_loser_of_two_recoveries_fails(patches: Patches) -> None:
    original = recovery.RecoveryProtocol._on_metadata

    def on_metadata(self: Any, metadata: Any, version: Any) -> Any:
        if self._stage is recovery._Stage.CLOSING and metadata.last_entry_id is not None:
            return self._fail(r.FragmentsChanged())
        return original(self, metadata, version)

    patches.set(recovery.RecoveryProtocol, "_on_metadata", on_metadata)


def the_writer_closes_from_in_recovery_and_the_lac_advances(patches: Patches) -> None:
    the_writer_closes_from_in_recovery(patches)
    the_lac_advances_in_write_back(patches)
