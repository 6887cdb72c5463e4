"""The append protocol in random histories, and its seeded bugs, each of which must be found
(4.1-6.3).

A bug that another rule hides is seeded together with that rule.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ledger_client.protocol import append_events as a
from ledger_client.protocol.acks import UnsettledBatches
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_options import AppendOptions
from metadata.errors import InvalidTransitionError
from metadata.ids import EntryId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState, QuorumSpec
from tests.support.ledger_client.append_model import WriterModel, explore_writer
from tests.support.ledger_client.recovery_model import ViolationError

QUORUMS = [
    QuorumSpec(3, 3, 2, 4),
    QuorumSpec(3, 3, 3, 4),
    QuorumSpec(3, 2, 2, 2),
    QuorumSpec(4, 3, 2, 2),
    QuorumSpec(5, 3, 2, 1),
    QuorumSpec(2, 2, 2, 4),
]
OPTIONS = [
    AppendOptions(),
    AppendOptions(run_degraded=True),
    AppendOptions(delay_ensemble_change=True, run_degraded=True),
    AppendOptions(unanswered_bytes_max=1000, run_degraded=True),
]
SEEDS = 25
BUG_SEEDS = 3000
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("recoverers", [0, 1, 2])
@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "degraded", "delayed", "backlog"])
@pytest.mark.parametrize("quorum", QUORUMS, ids=str)
def test_every_history_keeps_the_rules(
    quorum: QuorumSpec, options: AppendOptions, recoverers: int
) -> None:
    for seed in range(SEEDS):
        explore_writer(quorum, seed, recoverers=recoverers, options=options)


def test_histories_are_of_every_kind() -> None:
    kinds = Counter[str]()
    for seed in range(400):
        model = explore_writer(QUORUMS[0], seed, recoverers=seed % 2, options=OPTIONS[1])
        kinds["changed"] += model.changes > 1
        kinds["dropped"] += model.dropped > 0
        kinds["fenced"] += "fenced" in str(model.error)
        kinds["closed"] += model.written is not None
        kinds["parked"] += bool(model.writer.parked)
        kinds["confirmed"] += model.acknowledged > 3
    assert min(kinds.values()) > 5, kinds


def confirmed_during_a_change(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AppendProtocol, "_advance", advance_always)


def advance_always(self: Any) -> list[a.AppendAction]:
    actions: list[a.AppendAction] = []
    if self._pending.confirm():
        actions.append(a.Confirm(self._pending.lac, self._pending.length))
    return actions


def answers_of_the_replaced_count(patch: pytest.MonkeyPatch) -> None:
    def reassign(self: UnsettledBatches, sources: list[int | None], _quorum: object) -> None:
        for position, source in enumerate(sources):
            if source is None:
                self.resume_position(position)

    patch.setattr(UnsettledBatches, "reassign", reassign)


def the_resend_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """Safe, but hangs: only the progress check finds it."""
    patch.setattr(AppendProtocol, "_send_missing", lambda _self: [])


def the_fragment_starts_beyond_the_pushed_entries(patch: pytest.MonkeyPatch) -> None:
    original = LedgerMetadata.with_ensemble_change
    pushed: dict[int, int] = {}
    append = WriterModel.append

    def note(self: WriterModel, count: int) -> None:
        append(self, count)
        pushed[0] = self.pushed

    def change(self: Any, _first: Any, ensemble: Any, token: Any) -> Any:
        first = max(pushed.get(0, 0), self.last_fragment.first_entry_id)
        return original(self, EntryId(first), ensemble, token)

    patch.setattr(WriterModel, "append", note)
    patch.setattr(LedgerMetadata, "with_ensemble_change", change)


def one_answer_is_enough(patch: pytest.MonkeyPatch) -> None:
    original = UnsettledBatches.confirm

    def confirm(self: Any) -> bool:
        for batch in list(self._unconfirmed)[:1]:
            if batch.stored:
                batch.stored = batch.write_set
        return original(self)

    patch.setattr(UnsettledBatches, "confirm", confirm)


def metadata_is_written_blind(patch: pytest.MonkeyPatch) -> None:
    original = WriterModel.store_change

    def store_change(self: WriterModel, changed: LedgerMetadata, _version: Version) -> None:
        original(self, changed, self.version)

    patch.setattr(WriterModel, "store_change", store_change)


def a_conflict_is_treated_as_success(patch: pytest.MonkeyPatch) -> None:
    original = WriterModel.notify
    wanted: dict[int, LedgerMetadata] = {}
    store = WriterModel.store_change

    def store_change(self: WriterModel, changed: LedgerMetadata, version: Version) -> None:
        wanted[0] = changed
        store(self, changed, version)

    def notify(self: WriterModel, event: a.AppendEvent) -> None:
        if isinstance(event, a.MetadataConflicted):
            event = a.MetadataStored(wanted[0], event.version)
        original(self, event)

    patch.setattr(WriterModel, "store_change", store_change)
    patch.setattr(WriterModel, "notify", notify)


def a_fence_does_not_end_the_writer(patch: pytest.MonkeyPatch) -> None:
    """Together with a blind close: alone, the frozen LAC of the close hides it."""
    metadata_is_written_blind(patch)
    patch.setattr(AppendProtocol, "_refused", lambda *_: [])


def the_close_confirms_late_entries(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Any) -> list[a.AppendAction]:
        actions: list[a.AppendAction] = []
        changing = self._choosing or (self._base is not None and self._close_token is None)
        if not changing and self._pending.confirm():
            actions.append(a.Confirm(self._pending.lac, self._pending.length))
        return actions

    patch.setattr(AppendProtocol, "_advance", advance)


def entries_are_confirmed_out_of_order(patch: pytest.MonkeyPatch) -> None:
    def confirm(self: Any) -> bool:
        ready = [b for b in self._unconfirmed if b.stored.bit_count() >= self._quorum.ack_quorum]
        if not ready:
            return False
        while self._unconfirmed and self._unconfirmed[0].first_entry_id <= ready[-1].first_entry_id:
            batch = self._unconfirmed.popleft()
            self._confirmed.append(batch)
            self.lac, self.length = batch.last_entry_id, batch.length_after
        return True

    patch.setattr(UnsettledBatches, "confirm", confirm)


def state_is_not_looked_at_in_a_conflict(patch: pytest.MonkeyPatch) -> None:
    original = AppendProtocol._update_ended

    def decided(self: Any, event: Any) -> Any:
        if isinstance(event, a.MetadataConflicted) and event.metadata.state is not LedgerState.OPEN:
            return original(self, a.MetadataStored(self._base, event.version))
        return original(self, event)

    patch.setattr(AppendProtocol, "_update_ended", decided)


BUGS: list[Patch] = [
    confirmed_during_a_change,
    answers_of_the_replaced_count,
    the_resend_is_skipped,
    the_fragment_starts_beyond_the_pushed_entries,
    one_answer_is_enough,
    metadata_is_written_blind,
    a_conflict_is_treated_as_success,
    a_fence_does_not_end_the_writer,
    the_close_confirms_late_entries,
    entries_are_confirmed_out_of_order,
    state_is_not_looked_at_in_a_conflict,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_every_seeded_bug_shows(bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(BUG_SEEDS):
        quorum, options = QUORUMS[seed % len(QUORUMS)], OPTIONS[seed // 7 % len(OPTIONS)]
        try:
            explore_writer(quorum, seed, recoverers=seed % 3, options=options)
        except (ViolationError, InvalidTransitionError, AssertionError):
            return
    pytest.fail(f"{bug.__name__} was not found in {BUG_SEEDS} histories")
