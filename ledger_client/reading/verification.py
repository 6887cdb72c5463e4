"""Verification of a ledger: every entry of every replica is read from its bookie, and compared.

Leaves reading one replica to `ledger_client.reading.replica_reading`. It only reports: operators
decide what to do about findings.

Invariants: nothing is fenced and nothing is written; an unreachable bookie is a finding, and never
treated as a bookie without entries; replicas are compared by the writer's entry digests, so that
the boundaries of batches do not matter.

Source: protocol rules 3.2 and 9.4.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from crc32c import crc32c

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from ledger_client.reading.replica_reading import ReadOutcome, ReplicaPiece, ReplicaReading
from metadata.ids import BookieId
from metadata.ledgers.copies import ranges_by_bookie
from metadata.ledgers.entry_ranges import Range, merged, within, without
from metadata.ledgers.ledger_metadata import LedgerMetadata


@dataclass(slots=True)
class ReplicaReport:
    """Findings at one bookie, for the entries that it should hold."""

    bookie_id: BookieId
    expected: list[Range]
    verified_count: int = 0
    missing: list[Range] = field(default_factory=list)
    bad: list[Range] = field(default_factory=list)
    differing: list[Range] = field(default_factory=list)
    """Stripes whose entries differ from those of the other replicas, all with valid digests."""
    error: str = ""
    digests: dict[int, int] = field(default_factory=dict)
    """Stripe -> CRC32C over its entries' digests, for stripes that were read completely."""

    @property
    def is_well(self) -> bool:
        """Whether every expected entry is present, undamaged, and equal to the other replicas. A
        bookie without an expected entry may be away.
        """
        is_unread = self.expected and self.error
        return not (self.missing or self.bad or self.differing or is_unread)


async def verify_replicas(
    pool: BookiePool,
    ledger: LedgerMetadata,
    keys: LedgerKeys,
    last_entry_id: int,
    on_verified: Callable[[int], None],
) -> list[ReplicaReport]:
    """Read all copies of entries 0..last from all bookies at the same time; return a report for
    each.
    """
    expected = ranges_by_bookie(ledger, last_entry_id)
    reports = [ReplicaReport(bookie_id, ranges) for bookie_id, ranges in expected.items()]
    size = ledger.quorum.stripe_entries
    readers = [_ReplicaReader(pool, keys, report, size, on_verified) for report in reports]
    await asyncio.gather(*[reader.run() for reader in readers])
    _compare(reports, size)
    return reports


@dataclass(eq=False, repr=False)
class _ReplicaReader:
    """Reads and checks the copies of one bookie."""

    _pool: BookiePool
    _keys: LedgerKeys
    _report: ReplicaReport
    _stripe_entries: int
    _on_verified: Callable[[int], None]

    async def run(self) -> None:
        report = self._report
        reading = ReplicaReading(self._pool, report.bookie_id, self._keys)
        try:
            held = merged([stored_range async for stored_range in reading.stored_ranges()])
            report.missing = without(report.expected, held)
            for first, last in without(report.expected, report.missing):
                async for piece in reading.read(first, last):
                    self._note(piece)
        except BookieCallError as error:
            report.error = str(error)
        report.bad = merged(report.bad)
        report.missing = merged(report.missing)

    def _note(self, piece: ReplicaPiece) -> None:
        report, size = self._report, self._stripe_entries
        if piece.outcome is not ReadOutcome.READ:
            listed = report.missing if piece.outcome is ReadOutcome.MISSING else report.bad
            listed.append((piece.first, piece.last))
            return
        count = len(piece.digests)
        report.verified_count += count
        self._on_verified(count)
        for entry_id, digest in enumerate(piece.digests, piece.first):
            stripe = entry_id // size
            encoded = digest.to_bytes(4, "little")
            report.digests[stripe] = crc32c(encoded, report.digests.get(stripe, 0))


def _compare(reports: list[ReplicaReport], stripe_entries: int) -> None:
    """Mark the stripes on which bookies disagree although they should hold the same entries."""
    seen: dict[tuple[int, tuple[Range, ...]], dict[int, list[ReplicaReport]]] = {}
    for report in reports:
        unread = merged([*report.missing, *report.bad])
        for stripe, digest in report.digests.items():
            bounds = (stripe * stripe_entries, (stripe + 1) * stripe_entries - 1)
            held = tuple(within(report.expected, *bounds))
            if report.error or any(within(unread, *range_) for range_ in held):
                continue
            seen.setdefault((stripe, held), {}).setdefault(digest, []).append(report)
    for (_, held), by_digest in seen.items():
        if len(by_digest) > 1:
            for several in by_digest.values():
                for report in several:
                    report.differing = merged([*report.differing, *held])
