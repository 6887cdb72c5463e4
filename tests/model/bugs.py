"""List of the seeded bugs: the configurations that find each, and which are masked.

Leaves the changes themselves to `bugs_append`, `bugs_recovery`, `bugs_bookie`, `bugs_in_sync` and
`repairing.bugs`. A bug that another rule masks is listed alone as masked, and together with that
rule as to be found.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.model import bugs_append as append
from tests.model import bugs_bookie as bookie
from tests.model import bugs_in_sync as members
from tests.model import bugs_recovery as recovery
from tests.model import scopes
from tests.model import scopes_in_sync as in_sync
from tests.model.patches import Patches
from tests.model.repairing import bugs as repairing
from tests.model.repairing import scopes as repair_scopes
from tests.model.search import AnyScope


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, the configurations that search for it, and, if it is masked, the reason."""

    apply: Callable[[Patches], None]
    scopes: tuple[AnyScope, ...]
    masked_by: str = ""

    @property
    def name(self) -> str:
        """Name of the change, in words."""
        return self.apply.__name__


ALL_ACKNOWLEDGE: Final = "11.1: what one member never had was never committed, so either is safe"
IN_SYNC: Final = (
    Bug(members.a_member_is_in_sync_before_its_copy_is_whole, (in_sync.SPARE_OF_TWO,)),
    Bug(members.who_catches_up_is_stored_as_in_sync, (in_sync.SPARE_OF_TWO,)),
    Bug(members.who_catches_up_counts_for_the_minimum, (in_sync.SPARE_OF_TWO,)),
    Bug(members.the_last_in_sync_member_leaves, (in_sync.SPARE_OF_TWO,)),
    Bug(members.the_set_shrinks_below_the_minimum, (in_sync.TWO_LEAVE,)),
    Bug(members.a_spare_takes_the_place_of_the_last_in_sync_member, (in_sync.SPARE_OF_TWO,)),
    Bug(members.all_but_one_are_enough, (in_sync.LEAVE_OF_TWO,)),
    Bug(members.as_many_as_the_minimum_are_enough, (in_sync.TWO_LEAVE,)),
    Bug(members.answers_stay_where_they_were, (in_sync.LEAVE_OF_THREE,)),
    Bug(members.answers_of_who_left_count_for_who_joins, (in_sync.ALL_OF_THREE,)),
    Bug(members.entries_are_confirmed_below_the_minimum, (in_sync.TWO_LEAVE,)),
    Bug(members.a_member_joins_during_a_change, (in_sync.TWO_LEAVE,)),
    Bug(members.a_member_that_returns_is_sent_nothing, (in_sync.TWO_LEAVE,)),
    Bug(members.the_parked_are_not_judged_again, (in_sync.TWO_DIE,)),
    Bug(members.a_laggard_is_never_forgiven, (in_sync.BOTH_WANTED,)),
    Bug(members.what_the_copier_stored_is_not_looked_at, (in_sync.ALL_OF_THREE,)),
    Bug(members.what_the_copier_stored_is_taken_though_older, (in_sync.SPARE_OF_TWO,)),
    Bug(members.the_quorum_does_not_follow_the_members, (in_sync.ONE_DIES,)),
    Bug(members.a_lone_survivor_is_refused, (in_sync.LONE,)),
    Bug(members.recovery_needs_a_majority_of_members, (in_sync.LONE,)),
    Bug(members.recovery_waits_for_one_member_alone, (in_sync.LONE,), ALL_ACKNOWLEDGE),
    Bug(members.a_negative_is_preferred, (in_sync.LONE,), ALL_ACKNOWLEDGE),
    Bug(members.silence_of_a_member_is_a_negative, (in_sync.LONE_LEAVES,)),
    Bug(members.silence_of_a_member_is_a_negative_and_preferred, (in_sync.LONE,)),
    Bug(members.the_write_back_drops_state_when_it_shrinks, (in_sync.LONE,)),
    Bug(members.the_close_names_who_was_left_out, (in_sync.LONE,)),
)

REPAIR: Final = (
    Bug(repairing.the_swap_comes_before_the_copy, (repair_scopes.LOST,)),
    Bug(repairing.a_mark_that_was_off_counts, (repair_scopes.TWO_WORKERS,)),
    Bug(repairing.a_mark_protects_nothing, (repair_scopes.LOST,)),
    Bug(repairing.the_target_is_not_marked, (repair_scopes.LOST,)),
    Bug(repairing.the_state_of_the_target_is_not_read, (repair_scopes.PARTITIONED,)),
    Bug(repairing.the_last_entry_is_not_copied, (repair_scopes.RETURNED,)),
    Bug(repairing.an_empty_position_is_not_replaced, (repair_scopes.EMPTY,)),
    Bug(repairing.a_draining_bookie_may_be_removed, (repair_scopes.DRAINED,)),
    Bug(repairing.a_swap_moves_the_end, (repair_scopes.LOST,)),
)

