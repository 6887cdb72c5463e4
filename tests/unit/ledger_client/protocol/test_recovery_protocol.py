"""The recovery protocol in random histories, and its seeded bugs, each of which must be found.

The bugs come from the exploration before the code was written; one that another rule hides is
seeded together with that rule.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bookie.wire.messages import Status
from ledger_client.protocol import (
    recovery,
    recovery_events,
    recovery_read,
    recovery_write,
)
from metadata.errors import InvalidTransitionError
from metadata.ids import EntryId, Version
from metadata.ledgers.ledger_metadata import Fragment, QuorumMode, QuorumSpec
from tests.support.ledger_client import recovery_model
from tests.support.ledger_client.recovery_model import Model, Odds, ViolationError, explore

QUORUMS = [
    QuorumSpec(3, 3, 2, 4),
    QuorumSpec(3, 3, 3, 4),
    QuorumSpec(3, 3, 1, 4),
    QuorumSpec(3, 2, 2, 2),
    QuorumSpec(4, 3, 2, 2),
    QuorumSpec(5, 3, 2, 1),
    QuorumSpec(2, 2, 2, 4),
    QuorumSpec(1, 1, 1, 4),
]
IN_SYNC = [
    QuorumSpec(size, size, size, stripe, QuorumMode.IN_SYNC, least)
    for size, least, stripe in [(3, 2, 4), (3, 1, 2), (2, 1, 4), (4, 2, 1)]
]
IN_SYNC_ODDS = Odds(lost=0.1, down=0.2, dead=0.5)
SEEDS = 25
BUG_SEEDS = 2000
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("recoverers", [1, 2, 4])
@pytest.mark.parametrize("quorum", QUORUMS, ids=str)
def test_every_history_keeps_the_rules(quorum: QuorumSpec, recoverers: int) -> None:
    for seed in range(SEEDS):
        explore(quorum, seed, recoverers=recoverers, odds=Odds())


@pytest.mark.parametrize("recoverers", [1, 2, 4])
@pytest.mark.parametrize("quorum", IN_SYNC, ids=str)
def test_every_in_sync_history_keeps_the_rules(quorum: QuorumSpec, recoverers: int) -> None:
    for seed in range(2 * SEEDS):
        explore(quorum, seed, recoverers=recoverers, odds=IN_SYNC_ODDS)


def test_in_sync_histories_are_of_every_kind() -> None:
    """One member recovers everything alone, tails are found, the last fragment shrinks."""
    alone, tails, shrunk = 0, 0, 0
    for seed in range(200):
        model = explore(IN_SYNC[0], seed, recoverers=2, odds=IN_SYNC_ODDS)
        dead = sum(model.bookies[b].is_dead for b in model.original.ensemble)
        alone += dead == len(model.original.ensemble) - 1 and model.acknowledged >= 0
        tails += (model.stored.last_entry_id or 0) > model.acknowledged
        shrunk += len(model.stored.last_fragment.ensemble) < len(model.original.ensemble)
    assert min(alone, tails, shrunk) > 5, (alone, tails, shrunk)


def test_histories_are_of_every_kind() -> None:
    """The model reaches its intended cases: recovered tails, replacements, refusals, adopted
    closes.
    """
    fragments, failures, tails, adopted = 0, 0, 0, 0
    for seed in range(300):
        model = explore(QUORUMS[0], seed, recoverers=2, odds=Odds())
        fragments += len(model.stored.fragments) > 1
        failures += any(isinstance(each, recovery_events.Fail) for each in model.ended.values())
        tails += (model.stored.last_entry_id or 0) > model.acknowledged
        finished = [e for e in model.ended.values() if isinstance(e, recovery_events.Finish)]
        adopted += len(finished) > 1
    assert min(fragments, failures, tails, adopted) > 5, (fragments, failures, tails, adopted)


def never_fence(patch: pytest.MonkeyPatch) -> None:
    """Recovery reads do not fence, and one fence is enough (each bug hides the other)."""
    original = Model.read

    def read(self: Model, number: int, name: Any, first: EntryId, last: EntryId) -> None:
        bookie = self.bookies[name]
        was = bookie.is_fenced
        original(self, number, name, first, last)
        bookie.is_fenced = was

    patch.setattr(Model, "read", read)
    patch.setattr(recovery, "covers", lambda _quorum, known: len(known) >= 1)


def one_negative_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery_read, "negatives_needed", lambda _quorum: 1)


def a_majority_of_negatives_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery_read, "negatives_needed", lambda quorum: quorum.write_quorum // 2 + 1)


def unknown_is_a_negative(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery_read, "NEGATIVES", (Status.NO_SUCH_ENTRY, Status.UNKNOWN))


def start_one_too_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        recovery.FencePhase,
        "start_entry_id",
        property(lambda self: EntryId(self._lac + 2)),
    )


def write_back_is_skipped(patch: pytest.MonkeyPatch) -> None:
    original = Model.write_back

    def write_back(self: Model, number: int, name: Any, span: Any, lac: Any) -> None:
        if self.rng.random() < 0.5:
            original(self, number, name, span, lac)
        else:
            self.answer(number, recovery_events.SpanStored(name, span.first_entry_id))

    patch.setattr(Model, "write_back", write_back)


def the_complete_last_fragment_is_replaced(patch: pytest.MonkeyPatch) -> None:
    original = recovery_write.WriteBackPhase.replaced

    def replaced(self: Any, bookies: Any) -> Any:
        actions = original(self, bookies)
        self._fragments[:] = [Fragment(self._original.first_entry_id, self._ensemble)]
        return actions

    patch.setattr(recovery_write.WriteBackPhase, "replaced", replaced)


def answers_of_replaced_bookies_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        recovery_write._PendingSpan,
        "count_stored",
        lambda self, _ensemble: len(set(self.stored_at)),
    )


def the_lac_advances_in_write_back(patch: pytest.MonkeyPatch) -> None:
    original = recovery_write.WriteBackPhase.add

    def add(self: Any, stretch: Any) -> Any:
        self._lac = EntryId(stretch.first_entry_id + len(stretch.lengths) - 1)
        return original(self, stretch)

    patch.setattr(recovery_write.WriteBackPhase, "add", add)


def metadata_is_written_blind(patch: pytest.MonkeyPatch) -> None:
    original = Model.compare_and_set

    def compare_and_set(self: Model, number: int, changed: Any, _version: Version) -> None:
        original(self, number, changed, self.version)

    patch.setattr(Model, "compare_and_set", compare_and_set)


def older_fragments_are_stored_as_they_were(patch: pytest.MonkeyPatch) -> None:
    original = recovery.RecoveryProtocol._close_on

    def close_on(self: Any, stored: Any, version: Any) -> Any:
        stale = replace(stored, fragments=self._metadata.fragments)
        return original(self, stale, version)

    patch.setattr(recovery.RecoveryProtocol, "_close_on", close_on)


def recovery_starts_below_the_last_fragment(patch: pytest.MonkeyPatch) -> None:
    original = recovery.FencePhase.__init__

    def init(self: Any, quorum: Any, fragment: Any) -> None:
        original(self, quorum, fragment)
        self._lac = EntryId(-1)

    patch.setattr(recovery.FencePhase, "__init__", init)


def a_fence_is_lost(patch: pytest.MonkeyPatch) -> None:
    def fence(_self: Any) -> None:
        return

    patch.setattr(recovery_model.ModelBookie, "fence", fence)


def resend_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """Safe, but hangs: only the progress check finds it."""
    original = recovery_write.WriteBackPhase.replaced

    def replaced(self: Any, bookies: Any) -> Any:
        kept = original(self, bookies)
        return [each for each in kept if not isinstance(each, recovery_events.WriteBack)]

    patch.setattr(recovery_write.WriteBackPhase, "replaced", replaced)


def a_loser_fails_instead_of_adopting(patch: pytest.MonkeyPatch) -> None:
    original = recovery.RecoveryProtocol._on_metadata

    def on_metadata(self: Any, metadata: Any, version: Any) -> Any:
        if self._stage is recovery._Stage.CLOSING and metadata.last_entry_id is not None:
            return self._fail(recovery_events.FragmentsChanged())
        return original(self, metadata, version)

    patch.setattr(recovery.RecoveryProtocol, "_on_metadata", on_metadata)


BUGS: list[Patch] = [
    never_fence,
    one_negative_is_enough,
    a_majority_of_negatives_is_enough,
    unknown_is_a_negative,
    start_one_too_late,
    write_back_is_skipped,
    the_complete_last_fragment_is_replaced,
    answers_of_replaced_bookies_count,
    the_lac_advances_in_write_back,
    metadata_is_written_blind,
    older_fragments_are_stored_as_they_were,
    recovery_starts_below_the_last_fragment,
    a_fence_is_lost,
    resend_is_skipped,
    a_loser_fails_instead_of_adopting,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_seeded_bug_shows(bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    rng = Random(bug.__name__)
    for seed in range(BUG_SEEDS):
        quorum = rng.choice(QUORUMS)
        try:
            explore(quorum, seed, recoverers=rng.choice([1, 2, 3]), odds=Odds(lost=0.1))
        except (ViolationError, AssertionError, InvalidTransitionError):
            return
    pytest.fail(f"{bug.__name__} does not show in {BUG_SEEDS} histories")


# -- in-sync mode (11.5) ---------------------------------------------------------------------------


def it_does_not_wait_for_the_others(patch: pytest.MonkeyPatch) -> None:
    def is_covered(self: Any) -> bool:
        return bool(self.known_positions)

    patch.setattr(recovery.FencePhase, "is_covered", property(is_covered))


def it_prefers_a_negative(patch: pytest.MonkeyPatch) -> None:
    original = recovery_read._Chunk.verdict

    def verdict(self: Any, needed: int, **_: bool) -> Any:
        return original(self, needed, prefers_found=False)

    patch.setattr(recovery_read._Chunk, "verdict", verdict)


def a_lone_survivor_is_refused(patch: pytest.MonkeyPatch) -> None:
    """Safe, but never decided: only the progress check finds it."""
    original = recovery_write.WriteBackPhase.without_replacement

    def without_replacement(self: Any, event: Any) -> Any:
        remaining = [b for b in self._ensemble if b not in self._failures.reasons]
        if len(remaining) > 1:
            return original(self, event)
        self._failures.is_choosing = False
        self._failures.shortage = recovery_events.NoReplacement(event.needed, event.seen, {})
        return []

    patch.setattr(recovery_write.WriteBackPhase, "without_replacement", without_replacement)


def a_shrinking_write_back_drops_the_earlier_ones(patch: pytest.MonkeyPatch) -> None:
    original = recovery_write.WriteBackPhase._switch_to

    def go_on_with(self: Any, ensemble: Any) -> None:
        if len(ensemble) < len(self._ensemble):
            first = self.first_pending_entry_id
            self._fragments[:] = [self._original, Fragment(first, self._ensemble)]
        original(self, ensemble)

    patch.setattr(recovery_write.WriteBackPhase, "_switch_to", go_on_with)


def those_left_out_stay_named(patch: pytest.MonkeyPatch) -> None:
    original = recovery_write.WriteBackPhase.changed_fragments

    def changed_fragments(self: Any) -> tuple[Fragment, ...]:
        size = len(self._original.ensemble)
        return tuple(f for f in original(self) if len(f.ensemble) == size)

    patch.setattr(recovery_write.WriteBackPhase, "changed_fragments", changed_fragments)


def one_copy_written_back_is_enough(patch: pytest.MonkeyPatch) -> None:
    original = recovery_write._PendingSpan.count_stored

    def count_stored(self: Any, ensemble: Any) -> int:
        return len(self.positions) if original(self, ensemble) else 0

    patch.setattr(recovery_write._PendingSpan, "count_stored", count_stored)


IN_SYNC_BUGS: list[Patch] = [
    it_does_not_wait_for_the_others,
    it_prefers_a_negative,
    unknown_is_a_negative,
    a_lone_survivor_is_refused,
    a_shrinking_write_back_drops_the_earlier_ones,
    those_left_out_stay_named,
    one_copy_written_back_is_enough,
    older_fragments_are_stored_as_they_were,
]


@pytest.mark.parametrize("bug", IN_SYNC_BUGS, ids=lambda bug: bug.__name__)
def test_a_seeded_in_sync_bug_shows(bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(BUG_SEEDS):
        quorum = IN_SYNC[seed % len(IN_SYNC)]
        try:
            explore(quorum, seed, recoverers=1 + seed % 3, odds=IN_SYNC_ODDS)
        except (ViolationError, AssertionError, InvalidTransitionError):
            return
    pytest.fail(f"{bug.__name__} does not show in {BUG_SEEDS} histories")
