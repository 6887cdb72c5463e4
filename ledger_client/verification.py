"""Reads every entry of every replica of a ledger, straight from each bookie, and compares them.

Leaves connections to `ledger_client.pool`, and what is done about findings to people.

Invariants: nothing is fenced and nothing is written; a bookie that cannot be asked is a finding,
never taken for a bookie that holds nothing; replicas are compared by the writer's entry digests,
whatever the boundaries of their batches.

Source: protocol rules 3.2 and 9.4.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from bookie.wire.messages import ListEntries, ReadEntries, Status
from ledger_client.connection_calls import BookieCallError
from ledger_client.digest import LedgerKeys, verify
from ledger_client.entry_ranges import Range, entry_count, expected_ranges, merged, without
from ledger_client.pool import BookiePool
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledger_metadata import LedgerMetadata

READ_BYTES: Final = 4 * 1024 * 1024
CALL_TIMEOUT_S: Final = 15.0


@dataclass(slots=True)
class ReplicaReport:
    """What one bookie holds of what it should."""

    bookie_id: BookieId
    expected: list[Range]
    verified_count: int = 0
    missing: list[Range] = field(default_factory=list)
    bad: list[Range] = field(default_factory=list)
    differing: list[Range] = field(default_factory=list)
    """Stripes whose entries are not those of the other replicas, all with valid digests."""
    error: str = ""
    digests: dict[int, int] = field(default_factory=dict)
    """Stripe -> CRC32C over its entries' digests, for stripes that were wholly read."""

    @property
    def is_well(self) -> bool:
        """Whether every expected entry is there, undamaged, and as on the other replicas."""
        return not (self.missing or self.bad or self.differing or self.error)


async def verify_replicas(
    pool: BookiePool,
    ledger: LedgerMetadata,
    keys: LedgerKeys,
    last_entry_id: int,
    on_verified: Callable[[int], None],
) -> list[ReplicaReport]:
    """Read all copies of entries 0..last, all bookies at the same time; return a report of each."""
    expected = expected_ranges(ledger, last_entry_id)
    reports = [ReplicaReport(bookie_id, ranges) for bookie_id, ranges in expected.items()]
    size = ledger.quorum.stripe_entries
    readers = [_ReplicaReader(pool, keys, report, size, on_verified) for report in reports]
    await asyncio.gather(*[reader.run() for reader in readers])
    _compare(reports, size)
    return reports


def expected_count(ledger: LedgerMetadata, last_entry_id: int) -> int:
    """Return how many copies there should be of entries 0..last."""
    return sum(entry_count(ranges) for ranges in expected_ranges(ledger, last_entry_id).values())


class _ReplicaReader:
    """Reads what one bookie holds."""

    def __init__(
        self,
        pool: BookiePool,
        keys: LedgerKeys,
        report: ReplicaReport,
        stripe_entries: int,
        on_verified: Callable[[int], None],
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._report = report
        self._stripe_entries = stripe_entries
        self._on_verified = on_verified

    async def run(self) -> None:
        report = self._report
        try:
            held = await self._held()
            report.missing = without(report.expected, held)
            for first, last in without(report.expected, report.missing):
                await self._read(first, last)
        except BookieCallError as error:
            report.error = str(error)
        report.bad = merged(report.bad)
        report.missing = merged(report.missing)

    async def _held(self) -> list[Range]:
        held: list[Range] = []
        at = 0
        while True:
            answer = await self._pool.list_entries(
                self._report.bookie_id,
                ListEntries(self._keys.ledger_id, EntryId(at)),
                timeout_s=CALL_TIMEOUT_S,
            )
            if answer.status in (Status.NO_SUCH_LEDGER, Status.NO_SUCH_ENTRY):
                return merged(held)
            if answer.status is not Status.OK:
                raise BookieCallError(
                    self._report.bookie_id, "it cannot list what it holds", status=answer.status
                )
            held += answer.ranges
            if answer.complete or not answer.ranges:
                return merged(held)
            at = answer.ranges[-1][1] + 1

    async def _read(self, first: int, last: int) -> None:
        ledger_id: LedgerId = self._keys.ledger_id
        at = first
        while at <= last:
            request = ReadEntries(ledger_id, EntryId(at), EntryId(last), READ_BYTES, fence=False)
            answer = await self._pool.read_entries(
                self._report.bookie_id, request, timeout_s=CALL_TIMEOUT_S
            )
            end = min(answer.next_entry_id, last + 1)
            self._take(answer.batches, at, end)
            has_moved, at = end > at, max(at, end)
            if has_moved and answer.status is Status.OK:
                continue
            if at <= last:  # this one cannot be read; those behind it may be
                gone = answer.status in (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)
                (self._report.missing if gone else self._report.bad).append((at, at))
                at += 1

    def _take(self, batches: tuple[BatchView, ...], first: int, end: int) -> None:
        """Check the batches, which are to hold the entries from `first` to below `end`."""
        at = first
        for batch in batches:
            header = batch.header
            begins, ends = header.first_entry_id, header.last_entry_id
            if not begins <= at <= ends:
                break
            last = min(ends, end - 1)
            try:
                verify(batch, self._keys)
                batch.verify_digests(self._keys.seed)
            except BatchError:
                self._report.bad.append((at, last))
            else:
                self._note(batch, at, last)
            at = last + 1
        if at < end:
            self._report.bad.append((at, end - 1))

    def _note(self, batch: BatchView, first: int, last: int) -> None:
        report, size = self._report, self._stripe_entries
        count = last - first + 1
        report.verified_count += count
        self._on_verified(count)
        skip = first - batch.header.first_entry_id
        for offset, digest in enumerate(batch.digests[skip : skip + count]):
            stripe = (first + offset) // size
            told = digest.to_bytes(4, "little")
            report.digests[stripe] = crc32c(told, report.digests.get(stripe, 0))


def _compare(reports: list[ReplicaReport], stripe_entries: int) -> None:
    """Mark the stripes that bookies which should hold the same entries of them disagree about."""
    seen: dict[tuple[int, tuple[Range, ...]], dict[int, list[ReplicaReport]]] = {}
    for report in reports:
        unread = [*report.missing, *report.bad]
        for stripe, digest in report.digests.items():
            bounds = (stripe * stripe_entries, (stripe + 1) * stripe_entries - 1)
            outside = without([bounds], report.expected)
            held = tuple(without([bounds], outside))
            if report.error or without(held, unread) != list(held):
                continue
            seen.setdefault((stripe, held), {}).setdefault(digest, []).append(report)
    for (_, held), by_digest in seen.items():
        if len(by_digest) > 1:
            for several in by_digest.values():
                for report in several:
                    report.differing = merged([*report.differing, *held])
