"""Write sets, and whether a set of answers is sufficient.

Leaves the consequences to the append, read and recovery protocols.

Source: protocol rules 3.1 and 3.2.
"""

from collections.abc import Collection

from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, QuorumSpec


def write_set_positions(quorum: QuorumSpec, entry_id: EntryId) -> tuple[int, ...]:
    """Return the WQ positions (e div S + i) mod E that hold an entry, in order (rule 3.1)."""
    start = entry_id // quorum.stripe_entries
    return tuple((start + i) % quorum.ensemble_size for i in range(quorum.write_quorum))


def write_set(quorum: QuorumSpec, fragment: Fragment, entry_id: EntryId) -> tuple[BookieId, ...]:
    """Return the bookies that hold an entry of a fragment."""
    return tuple(fragment.ensemble[p] for p in write_set_positions(quorum, entry_id))


def stripe_end(quorum: QuorumSpec, entry_id: EntryId) -> EntryId:
    """Return the last entry id of the stripe of `entry_id`, which has the same write set; no batch
    extends beyond it.
    """
    size = quorum.stripe_entries
    return EntryId((entry_id // size + 1) * size - 1)


def covers(quorum: QuorumSpec, known_positions: Collection[int]) -> bool:
    """Return whether answers from `known_positions` cover a fragment (rule 3.2).

    Every window of WQ consecutive positions must contain fewer than AQ unknown ones: then no ack
    quorum can have formed among bookies that did not answer.
    """
    size = quorum.ensemble_size
    return all(
        sum((start + i) % size not in known_positions for i in range(quorum.write_quorum))
        < quorum.ack_quorum
        for start in range(size)
    )


def negatives_needed(quorum: QuorumSpec) -> int:
    """Return how many explicit negatives prove that an entry was never acknowledged: WQ - AQ + 1
    (rule 7.3).
    """
    return quorum.write_quorum - quorum.ack_quorum + 1
