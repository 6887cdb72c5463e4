"""What one ledger lacks while some bookies are gone or drain. Pure.

Leaves which bookies are gone to `repair.standing`, copying to `repair.ledger_repair`, and the
ledgers of a complete cluster to `repair.ledger_index`.

Invariants: only closed fragments have needs: all but the last one, and the last one of a CLOSED
ledger; of an in-sync ledger that is not CLOSED, none. A need of a fragment without entries is a
need too: it is met by a swap alone. A bookie that drains holds a good copy. Entries that only
bookies in limbo may hold are not lost: a worker finds out what these return.

Entries whose loss was accepted need no copy.

Source: protocol rules 9.1, 9.6, 9.7, 9.9, 9.13, 9.17 and 11.2.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState, QuorumSpec
from metadata.ledgers.lost_entries import entries_left
from metadata.repair.jobs import MOVING_URGENCY
from repair.spread import NO_PLACES, Places, misplaced_member, write_sets
from repair.standing import Standing, Standings


class RepairClass(IntEnum):
    """Urgency of a ledger's repair: the smallest is first."""

    LAST_COPY = 0
    """Some entries have one good copy left, or only copies on bookies in limbo."""
    SHORT_OF_ACK_QUORUM = 1
    """Some entries have fewer good copies than the ack quorum."""
    SHORT_OF_WRITE_QUORUM = 2
    """Some entries have fewer good copies than the write quorum."""
    DRAINING = MOVING_URGENCY
    """All copies are good, and some are on bookies that drain."""
    MISPLACED = 4
    """All copies are good, and some share a rack or a host although a better place exists."""
    LOST = 9
    """Some entries have no copy, and the other fragments need nothing: nothing can be done until a
    bookie returns.
    """


class Cause(StrEnum):
    """Cause of a need."""

    GONE = "the bookie is gone"
    UNPROVEN = "the bookie may have lost entries"
    DRAINING = "the bookie drains"
    MISPLACED = "a bookie in another rack or on another host can take its copies"
    SHORT = "the fragment has fewer members than the ledger wants"


@dataclass(frozen=True, slots=True)
class Need:
    """One bookie that a closed fragment needs."""

    first_entry_id: EntryId
    """First entry of the fragment."""
    replaces: BookieId | None
    """Member that is replaced; None adds a member in in-sync mode."""
    cause: Cause


def needs_of(
    ledger: LedgerMetadata, standings: Standings, places: Places = NO_PLACES
) -> list[Need]:
    """Return the needs of a ledger, in the order of its entries. It needs moves to better places
    only if it needs nothing else. A fragment without entries is not short of members.
    """
    needs: list[Need] = []
    for fragment, holders in _holders_by_fragment(ledger):
        first = fragment.first_entry_id
        for bookie_id in fragment.ensemble:
            match standings.of(bookie_id):
                case Standing.GONE:
                    needs.append(Need(first, bookie_id, Cause.GONE))
                case Standing.UNPROVEN:
                    needs.append(Need(first, bookie_id, Cause.UNPROVEN))
                case Standing.DRAINING:
                    needs.append(Need(first, bookie_id, Cause.DRAINING))
                case Standing.GOOD:
                    pass
        if ledger.quorum.is_in_sync and not holders.empty_starts:
            missing = ledger.quorum.ensemble_size - len(fragment.ensemble)
            needs += [Need(first, None, Cause.SHORT)] * missing
    return needs or _moves_of(ledger, places)


def _moves_of(ledger: LedgerMetadata, places: Places) -> list[Need]:
    moves: list[Need] = []
    for fragment in closed_fragments(ledger):
        member = misplaced_member(fragment.ensemble, ledger.quorum_of(fragment), places)
        if member is not None:
            moves.append(Need(fragment.first_entry_id, member, Cause.MISPLACED))
    return moves


def closed_fragments(ledger: LedgerMetadata) -> tuple[Fragment, ...]:
    """Return the fragments that repair may copy: those whose entries are final. Of an open in-sync
    ledger only the writer copies (rule 11.2).
    """
    if ledger.state is LedgerState.CLOSED:
        return ledger.fragments
    return () if ledger.quorum.is_in_sync else ledger.fragments[:-1]


@dataclass(frozen=True, slots=True)
class Holders:
    """Bookies that hold the entries of a closed fragment."""

    ensemble: tuple[BookieId, ...]
    empty_starts: tuple[int, ...] = ()
    """First positions of the write sets that hold no entry, or only lost ones."""


def holders_of(ledger: LedgerMetadata) -> tuple[Holders, ...]:
    """Return the different holders of the closed fragments of a ledger. Bookies that all hold
    every entry are sorted, so that few ensembles differ.
    """
    return tuple(dict.fromkeys(holders for _, holders in _holders_by_fragment(ledger)))


