"""Safety of the acknowledged entries: the number of sound copies, from reading every replica.

Invariants: a copy counts only if it was read, with a valid digest; a bookie that does not respond
counts as empty; no ledger is fenced and nothing is written.

Source: protocol rules 3.2 and 9.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import Cluster, open_cluster
from ledger_client.digest import LedgerKeys
from ledger_client.reading.verification import ReplicaReport, verify_replicas
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import LedgerId
from metadata.ledgers.copies import covers
from metadata.ledgers.entry_ranges import Range, without
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec


@dataclass(frozen=True, slots=True)
class LedgerSafety:
    """Copies of the acknowledged entries of one ledger."""

    ledger_id: int
    state: str
    fragment_count: int
    entry_count: int
    """Number of acknowledged entries; their ids are 0 to `entry_count` - 1."""
    copies: tuple[tuple[int, int], ...]
    """Pairs (number of sound copies, number of entries with that many copies), ascending."""
    write_quorum: int
    ack_quorum: int
    members_down: int
    """Number of members of the last fragment that are down."""
    recoverable_without: int
    """Maximum number of further members of the last fragment that may be away, in any combination,
    while a recovery can still decide; -1 if it cannot decide now."""

    @property
    def lost_count(self) -> int:
        """Acknowledged entries without any copy."""
        return sum(count for copies, count in self.copies if copies == 0)

    @property
    def losable_bookies(self) -> int:
        """Number of bookies that may be lost, in any combination, without loss of an acknowledged
        entry; -1 if an entry is lost already.
        """
        return min((copies for copies, _ in self.copies), default=0) - 1

    @property
    def short_count(self) -> int:
        """Acknowledged entries with fewer copies than the write quorum."""
        return sum(count for copies, count in self.copies if copies < self.write_quorum)


async def examine(metadata_uri: str, acknowledged: Sequence[tuple[int, int]]) -> list[LedgerSafety]:
    """Read all copies of the entries 0 to `last` of each pair (ledger id, last acknowledged
    entry). Raises MetadataError.
    """
    async with open_cluster(metadata_uri) as cluster:
        pool = cluster.open_pool()
        try:
            return [
                await _examine_one(cluster, pool, LedgerId(ledger_id), last)
                for ledger_id, last in acknowledged
            ]
        finally:
            await pool.aclose()


async def _examine_one(
    cluster: Cluster, pool: BookiePool, ledger_id: LedgerId, last: int
) -> LedgerSafety:
    try:
        ledger, _ = await cluster.ledgers.get(ledger_id, fresh=True)
    except NodeNotFoundError as error:
        raise MetadataError(
            f"ledger {ledger_id} has acknowledged entries, but its metadata is gone"
        ) from error
    keys = LedgerKeys.of(ledger, b"")
    pool.attach(ledger_id, keys.master_key)
    try:
        reports = await verify_replicas(pool, ledger, keys, last, lambda _: None)
    finally:
        pool.detach(ledger_id)
    return judge(ledger, reports, last)


def judge(ledger: LedgerMetadata, reports: Sequence[ReplicaReport], last: int) -> LedgerSafety:
    """Count the sound copies of a ledger's entries 0 to `last`."""
    held = [sound_ranges(report) for report in reports]
    silent = {report.bookie_id for report in reports if report.error}
    ensemble = ledger.last_fragment.ensemble
    up = [position for position, member in enumerate(ensemble) if member not in silent]
    return LedgerSafety(
        ledger_id=ledger.ledger_id,
        state=str(ledger.state),
        fragment_count=len(ledger.fragments),
        entry_count=last + 1,
        copies=count_copies(held, last),
        write_quorum=ledger.quorum.write_quorum,
        ack_quorum=ledger.quorum.ack_quorum,
        members_down=len(ensemble) - len(up),
        recoverable_without=recoverable_without(ledger.quorum_of(ledger.last_fragment), up),
    )


def sound_ranges(report: ReplicaReport) -> list[Range]:
    """Return the ranges of entries for which a bookie returned a sound copy."""
    if report.error:
        return []
    unsound = [*report.missing, *report.bad, *report.differing]
    return without(report.expected, unsound)


def count_copies(held: Sequence[Sequence[Range]], last: int) -> tuple[tuple[int, int], ...]:
    """Return pairs (number of copies, number of the entries 0 to `last` with that many),
    ascending.

    Each item of `held` lists the ranges that one bookie has; they do not overlap.
    """
    steps = [(0, 0), (last + 1, 0)]
    for ranges in held:
        for first, end in ranges:
            steps += [(first, 1), (end + 1, -1)]
    counts: dict[int, int] = {}
    at = copies = 0
    for position, change in sorted(step for step in steps if step[0] <= last + 1):
        if position > at:
            counts[copies] = counts.get(copies, 0) + position - at
            at = position
        copies += change
    return tuple(sorted(counts.items()))


def recoverable_without(quorum: QuorumSpec, up: Sequence[int]) -> int:
    """Return how many of the positions that are up may fail, in any combination, while the
    responses of the others cover the fragment (rule 3.2); -1 if the responses of all do not cover
    it.
    """
    for count in range(len(up) + 1):
        left = (
            [position for position in up if position not in gone]
            for gone in combinations(up, count)
        )
        if not all(covers(quorum, some) for some in left):
            return count - 1
    return len(up)
