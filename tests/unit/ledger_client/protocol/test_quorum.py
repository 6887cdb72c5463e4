"""Write sets and coverage, against naive twins that follow the text of the rules."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.protocol.quorum import (
    covers,
    negatives_needed,
    stripe_end,
    write_set,
    write_set_positions,
)
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, QuorumSpec


@st.composite
def quorums(draw: st.DrawFn) -> QuorumSpec:
    ack, write, ensemble = sorted(draw(st.lists(st.integers(1, 6), min_size=3, max_size=3)))
    return QuorumSpec(ensemble, write, ack, draw(st.integers(1, 5)))


def naive_covers(quorum: QuorumSpec, known: list[int]) -> bool:
    """Return whether no ack quorum can have formed among silent bookies, in any write set."""
    for stripe in range(quorum.ensemble_size):
        replicas = [(stripe + i) % quorum.ensemble_size for i in range(quorum.write_quorum)]
        for ack_set in combinations(replicas, quorum.ack_quorum):
            if not any(position in known for position in ack_set):
                return False
    return True


@given(quorums(), st.data())
def test_coverage_means_that_every_ack_quorum_is_touched(
    quorum: QuorumSpec, data: st.DataObject
) -> None:
    known = data.draw(st.lists(st.integers(0, quorum.ensemble_size - 1), unique=True))
    assert covers(quorum, known) is naive_covers(quorum, known)


@given(quorums())
def test_enough_negatives_touch_every_ack_quorum_of_a_write_set(quorum: QuorumSpec) -> None:
    replicas, needed = range(quorum.write_quorum), negatives_needed(quorum)

    def proves(negatives: int) -> bool:
        silent = [r for r in replicas if r >= negatives]
        return len(silent) < quorum.ack_quorum

    assert proves(needed)
    assert not proves(needed - 1)


@given(quorums(), st.integers(0, 200))
def test_write_sets_walk_round_the_ensemble_once_per_stripe(
    quorum: QuorumSpec, entry_id: int
) -> None:
    ensemble = tuple(BookieId(f"b{i}") for i in range(quorum.ensemble_size))
    # Deal the stripes out one after the other, as one would with cards.
    dealt: list[list[BookieId]] = []
    for _stripe in range(entry_id // quorum.stripe_entries + 1):
        start = len(dealt)
        doubled = ensemble * (start // quorum.ensemble_size + 3)
        dealt.append(list(doubled[start : start + quorum.write_quorum]))
    fragment = Fragment(EntryId(0), ensemble)
    found = write_set(quorum, fragment, EntryId(entry_id))
    assert list(found) == dealt[-1]
    assert len(set(found)) == quorum.write_quorum
    assert found == tuple(ensemble[p] for p in write_set_positions(quorum, EntryId(entry_id)))


@given(quorums(), st.integers(0, 200))
def test_a_stripe_ends_where_the_write_set_may_change(quorum: QuorumSpec, entry_id: int) -> None:
    end = stripe_end(quorum, EntryId(entry_id))
    assert end >= entry_id
    assert (end + 1) % quorum.stripe_entries == 0
    assert all(each % quorum.stripe_entries for each in range(entry_id + 1, end + 1))