def lost_fragments(ledger: LedgerMetadata, standings: Standings) -> frozenset[EntryId]:
    """Return the first entries of the closed fragments with entries that have no copy."""
    return frozenset(
        fragment.first_entry_id
        for fragment, holders in _holders_by_fragment(ledger)
        if class_of_fragment(holders, ledger.quorum, standings) is RepairClass.LOST
    )


def _holders_by_fragment(ledger: LedgerMetadata) -> Iterator[tuple[Fragment, Holders]]:
    ends = [each.first_entry_id - 1 for each in ledger.fragments[1:]]
    if ledger.last_entry_id is not None:
        ends.append(ledger.last_entry_id)
    for fragment, end in zip(closed_fragments(ledger), ends, strict=False):
        is_shared = _hold_all(ledger, fragment)
        ensemble = tuple(sorted(fragment.ensemble)) if is_shared else fragment.ensemble
        yield fragment, Holders(ensemble, empty_starts(ledger, fragment, end))


def _hold_all(ledger: LedgerMetadata, fragment: Fragment) -> bool:
    """Return whether each member of a fragment holds every entry of it."""
    quorum = ledger.quorum_of(fragment)
    return quorum.write_quorum == quorum.ensemble_size


def empty_starts(ledger: LedgerMetadata, fragment: Fragment, last: int) -> tuple[int, ...]:
    """Return the first positions of a fragment's write sets that need no copies."""
    left = entries_left(ledger.lost, fragment.first_entry_id, last)
    if _hold_all(ledger, fragment):
        return () if left else (0,)
    quorum = ledger.quorum_of(fragment)
    size, turn = quorum.stripe_entries, quorum.stripe_entries * quorum.ensemble_size

    def held_below(entry_id: int, start: int) -> int:
        turns, rest = divmod(entry_id, turn)
        return turns * size + max(0, min(size, rest - start * size))

    return tuple(
        start
        for start in range(quorum.ensemble_size)
        if all(held_below(a, start) == held_below(b + 1, start) for a, b in left)
    )


def class_of(
    closed: tuple[Holders, ...], quorum: QuorumSpec, standings: Standings
) -> RepairClass | None:
    """Return the urgency of the closed fragments with these holders: that of the most urgent one;
    LOST only if none of the others needs anything; None if they need nothing.

    Counts copies by the metadata: each bookie of a write set that is good or drains has one.
    """
    found = (class_of_fragment(each, quorum, standings) for each in closed)
    return min((each for each in found if each is not None), default=None)


def class_without_copies(
    closed: tuple[Holders, ...],
    quorum: QuorumSpec,
    standings: Standings,
    bad: Collection[BookieId],
) -> RepairClass | None:
    """Return the urgency if the copies on the `bad` bookies, which have lost some entries, do not
    count. No fragment is LOST for that reason: a worker finds out whether an entry has no good
    copy, because the bad ones may differ.
    """
    without = standings.with_gone(bad)
    urgencies: list[RepairClass] = []
    for each in closed:
        found = class_of_fragment(each, quorum, without)
        if found is RepairClass.LOST:
            is_lost = class_of_fragment(each, quorum, standings) is found
            found = found if is_lost else RepairClass.LAST_COPY
        if found is not None:
            urgencies.append(found)
    return min(urgencies, default=None)


def class_of_fragment(
    holders: Holders, quorum: QuorumSpec, standings: Standings
) -> RepairClass | None:
    """Return the urgency of the closed fragments with the same holders."""
    ensemble, wanted = holders.ensemble, quorum.write_quorum
    ack_quorum = quorum.min_in_sync if quorum.is_in_sync else quorum.ack_quorum
    good, unproven = min(
        (
            (
                sum(standings.has_copy(each) for each in members),
                sum(standings.of(each) is Standing.UNPROVEN for each in members),
            )
            for start, members in enumerate(write_sets(ensemble, quorum))
            if start not in holders.empty_starts
        ),
        default=(wanted, 0),
    )
    if good == 0:
        return RepairClass.LAST_COPY if unproven else RepairClass.LOST
    if good < wanted:
        if good == 1:
            return RepairClass.LAST_COPY
        is_short = good < ack_quorum
        return RepairClass.SHORT_OF_ACK_QUORUM if is_short else RepairClass.SHORT_OF_WRITE_QUORUM
    if not all(standings.has_copy(each) for each in ensemble):
        return RepairClass.SHORT_OF_WRITE_QUORUM
    if any(standings.of(each) is Standing.DRAINING for each in ensemble):
        return RepairClass.DRAINING
    return None
