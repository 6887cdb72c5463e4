"""Process whose clients append to, read, recover and close the same small ledgers as other such
processes, and record every call for an outside judge.

    python -m tests.campaign.contender --uri zk://... --operations FILE --name c0 --seed N ...

Leaves writing and reading one ledger to `contended_writing` and `contended_reading`, and judging
to `tests.judge`. On SIGTERM it ends what it has begun, and ends. With `--final` it
recovers, reads and looks at every ledger in the file once.

Invariant: ledgers are small, so that the search for an order of their operations is short.
"""

import argparse
import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from ledger_client import LedgerClient, LedgerError, Quorum
from metadata.ledgers.ledger_metadata import LedgerState
from tests.campaign.connecting import connected_client
from tests.campaign.contended_reading import READ_ENTRIES_MAX, Reading
from tests.campaign.contended_writing import Writing
from tests.campaign.orphans import end_with_parent
from tests.campaign.writer import quorum_of
from tests.judge.operations import CreatedLedgers, OperationFile

LEFT_S_MAX: Final = 3.0
"""Time for which a writer leaves its ledger open, so that another client takes it over."""
READS_MAX: Final = 15
READ_GAP_S_MAX: Final = 0.03
READERS: Final = 2
RECENT_LEDGERS: Final = 4
RECOVER_EVERY_S: Final = (0.3, 3.0)
RETRY_S: Final = 0.3
FINAL_TRIES_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of one process."""

    uri: str
    operations: Path
    name: str
    seed: str
    quorum: Quorum


class Contender:
    """Clients of one process."""

    def __init__(self, settings: Settings, client: LedgerClient, stopping: asyncio.Event) -> None:
        self._settings = settings
        self._client = client
        self._stopping = stopping
        self._file = OperationFile(settings.operations, settings.name)
        self._ledgers = CreatedLedgers(settings.operations)
        self._handles = 0

    async def run(self) -> None:
        """Contend until the stop."""
        seed = self._settings.seed
        await asyncio.gather(
            self._write_ledgers(Random(f"{seed}/writer")),
            self._recover_ledgers(Random(f"{seed}/recoverer")),
            *(self._read_ledgers(Random(f"{seed}/reader {number}")) for number in range(READERS)),
        )

    async def finish(self) -> None:
        """Recover every ledger, and read all of it with a new reader."""
        for ledger_id in self._ledgers.catch_up():
            for _ in range(FINAL_TRIES_MAX):
                if await self._recover(ledger_id) and await self._read_all(ledger_id):
                    break
                await asyncio.sleep(RETRY_S)

    def _handle(self) -> str:
        self._handles += 1
        return f"{self._settings.name}/h{self._handles}"

    # -- writing ---------------------------------------------------------------------------------

    async def _write_ledgers(self, rng: Random) -> None:
        while not self._stopping.is_set():
            try:
                ledger = await self._client.create_ledger(self._settings.quorum)
            except LedgerError:
                await asyncio.sleep(RETRY_S)
                continue
            writing = Writing(self._file, ledger, self._handle(), rng)
            self._file.end(self._file.begin("create", ledger.id, writing.handle), "ok")
            await writing.fill(self._stopping)
            if rng.random() < 0.5:
                await asyncio.sleep(rng.uniform(0, LEFT_S_MAX))
                await writing.append_some()
            await writing.close()

    # -- taking over -----------------------------------------------------------------------------

    async def _recover_ledgers(self, rng: Random) -> None:
        while not self._stopping.is_set():
            await asyncio.sleep(rng.uniform(*RECOVER_EVERY_S))
            recent = self._ledgers.catch_up()[-RECENT_LEDGERS:]
            if recent:
                await self._recover(rng.choice(recent))

    async def _recover(self, ledger_id: int) -> bool:
        recovery = self._file.begin("recover", ledger_id, self._handle())
        try:
            info = await self._client.recover_ledger(ledger_id)
        except LedgerError:
            self._file.end(recovery, "unknown")
            return False
        self._file.end(recovery, "ok", last=info.last_entry_id)
        return True

    # -- reading ---------------------------------------------------------------------------------

    async def _read_ledgers(self, rng: Random) -> None:
        while not self._stopping.is_set():
            recent = self._ledgers.catch_up()[-RECENT_LEDGERS:]
            if not recent:
                await asyncio.sleep(RETRY_S)
                continue
            ledger_id = rng.choice(recent)
            await self._look(ledger_id)
            reading = await self._open(ledger_id)
            if reading is None:
                continue
            for _ in range(rng.randrange(1, READS_MAX)):
                await reading.read_some(rng)
                await asyncio.sleep(rng.uniform(0, READ_GAP_S_MAX))
            await reading.reader.aclose()

    async def _look(self, ledger_id: int) -> None:
        look = self._file.begin("look", ledger_id, self._handle())
        try:
            info = await self._client.ledger_info(ledger_id)
        except LedgerError:
            return
        is_closed = info.state is LedgerState.CLOSED
        last = info.last_entry_id if is_closed else -1
        self._file.end(look, "ok", closed=is_closed, last=last)

    async def _open(self, ledger_id: int) -> Reading | None:
        handle = self._handle()
        opening = self._file.begin("lac", ledger_id, handle)
        try:
            reader = await self._client.open_ledger(ledger_id)
        except LedgerError:
            return None
        self._file.end(opening, "ok", last=reader.last_confirmed, closed=reader.is_closed)
        return Reading(self._file, reader, handle)

    async def _read_all(self, ledger_id: int) -> bool:
        """Read a closed ledger; return whether that succeeded."""
        reading = await self._open(ledger_id)
        if reading is None:
            return False
        last = reading.reader.last_confirmed
        firsts = range(0, last + 1, READ_ENTRIES_MAX)
        is_read = [
            await reading.read(first, min(last, first + READ_ENTRIES_MAX - 1)) for first in firsts
        ]
        await reading.expect_absent(last + 1)
        await reading.reader.aclose()
        await self._look(ledger_id)
        return all(is_read)


def main() -> None:
    """Run until SIGTERM, or once over all ledgers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uri", required=True)
    parser.add_argument("--operations", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--ensemble", type=int, default=3)
    parser.add_argument("--write", type=int, default=3)
    parser.add_argument("--ack", type=int, default=2)
    parser.add_argument("--in-sync", type=int)
    parser.add_argument("--final", action="store_true")
    given = parser.parse_args()
    quorum = quorum_of(given)
    settings = Settings(given.uri, given.operations, given.name, given.seed, quorum)
    asyncio.run(_run(settings, is_final=given.final))


async def _run(settings: Settings, *, is_final: bool) -> None:
    end_with_parent()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with connected_client(settings.uri, lambda _: None) as client:
        contender = Contender(settings, client, stopping)
        await (contender.finish() if is_final else contender.run())


if __name__ == "__main__":
    main()
