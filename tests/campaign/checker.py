"""Process that reads all data of a campaign twice, and compares it with the acknowledgements.

    python -m tests.campaign.checker --uri zk://... --history FILE --seed N [--tails FILE]

It reads once through a new client, and once directly from every bookie of every fragment's write
sets. Prints one JSON object. The exit status is 1 if any guarantee was broken. Leaves the
guarantees to `judge`.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

from bookie.wire.batch import BatchView
from ledger_client import LedgerClient, LedgerError
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.digest import LedgerKeys
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.campaign.direct import Direct, open_direct, read_copies, wanted_ranges
from tests.campaign.history import History, LedgerHistory, read_history
from tests.campaign.judge import Copies, Evidence, Range, Violation, judge
from tests.campaign.payloads import Payloads, digest_of
from tests.campaign.tailer import read_report

EXIT_FOUND: Final = 1
VIOLATIONS_SHOWN_MAX: Final = 50


@dataclass(slots=True)
class LedgerBytes:
    """Entries of one ledger that a new client read, from entry 0 on."""

    data: bytearray = field(default_factory=bytearray)
    offsets: list[int] = field(default_factory=lambda: [0])
    foreign: list[int] = field(default_factory=list)
    error: str = ""

    @property
    def count(self) -> int:
        """Number of entries read."""
        return len(self.offsets) - 1

    def of(self, first: int, last: int) -> tuple[list[int], memoryview]:
        """Return the lengths and the concatenated bytes of entries that were read."""
        offsets = self.offsets[first : last + 2]
        lengths = [b - a for a, b in pairwise(offsets)]
        return lengths, memoryview(self.data)[offsets[0] : offsets[-1]]


@dataclass(slots=True)
class CheckReport:
    """Result of checking a campaign's guarantees."""

    violations: list[Violation] = field(default_factory=list)
    acked_entries: int = 0
    read_entries: int = 0
    read_bytes: int = 0
    copies_read: int = 0
    copies_missing: int = 0
    """Entries that a member of their write set lacks: allowed down to the ack quorum."""
    fragments: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the report as the JSON object that is printed."""
        kinds: Counter[str] = Counter()
        for violation in self.violations:
            kinds[violation.kind] += violation.count
        shown = [asdict(violation) for violation in self.violations[:VIOLATIONS_SHOWN_MAX]]
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "violations"}
        return counts | {"broken": dict(kinds), "violations": shown}


class Checker:
    """Checks one ledger after the other.

    `make` returns the expected contents of each entry, None if there is none. Bookies in `gone`
    need not hold copies, and no others must hold these copies instead.
    """

    def __init__(
        self,
        client: LedgerClient,
        direct: Direct,
        make: Callable[[int, int], bytes | None],
        gone: Collection[str] = (),
    ) -> None:
        self.report = CheckReport()
        self._client = client
        self._direct = direct
        self._make = make
        self._gone = gone

    async def check(self, history: LedgerHistory, tailed: int | None) -> None:
        """Gather the evidence of one ledger, and judge it."""
        metadata = await self._direct.metadata(history.ledger_id)
        if metadata.state is not LedgerState.CLOSED:
            await self._client.recover_ledger(history.ledger_id)
            metadata = await self._direct.metadata(history.ledger_id)
        found = await self._read(metadata)
        copies = await self._copies(metadata, found)
        members = {bookie: None for part in metadata.fragments for bookie in part.ensemble}
        gone_count = sum(member in self._gone for member in members)
        digests = {
            (acked_range.first, acked_range.last): digest_of(
                *found.of(acked_range.first, acked_range.last)
            )
            for acked_range in history.acked
            if acked_range.last < found.count
        }
        evidence = Evidence(
            state=metadata.state.value,
            last_entry_id=metadata.last_entry_id,
            length=metadata.length,
            fragment_firsts=tuple(fragment.first_entry_id for fragment in metadata.fragments),
            ack_quorum=metadata.quorum.ack_quorum - gone_count,
            read_digests=digests,
            read_bytes=len(found.data),
            foreign=tuple(found.foreign),
            copies=tuple(copies),
            copies_wanted=self._copies_wanted(metadata),
            tailed=tailed,
        )
        violations = judge(history, evidence)
        if found.error:
            text = f"reading stopped at entry {found.count}: {found.error}"
            violations.append(Violation("unreadable", history.ledger_id, 1, text))
        self.report.violations += violations
        self.report.fragments += len(metadata.fragments)

    def _copies_wanted(self, metadata: LedgerMetadata) -> tuple[int, ...]:
        """Return how many copies are expected; in in-sync mode, every member of a fragment (rule
        11.1).
        """
        if not metadata.quorum.is_in_sync:
            return ()
        parts = [part.ensemble for part in metadata.fragments]
        return tuple(sum(member not in self._gone for member in members) for members in parts)

    async def _read(self, metadata: LedgerMetadata) -> LedgerBytes:
        found = LedgerBytes()
        ledger_id, make = metadata.ledger_id, self._make
        try:
            async with self._client.open_ledger(ledger_id) as reader:
                if reader.last_confirmed < 0:
                    return found
                async for batch in reader.read():
                    if batch.first_entry_id != found.count:
                        found.error = f"{batch.first_entry_id} came where {found.count} was to"
                        break
                    for entry in batch:
                        if entry.data != make(ledger_id, entry.id):
                            found.foreign.append(entry.id)
                    payload, offsets = batch.buffers()
                    start = len(found.data)
                    found.data += payload
                    found.offsets += [start + offset for offset in offsets[1:]]
        except LedgerError as error:
            found.error = str(error)
        self.report.read_entries += found.count
        self.report.read_bytes += len(found.data)
        return found

    async def _copies(self, metadata: LedgerMetadata, found: LedgerBytes) -> list[Copies]:
        assert metadata.last_entry_id is not None, "it is closed"
        keys = LedgerKeys.of(metadata, b"")
        wanted = wanted_ranges(metadata, metadata.last_entry_id)
        return [
            await self._copies_at(keys, bookie_id, ranges, found)
            for bookie_id, ranges in wanted.items()
            if bookie_id not in self._gone
        ]

    async def _copies_at(
        self, keys: LedgerKeys, bookie_id: BookieId, wanted: list[Range], found: LedgerBytes
    ) -> Copies:
        try:
            held = await read_copies(self._direct, keys, bookie_id, wanted)
        except BookieCallError as error:
            ledger_id, text = keys.ledger_id, f"{bookie_id} cannot be asked: {error}"
            self.report.violations.append(Violation("no answer", ledger_id, 1, text))
            return Copies(bookie_id, ())
        self.report.copies_missing += sum(b - a + 1 for a, b in held.missing)
        valid: list[Range] = []
        differing: list[Range] = []
        for batch in held.valid:
            first, last = batch.header.first_entry_id, batch.header.last_entry_id
            self.report.copies_read += batch.header.count
            (valid if _is_same(batch, found) else differing).append((first, last))
        return Copies(
            bookie_id,
            tuple(_clip(valid, wanted)),
            tuple(differing),
            tuple(held.damaged),
            tuple(held.missing),
        )


def _is_same(batch: BatchView, found: LedgerBytes) -> bool:
    """Return whether a copy equals what the client read; entries after the end are not compared."""
    first, last = batch.header.first_entry_id, min(batch.header.last_entry_id, found.count - 1)
    if first > last:
        return True
    lengths, data = found.of(first, last)
    count = last - first + 1
    held = batch.lengths[:count]
    end = list(accumulate(held, initial=0))[-1]
    return list(held) == lengths and batch.payload[:end] == data


def _clip(valid: list[Range], wanted: list[Range]) -> list[Range]:
    """Return the parts of batches to compare: each entry once, within the expected ranges."""
    clipped: list[Range] = []
    end = -1
    for first, last in sorted(valid):
        for low, high in wanted:
            a, b = max(first, low, end + 1), min(last, high)
            if a <= b:
                clipped.append((a, b))
                end = b
    return clipped


async def check_campaign(
    uri: str, history: History, seed: int, tails: dict[int, int] | None, say: Callable[[str], None]
) -> CheckReport:
    """Check every ledger of a campaign whose faults are over and whose bookies all run."""
    async with LedgerClient(uri) as client, open_direct(uri) as direct:
        checker = Checker(client, direct, Payloads(seed).make)
        checker.report.acked_entries = history.acked_count
        for number, ledger in enumerate(history.ledgers.values(), 1):
            tailed = None if tails is None else tails.get(ledger.ledger_id, 0)
            await checker.check(ledger, tailed)
            say(f"checked {number} of {len(history.ledgers)} ledgers")
        return checker.report


def main() -> int:
    """Check, and print the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uri", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--tails", type=Path)
    given = parser.parse_args()
    history = read_history(given.history)
    tails = read_report(given.tails).entries if given.tails else None

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")

    report = asyncio.run(check_campaign(given.uri, history, given.seed, tails, say))
    sys.stdout.write(json.dumps(report.as_json()) + "\n")
    return EXIT_FOUND if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
