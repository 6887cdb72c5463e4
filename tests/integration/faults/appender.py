"""Process that writes one ledger and records each confirmed append, until it ends or is stopped.

    python -m tests.integration.faults.appender --uri zk://... --history FILE --seed N --ack 2

On SIGTERM it closes its ledger. A typed error is recorded and also ends it with status 0: the test
decides whether it was allowed. Leaves the history's format to `tests.campaign.history`.
"""

import argparse
import asyncio
import signal
from collections import deque
from pathlib import Path
from typing import Final

from ledger_client import ClientConfig, LedgerClient, LedgerError, LedgerWriter, Quorum
from tests.campaign.history import HistoryFile
from tests.campaign.orphans import end_with_parent
from tests.campaign.payloads import Payloads, digest_of_payloads

DEPTH: Final = 4
BATCH_ENTRIES: Final = 25
UNDER_WAY_ENTRIES_MAX: Final = (DEPTH + 1) * BATCH_ENTRIES
PAUSE_S: Final = 0.06
"""After each `DEPTH` batches: 1,600 entries a second are enough to have some under way at any time,
and leave the processor to what is tested."""
CONFIG: Final = ClientConfig(add_timeout_s=30.0, append_deadline_s=60.0)
"""A sync on a busy disk can take more than the default 5 s. A killed bookie shows at once."""


class Appender:
    """Appends to one ledger."""

    def __init__(self, file: HistoryFile, seed: int) -> None:
        self._file = file
        self._payloads = Payloads(seed)

    async def run(self, client: LedgerClient, quorum: Quorum, stopping: asyncio.Event) -> None:
        """Create a ledger and fill it."""
        ledger = await client.create_ledger(quorum)
        self._file.tell_created(ledger)
        try:
            await self._fill(ledger, stopping)
            await ledger.aclose()
            self._file.tell("ended", ledger=ledger.id, last=ledger.last_confirmed, how="closed")
        except LedgerError as error:
            name = type(error).__name__
            self._file.tell("failed", ledger=ledger.id, error=name, text=str(error))

    async def _fill(self, ledger: LedgerWriter, stopping: asyncio.Event) -> None:
        under_way: deque[asyncio.Task[None]] = deque()
        given = 0
        try:
            while not stopping.is_set():
                under_way.append(asyncio.create_task(self._append(ledger, given)))
                given += BATCH_ENTRIES
                is_deep = given // BATCH_ENTRIES % DEPTH == 0
                await asyncio.sleep(PAUSE_S if is_deep else 0)
                while len(under_way) > DEPTH:
                    await under_way.popleft()
            while under_way:
                await under_way.popleft()
        finally:
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _append(self, ledger: LedgerWriter, first: int) -> None:
        payloads = self._payloads.make_range(ledger.id, first, first + BATCH_ENTRIES - 1)
        try:
            await ledger.append_many(payloads)
        except LedgerError as error:
            if error.confirmed_count:
                self._tell(ledger, first, payloads[: error.confirmed_count])
            raise
        self._tell(ledger, first, payloads)

    def _tell(self, ledger: LedgerWriter, first: int, payloads: list[bytes]) -> None:
        last, digest = first + len(payloads) - 1, digest_of_payloads(payloads)
        self._file.tell("acked", ledger=ledger.id, first=first, last=last, digest=digest)
        self._file.tell("lac", ledger=ledger.id, lac=ledger.last_confirmed)


async def _run(given: argparse.Namespace) -> None:
    end_with_parent()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    quorum = Quorum(given.ensemble, given.write, given.ack)
    file = HistoryFile(given.history)
    async with LedgerClient(given.uri, config=CONFIG, on_event=file.tell_loss) as client:
        await Appender(file, given.seed).run(client, quorum, stopping)


def main() -> None:
    """Run until SIGTERM, or until the ledger ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uri", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--ensemble", type=int, default=3)
    parser.add_argument("--write", type=int, default=3)
    parser.add_argument("--ack", type=int, default=2)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
