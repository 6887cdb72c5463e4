"""Process that follows every ledger of a campaign from its first entry to its end.

    python -m tests.campaign.tailer --uri zk://... --history FILE --seed N --report FILE

Leaves writing to `writer`, and judging the counts to `judge`. After SIGTERM it continues until
every ledger that it follows is closed and read, writes its report, and ends.

Invariants checked here, for each reader: ids without gaps from 0; the expected bytes for each id;
no entry after the LAC; the LAC never goes back (protocol rules 8.1, 8.4, 8.5).
"""

import argparse
import asyncio
import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ledger_client import EntryBatch, LedgerClient, LedgerError, LedgerReader
from tests.campaign.connecting import connected_client
from tests.campaign.history import HistoryFollower
from tests.campaign.orphans import end_with_parent
from tests.campaign.payloads import Payloads

DISCOVERY_S: Final = 0.2
RETRY_S: Final = 0.2
COMPLAINTS_MAX: Final = 20


@dataclass(slots=True)
class TailReport:
    """Results of the tailing readers."""

    entries: dict[int, int] = field(default_factory=dict)
    """Ledger -> number of entries received until its end; no key if the end was not received."""
    errors: dict[str, int] = field(default_factory=dict)
    """Count of typed errors by name, after which the reader was opened again at its position."""
    complaints: list[str] = field(default_factory=list)

    def complain(self, text: str) -> None:
        """Record a broken guarantee."""
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append(text)


class CampaignTailer:
    """Follows ledgers as they are created."""

    def __init__(self, uri: str, history: Path, seed: int) -> None:
        self.report = TailReport()
        self._uri = uri
        self._follower = HistoryFollower(history)
        self._payloads = Payloads(seed)
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self, stopping: asyncio.Event) -> None:
        """Follow until a stop is requested, then to the end of each ledger."""
        async with connected_client(self._uri, lambda _: None) as client:
            while True:
                is_last = stopping.is_set()
                for ledger_id in self._follower.catch_up().ledgers:
                    if ledger_id not in self._tasks:
                        self._tasks[ledger_id] = asyncio.create_task(
                            self._follow(client, ledger_id)
                        )
                if is_last:
                    break
                await asyncio.sleep(DISCOVERY_S)
            await asyncio.gather(*self._tasks.values())

    async def _follow(self, client: LedgerClient, ledger_id: int) -> None:
        position = 0
        while True:
            try:
                async with client.open_ledger(ledger_id) as reader:
                    lac = -1
                    async for batch in reader.tail(position):
                        lac = self._check_lac(reader, lac, batch)
                        self._check_bytes(ledger_id, position, batch)
                        position = batch.last_entry_id + 1
                    self.report.entries[ledger_id] = position
                    return
            except LedgerError as error:
                name = type(error).__name__
                self.report.errors[name] = self.report.errors.get(name, 0) + 1
                await asyncio.sleep(RETRY_S)

    def _check_lac(self, reader: LedgerReader, before: int, batch: EntryBatch) -> int:
        lac = reader.last_confirmed
        if lac < before:
            self.report.complain(f"ledger {reader.id}: the LAC went from {before} to {lac}")
        if batch.last_entry_id > lac:
            last = batch.last_entry_id
            self.report.complain(f"ledger {reader.id}: {last} was shown, and the LAC is {lac}")
        return lac

    def _check_bytes(self, ledger_id: int, position: int, batch: EntryBatch) -> None:
        if batch.first_entry_id != position:
            first = batch.first_entry_id
            self.report.complain(f"ledger {ledger_id}: {first} where {position} was to come")
        for entry in batch:
            if entry.data != self._payloads.make(ledger_id, entry.id):
                self.report.complain(f"ledger {ledger_id}: entry {entry.id} has other bytes")


def main() -> None:
    """Run until SIGTERM and the end of each ledger."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uri", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--report", type=Path, required=True)
    given = parser.parse_args()
    report = asyncio.run(_run(given.uri, given.history, given.seed))
    content = {
        "entries": report.entries,
        "errors": report.errors,
        "complaints": report.complaints,
    }
    given.report.write_text(json.dumps(content))


async def _run(uri: str, history: Path, seed: int) -> TailReport:
    end_with_parent()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    tailer = CampaignTailer(uri, history, seed)
    await tailer.run(stopping)
    return tailer.report


def read_report(path: Path) -> TailReport:
    """Read the report that a tailer wrote at its end."""
    content = json.loads(path.read_text())
    entries = {int(ledger_id): int(count) for ledger_id, count in content["entries"].items()}
    return TailReport(entries, content["errors"], content["complaints"])


if __name__ == "__main__":
    main()
