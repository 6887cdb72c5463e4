"""What one ledger lacks while some bookies are gone or drain. Pure.

Leaves which bookies are gone to `quire.repair.standing`, copying to `quire.repair.ledger_repair`,
and the ledgers of a complete cluster to `quire.repair.ledger_index`.

Invariants: only closed fragments have needs: all but the last one, and the last one of a CLOSED
ledger; of an in-sync ledger that is not CLOSED, none. A need of a fragment without entries is a
need too: it is met by a swap alone. A bookie that drains holds a good copy. Entries that only
bookies in limbo may hold are not lost: a worker finds out what these return.

Entries whose loss was accepted need no copy.

Source: protocol rules 9.1, 9.6, 9.7, 9.9, 9.13, 9.17 and 11.2.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import chain
from typing import Final

from metadata.ids import BookieId, EntryId
from metadata.ledgers.copies import FragmentCopies, Holders, copies_of, is_striped
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState, QuorumSpec
from metadata.repair.jobs import MOVING_URGENCY
from quire.repair.spread import NO_PLACES, Places, misplaced_member
from quire.repair.standing import Standing, Standings


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
    """Some entries have no copy, and all other positions need nothing: nothing can be done until a
    bookie returns.
    """


class Cause(StrEnum):
    """Cause of a need."""

    GONE = "the bookie is gone"
    UNPROVEN = "the bookie may have lost entries"
    DRAINING = "the bookie drains"
    MISPLACED = "a bookie in another rack or on another host can take its copies"
    SHORT = "the fragment has fewer members than the ledger wants"


CAUSES: Final[Mapping[Standing, Cause]] = {
    Standing.GONE: Cause.GONE,
    Standing.UNPROVEN: Cause.UNPROVEN,
    Standing.DRAINING: Cause.DRAINING,
}
"""Why a member is replaced, by its standing."""


@dataclass(frozen=True, slots=True)
class Need:
    """One bookie that a closed fragment needs."""

    first_entry_id: EntryId
    """First entry of the fragment."""
    replaces: BookieId | None
    """Member that is replaced; None adds a member in in-sync mode."""
    cause: Cause
    is_lost: bool = False
    """Whether some entries of its position have no copy: then it cannot be met."""


def needs_of(
    ledger: LedgerMetadata, standings: Standings, places: Places = NO_PLACES
) -> list[Need]:
    """Return the needs of a ledger, in the order of its entries. It needs moves to better places
    only if it needs nothing else. A fragment without entries is not short of members.
    """
    needs: list[Need] = []
    for fragment in closed_fragments(ledger):
        lost = lost_members(fragment.holders, ledger.quorum, standings)
        for bookie_id in fragment.ensemble:
            cause = CAUSES.get(standings.of(bookie_id))
            if cause is not None:
                first = fragment.first_entry_id
                needs.append(Need(first, bookie_id, cause, bookie_id in lost))
        short = Need(fragment.first_entry_id, None, Cause.SHORT, bool(lost))
        needs += [short] * fragment.lacking_members
    return needs or _moves_of(ledger, places)


def _moves_of(ledger: LedgerMetadata, places: Places) -> list[Need]:
    moves: list[Need] = []
    for fragment in closed_fragments(ledger):
        member = misplaced_member(fragment.holders, ledger.quorum, places)
        if member is not None:
            moves.append(Need(fragment.first_entry_id, member, Cause.MISPLACED))
    return moves


def closed_fragments(ledger: LedgerMetadata) -> tuple[FragmentCopies, ...]:
    """Return the fragments that repair may copy: those whose entries are final. Of an open in-sync
    ledger only the writer copies (rule 11.2).
    """
    if ledger.state is LedgerState.CLOSED:
        return tuple(copies_of(ledger))
    return () if ledger.quorum.is_in_sync else tuple(copies_of(ledger))[:-1]


def holders_of(ledger: LedgerMetadata) -> tuple[Holders, ...]:
    """Return the different holders of the closed fragments of a ledger. Bookies that all hold
    every entry are sorted, so that few ensembles differ.
    """
    return tuple(dict.fromkeys(map(_holders, closed_fragments(ledger))))


def _holders(fragment: FragmentCopies) -> Holders:
    if is_striped(fragment.quorum):
        return fragment.holders
    return Holders(tuple(sorted(fragment.ensemble)), fragment.empty_starts)


def class_of(
    closed: tuple[Holders, ...], quorum: QuorumSpec, standings: Standings
) -> RepairClass | None:
    """Return the urgency of the closed fragments with these holders: that of the most urgent one;
    LOST only if none of the others needs anything; None if they need nothing.

    Counts copies by the metadata: each bookie of a write set that is good or drains has one.
    """
    classes = (class_of_fragment(holders, quorum, standings) for holders in closed)
    return min((repair_class for repair_class in classes if repair_class is not None), default=None)


def class_with_absent(
    closed: tuple[Holders, ...], quorum: QuorumSpec, standings: Standings, absent: Standings | None
) -> tuple[RepairClass | None, Standings]:
    """Return the urgency of closed fragments, and the standings that give it. `absent` also counts
    the bookies as gone that were missed for a short time: it is used if one good copy is left
    without them, or none.
    """
    if absent is not None:
        without = class_of(closed, quorum, absent)
        if without is RepairClass.LAST_COPY:
            return without, absent
    return class_of(closed, quorum, standings), standings


def class_without_copies(
    closed: tuple[Holders, ...],
    quorum: QuorumSpec,
    standings: Standings,
    bad: Collection[BookieId],
) -> RepairClass | None:
    """Return the urgency if the copies on the `bad` bookies, which have lost some entries, do not
    count. No entry is lost for that reason: a worker finds out whether an entry has no good copy,
    because the bad ones may differ.
    """
    without = standings.with_gone(bad)
    urgencies: list[RepairClass] = []
    for holders in closed:
        lost = lost_members(holders, quorum, standings)
        may_be_lost = lost_members(holders, quorum, without) != lost
        urgency = class_of_fragment(holders, quorum, without)
        if may_be_lost:
            urgency = RepairClass.LAST_COPY
        if urgency is not None:
            urgencies.append(urgency)
    return min(urgencies, default=None)


def lost_members(holders: Holders, quorum: QuorumSpec, standings: Standings) -> frozenset[BookieId]:
    """Return the members whose positions hold entries without a copy. No other bookie can get
    their copies (rule 9.7); positions with other entries can be repaired.
    """
    return frozenset(
        chain.from_iterable(
            members
            for members in holders.write_sets(quorum)
            if all(standings.of(member) is Standing.GONE for member in members)
        )
    )


def class_of_fragment(
    holders: Holders, quorum: QuorumSpec, standings: Standings
) -> RepairClass | None:
    """Return the urgency of the closed fragments with the same holders: LOST only if no other
    position needs anything.
    """
    ensemble, wanted = holders.ensemble, quorum.write_quorum
    lost = lost_members(holders, quorum, standings)
    good = wanted
    for members in holders.write_sets(quorum):
        without = [member for member in members if not standings.has_copy(member)]
        if not without or not lost.issuperset(without):
            good = min(good, len(members) - len(without))
    if good < wanted:
        if good <= 1:  # without a good copy, bookies in limbo may have one
            return RepairClass.LAST_COPY
        is_short = good < (quorum.min_in_sync if quorum.is_in_sync else quorum.ack_quorum)
        return RepairClass.SHORT_OF_ACK_QUORUM if is_short else RepairClass.SHORT_OF_WRITE_QUORUM
    if not all(standings.has_copy(bookie) or bookie in lost for bookie in ensemble):
        return RepairClass.SHORT_OF_WRITE_QUORUM
    if any(standings.of(bookie) is Standing.DRAINING for bookie in ensemble):
        return RepairClass.DRAINING
    return RepairClass.LOST if lost else None