CHANGE, PAIR, TRIO = scopes.CHANGE, scopes.PAIR_RECOVERY, scopes.TRIO_RECOVERY
BUGS: Final = (
    Bug(append.confirmed_during_a_change, (CHANGE,)),
    Bug(append.answers_of_the_replaced_count, (CHANGE,)),
    Bug(append.the_resend_is_skipped, (scopes.PAIR_CHANGE,)),
    Bug(append.the_new_fragment_starts_behind_the_last_push, (CHANGE,)),
    Bug(append.one_answer_is_enough, (CHANGE,)),
    Bug(append.entries_are_confirmed_out_of_order, (CHANGE,)),
    Bug(append.the_close_confirms_what_comes_late, (CHANGE,)),
    Bug(append.the_close_has_the_length_of_what_was_pushed, (CHANGE,)),
    Bug(append.the_writer_stores_metadata_blind, (PAIR,)),
    Bug(append.the_recoverer_stores_metadata_blind, (scopes.TWO_RECOVERIES,)),
    Bug(append.a_fence_does_not_end_the_writer, (PAIR,)),
    Bug(append.a_fence_does_not_end_a_writer_that_stores_blind, (PAIR,)),
    Bug(append.a_fence_by_mistake_ends_the_writer, (scopes.DAMAGED_PAIR,)),
    Bug(append.a_stale_read_is_trusted, (PAIR,)),
    Bug(append.a_read_decides_fences_that_came_later, (scopes.DAMAGED_PAIR,)),
    Bug(append.a_conflict_is_taken_for_success, (PAIR,)),
    Bug(append.the_state_is_not_looked_at_in_a_conflict, (PAIR,)),
    Bug(append.a_conflict_is_adopted_without_resending, (scopes.REPAIRED_CHANGE,)),
    Bug(append.an_own_earlier_attempt_is_not_adopted, (scopes.REPAIRED_CHANGE,)),
    Bug(append.an_unknown_outcome_is_taken_for_success, (scopes.UNKNOWN_CHANGE,)),
    Bug(
        append.an_unknown_outcome_is_taken_for_failure,
        (scopes.UNKNOWN_CHANGE, scopes.PAIR_UNKNOWN, scopes.JOINED),
        "the change that is begun again at once, on the same version (1.4)",
    ),
    Bug(append.a_change_is_abandoned_while_it_may_apply, (scopes.UNKNOWN_CHANGE,)),
    Bug(
        append.an_own_update_is_taken_for_a_conflict,
        (scopes.UNKNOWN_CHANGE, scopes.PAIR_UNKNOWN),
        "the adoption of what is found (1.4), and of an equal end (6.2)",
    ),
    Bug(append.an_own_update_is_a_conflict_that_is_not_adopted, (scopes.SUSPECTED_CHANGE,)),
    Bug(recovery.recovery_reads_do_not_fence, (TRIO,)),
    Bug(recovery.one_fence_is_enough, (TRIO,), "recovery reads, which fence too"),
    Bug(recovery.one_fence_is_enough_and_reads_do_not_fence, (TRIO,)),
    Bug(recovery.one_negative_is_enough, (TRIO,)),
    Bug(recovery.a_majority_of_negatives_is_enough, (scopes.ONE_ACK,)),
    Bug(recovery.silence_is_a_negative, (scopes.SILENT_PAIR,)),
    Bug(
        recovery.a_silent_bookie_counts_as_fenced,
        (scopes.SILENT_PAIR,),
        "recovery reads, which fence too",
    ),
    Bug(recovery.a_silent_bookie_counts_as_fenced_and_reads_do_not_fence, (scopes.SILENT_PAIR,)),
    Bug(recovery.silence_fences_and_denies, (scopes.SILENT_PAIR,)),
    Bug(recovery.recovery_starts_one_too_late, (PAIR,)),
    Bug(recovery.recovery_starts_below_the_last_fragment, (scopes.CHANGED_PAIR,)),
    Bug(recovery.the_write_back_is_skipped, (TRIO,)),
    Bug(recovery.the_write_back_does_not_pass_the_fence, (PAIR,)),
    Bug(recovery.the_write_back_is_not_resent, (scopes.SILENT_PAIR,)),
    Bug(recovery.the_whole_last_fragment_is_replaced, (scopes.SILENT_PAIR_OF_TWO,)),
    Bug(recovery.answers_of_bookies_replaced_in_recovery_count, (scopes.SILENT_PAIR,)),
    Bug(recovery.the_lac_advances_in_write_back, (PAIR,)),
    Bug(recovery.older_fragments_are_stored_as_they_were, (scopes.REPAIRED_PAIR,)),
    Bug(recovery.the_loser_of_two_recoveries_fails, (scopes.TWO_RECOVERIES,)),
    Bug(append.the_writer_closes_from_in_recovery, (PAIR, TRIO), "the LAC frozen at the fence"),
    Bug(recovery.the_writer_closes_from_in_recovery_and_the_lac_advances, (PAIR,)),
    Bug(bookie.adds_are_accepted_behind_a_fence, (PAIR,)),
    Bug(bookie.an_add_is_answered_before_its_sync, (scopes.RESTARTED_PAIR,)),
    Bug(bookie.a_fence_is_answered_before_its_sync, (scopes.RESTARTED_PAIR,)),
    Bug(bookie.a_fence_is_lost_in_a_crash, (scopes.RESTARTED_PAIR,)),
    Bug(bookie.limbo_ends_without_the_fences, (scopes.OLD_COPY,)),
    Bug(bookie.a_negative_overtakes_an_accepted_add, (scopes.RESTARTED_PAIR,)),
    Bug(bookie.a_write_back_with_another_lac_is_refused, (scopes.LACS_PAIR,)),
    *IN_SYNC,
    *REPAIR,
)

OUT_OF_SIGHT: Final = (
    "tombstones: a ledger of repair may be deleted and is collected, but is not made again",
    "repair of an open ledger whose writer is gone (9.2), and which bookie the placement chooses",
    "digests, the index: what a bookie holds it returns; damage only fences, and limbo loses only"
    " fences",
    "readers (8), unclean recovery (11.6), fencing by password: not in a world",
    "the shell of in-sync mode: whom it asks when, how it copies and verifies (11.2, 11.3)",
    "suspicion's limits and learned delays (5.7): a suspicion is drawn, never counted or timed",
    "bounds (window, unanswered bytes, chunks of 1,024 entries): 3 entries reach none of them",
)
