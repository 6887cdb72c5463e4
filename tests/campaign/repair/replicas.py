"""Check of every ledger of a cluster at the end: it is closed, names no removed bookie, each of its
fragments has all its members, and all members of each write set hold the same entries.

With an ack quorum below the write quorum, a member may lack entries that were acknowledged without
it: repair finds them when it compares the copies of a closed ledger (rule 9.16), perhaps after the
end of the campaign, so they are counted only.

Leaves which entries were acknowledged to `tests.campaign.checker`, which knows the writer's
history; this check also sees the ledgers of contending clients.

Source: protocol rules 3.1, 9.1, 9.4 and 9.7.
"""

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Any, Final

from bookie.wire.batch import BatchView
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.digest import LedgerKeys
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.repair.scrub_store import ScrubStore
from tests.campaign.direct import Direct, open_direct, read_copies, wanted_ranges
from tests.campaign.judge import Range

COMPLAINTS_MAX: Final = 20


@dataclass(slots=True)
class ReplicaReport:
    """Result of the check."""

    ledgers: int = 0
    copies: int = 0
    """Entries read, each at every bookie that must hold it."""
    short: int = 0
    """Entries that a bookie of their write set denies, while another one has them."""
    scrubs: int = 0
    """Bookies that have read all that they store since they were formatted, at least once."""
    complaints: list[str] = field(default_factory=list)

    def complain(self, text: str) -> None:
        """Record a problem."""
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append(text)

    def as_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {name: value for name, value in asdict(self).items() if name != "complaints"}


async def check_replicas(uri: str, removed: Collection[str]) -> ReplicaReport:
    """Check every ledger of a cluster whose bookies all run."""
    report = ReplicaReport()
    async with open_direct(uri) as direct:
        cluster = direct.cluster
        async for ledger_id in cluster.ledgers.list_ledger_ids():
            report.ledgers += 1
            await _check(direct, await direct.metadata(ledger_id), removed, report)
        for bookie_id, record in (await ScrubStore(cluster.store, cluster.rng).get_all()).items():
            report.scrubs += record.ended_ms > 0
            if record.bad and bookie_id not in removed:
                report.complain(f"{bookie_id} has damaged entries: {record.bad[:3]}")
    return report


async def _check(
    direct: Direct, ledger: LedgerMetadata, removed: Collection[str], report: ReplicaReport
) -> None:
    name = f"ledger {ledger.ledger_id}"
    naming = [each for each in removed if ledger.names(BookieId(each))]
    if naming:
        report.complain(f"{name} names removed bookies: {naming}")
    if ledger.state is not LedgerState.CLOSED or ledger.last_entry_id is None:
        report.complain(f"{name} is {ledger.state.value}, and all clients have ended")
        return
    for first, members in _short_fragments(ledger, ledger.last_entry_id):
        report.complain(f"{name}: only {members} are members from entry {first} on")
    keys = LedgerKeys.of(ledger, b"")
    found: dict[int, bytes] = {}
    missing: dict[BookieId, list[Range]] = {}
    for bookie_id, wanted in wanted_ranges(ledger, ledger.last_entry_id).items():
        try:
            held = await read_copies(direct, keys, bookie_id, wanted)
        except BookieCallError as error:
            report.complain(f"{name}: {bookie_id} cannot be asked: {error}")
            continue
        missing[bookie_id] = held.missing
        if held.damaged:
            report.complain(f"{name}: damaged at {bookie_id}: {held.damaged[:3]}")
        for entry_id, digest in _digests(held.valid, wanted):
            report.copies += 1
            if found.setdefault(entry_id, digest) != digest:
                report.complain(f"{name}: entry {entry_id} differs at {bookie_id}")
    for bookie_id, ranges in missing.items():
        denied = [number for a, b in ranges for number in range(a, b + 1)]
        short = [each for each in denied if each in found]
        report.short += len(short)
        if lost := [each for each in denied if each not in found]:
            report.complain(f"{name}: no copy of entries {lost[:3]}, also not at {bookie_id}")
        if short and ledger.quorum.ack_quorum == ledger.quorum.write_quorum:
            report.complain(f"{name}: {bookie_id} lacks entries, {len(short)} from {short[0]} on")


def _short_fragments(
    ledger: LedgerMetadata, last_entry_id: int
) -> Iterator[tuple[int, tuple[BookieId, ...]]]:
    """Yield the first entry and the members of each fragment that has too few of them."""
    for fragment in ledger.fragments:
        is_short = len(fragment.ensemble) < ledger.quorum.ensemble_size
        if is_short and fragment.first_entry_id <= last_entry_id:
            yield fragment.first_entry_id, fragment.ensemble


def _digests(batches: list[BatchView], wanted: list[Range]) -> Iterator[tuple[int, bytes]]:
    """Yield each wanted entry once, with a digest of its bytes."""
    seen = -1
    for batch in batches:
        ends = list(accumulate(batch.lengths, initial=0))
        for entry_id, (begin, end) in enumerate(pairwise(ends), batch.header.first_entry_id):
            if entry_id > seen and any(a <= entry_id <= b for a, b in wanted):
                seen = entry_id
                yield entry_id, sha256(batch.payload[begin:end]).digest()
