"""Process that appends at full speed until it is stopped, and records its results.

    python -m tests.campaign.writer --uri zk://... --history FILE --seed N --ensemble 3 ...

Leaves faults in bookies to `faults`, and judging to `checker`. On SIGTERM it closes its ledgers and
ends with status 0. Any other end is an error, unless it was killed.

Invariants: a confirmed append is in the history before the writer continues. The id of an append is
known before the append, so its bytes show where they belong. Ledgers that an earlier process left
open are recovered first.
"""

import argparse
import asyncio
import signal
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from ledger_client import (
    LedgerClient,
    LedgerError,
    LedgerWriter,
    NotEnoughInSyncReplicasError,
    Quorum,
)
from tests.campaign.connecting import connected_client
from tests.campaign.history import HistoryFile, read_history
from tests.campaign.orphans import end_with_parent
from tests.campaign.payloads import Payloads, digest_of_payloads

MANY_ENTRIES_MAX: Final = 5_000
SINGLES_MAX: Final = 48
LEDGER_ENTRIES_MAX: Final = 150_000
DEPTH: Final = 3
"""Number of concurrent calls of one ledger; in in-sync mode one, because a call may be refused when
later calls have already been made."""
LAC_SAMPLE_S: Final = 0.05
MEMBERS_POLL_S: Final = 0.02
MEMBERS_S_MAX: Final = 40.0
"""Longer than an append's deadline: if the writer has failed, the next append reports it."""
RECOVERY_TRIES_MAX: Final = 40
RETRY_S: Final = 0.5
LAG_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of one writer process."""

    uri: str
    history: Path
    seed: int
    run: int
    quorum: Quorum
    parallel: int
    bytes_per_s: float

    @property
    def is_in_sync(self) -> bool:
        """Whether members leave and return, instead of being replaced."""
        return self.quorum.spec.is_in_sync


class CampaignWriter:
    """Writes one ledger after the other, several at a time."""

    def __init__(self, settings: Settings, stopping: asyncio.Event) -> None:
        self._settings = settings
        self._stopping = stopping
        self._payloads = Payloads(settings.seed)
        self._file = HistoryFile(settings.history)
        self._open: dict[int, LedgerWriter] = {}
        self._sent_bytes = 0
        self._started_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Write until the stop."""
        left_open = read_history(self._settings.history).unended
        connecting = connected_client(
            self._settings.uri, self._not_connected, self._file.tell_change
        )
        async with connecting as client:
            for ledger_id in left_open:
                await self._recover(client, ledger_id)
            sampler = asyncio.create_task(self._sample_lacs())
            rngs = [
                Random(f"{self._settings.seed}/{self._settings.run}/{number}")
                for number in range(self._settings.parallel)
            ]
            await asyncio.gather(*[self._write_ledgers(client, rng) for rng in rngs])
            sampler.cancel()

    async def _write_ledgers(self, client: LedgerClient, rng: Random) -> None:
        while not self._stopping.is_set():
            try:
                ledger = await client.create_ledger(self._settings.quorum)
            except LedgerError as error:
                self._tell_failure(None, "create", error)
                await asyncio.sleep(RETRY_S)
                continue
            self._file.tell_created(ledger)
            self._open[ledger.id] = ledger
            try:
                await self._fill(ledger, rng)
                await ledger.aclose()
                last = ledger.last_confirmed
                self._file.tell("ended", ledger=ledger.id, last=last, how="closed")
            except LedgerError as error:
                self._tell_failure(ledger.id, "append", error)
                if rng.random() < 0.5:
                    await self._abort(ledger)
                await self._recover(client, ledger.id)
            finally:
                self._open.pop(ledger.id, None)

    async def _fill(self, ledger: LedgerWriter, rng: Random) -> None:
        wanted = rng.randrange(1, LEDGER_ENTRIES_MAX)
        given = 0
        depth = 0 if self._settings.is_in_sync else DEPTH
        under_way: deque[asyncio.Task[None]] = deque()
        try:
            while given < wanted and not self._stopping.is_set():
                await self._enough_members(ledger)
                if rng.random() < 0.5:
                    count = rng.randrange(1, MANY_ENTRIES_MAX)
                    under_way.append(asyncio.create_task(self._many(ledger, given, count)))
                    given += count
                else:
                    for _ in range(rng.randrange(1, SINGLES_MAX)):
                        under_way.append(asyncio.create_task(self._single(ledger, given)))
                        given += 1
                await asyncio.sleep(0)  # each call has now been made, in this order
                try:
                    while len(under_way) > depth:
                        await under_way.popleft()
                except NotEnoughInSyncReplicasError as error:
                    self._tell_failure(ledger.id, "append", error)
                    await asyncio.gather(*under_way, return_exceptions=True)
                    under_way.clear()
                    given = ledger.last_pushed + 1
                await self._pace()
            while under_way:
                await under_way.popleft()
        finally:
            # The rest is confirmed or fails by itself, and confirmed entries are recorded.
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _enough_members(self, ledger: LedgerWriter) -> None:
        """Wait while appends would be refused; if one of many is refused, its ledger ends."""
        if not self._settings.is_in_sync:
            return
        polls = 0
        while len(ledger.in_sync) < self._settings.quorum.min_in_sync:
            polls += 1
            if self._stopping.is_set() or polls > MEMBERS_S_MAX / MEMBERS_POLL_S:
                return
            await asyncio.sleep(MEMBERS_POLL_S)

    async def _many(self, ledger: LedgerWriter, first: int, count: int) -> None:
        payloads = self._payloads.make_range(ledger.id, first, first + count - 1)
        self._sent_bytes += sum(map(len, payloads))
        try:
            ids = await ledger.append_many(payloads)
        except LedgerError as error:
            if error.confirmed_count:
                confirmed = payloads[: error.confirmed_count]
                self._tell_acked(ledger, first, error.first_entry_id, confirmed)
            raise
        self._tell_acked(ledger, first, ids.start, payloads)
        if len(ids) != count:
            self._file.tell("complaint", text=f"{count} entries were given {len(ids)} ids")

    async def _single(self, ledger: LedgerWriter, number: int) -> None:
        payload = self._payloads.make(ledger.id, number)
        self._sent_bytes += len(payload)
        entry_id = await ledger.append(payload)
        self._tell_acked(ledger, number, entry_id, [payload])

    def _tell_acked(
        self, ledger: LedgerWriter, expected: int, first: int, payloads: list[bytes]
    ) -> None:
        last = first + len(payloads) - 1
        digest = digest_of_payloads(payloads)
        self._file.tell("acked", ledger=ledger.id, first=first, last=last, digest=digest)
        if first != expected:
            text = f"ledger {ledger.id}: call order gives id {expected}, and it was {first}"
            self._file.tell("complaint", text=text)
        if last > ledger.last_confirmed:
            text = f"ledger {ledger.id}: {last} was confirmed, the LAC is {ledger.last_confirmed}"
            self._file.tell("complaint", text=text)

    async def _abort(self, ledger: LedgerWriter) -> None:
        """Close a failed ledger as its writer, before another process recovers it."""
        try:
            await ledger.abort()
        except LedgerError as error:
            self._tell_failure(ledger.id, "abort", error)

    async def _recover(self, client: LedgerClient, ledger_id: int) -> None:
        for _ in range(RECOVERY_TRIES_MAX):
            try:
                info = await client.recover_ledger(ledger_id)
            except LedgerError as error:
                self._tell_failure(ledger_id, "recover", error)
                await asyncio.sleep(RETRY_S)
            else:
                self._file.tell("ended", ledger=ledger_id, last=info.last_entry_id, how="recovered")
                return
        self._file.tell("complaint", text=f"ledger {ledger_id} could not be recovered")

    async def _pace(self) -> None:
        now = asyncio.get_running_loop().time()
        due = self._started_at + self._sent_bytes / self._settings.bytes_per_s
        if due > now:
            await asyncio.sleep(due - now)

    async def _sample_lacs(self) -> None:
        shown: dict[int, int] = {}
        while True:
            for ledger_id, ledger in list(self._open.items()):
                lac = ledger.last_confirmed
                if lac != shown.get(ledger_id):
                    shown[ledger_id] = lac
                    self._file.tell("lac", ledger=ledger_id, lac=lac)
            await asyncio.sleep(LAC_SAMPLE_S)

    def _tell_failure(self, ledger_id: int | None, doing: str, error: LedgerError) -> None:
        name, text = type(error).__name__, str(error)
        self._file.tell("failed", ledger=ledger_id, doing=doing, error=name, text=text)

    def _not_connected(self, error: LedgerError) -> None:
        self._tell_failure(None, "connect", error)


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uri", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--run", type=int, default=0)
    parser.add_argument("--ensemble", type=int, default=3)
    parser.add_argument("--write", type=int, default=3)
    parser.add_argument("--ack", type=int, default=2)
    parser.add_argument("--in-sync", type=int)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--megabytes-per-s", type=float, default=6.0)
    given = parser.parse_args()
    settings = Settings(
        uri=given.uri,
        history=given.history,
        seed=given.seed,
        run=given.run,
        quorum=quorum_of(given),
        parallel=given.parallel,
        bytes_per_s=given.megabytes_per_s * 1e6,
    )
    asyncio.run(_run(settings))


def quorum_of(given: argparse.Namespace) -> Quorum:
    """Return the replication that a process's options ask for."""
    if given.in_sync is None:
        return Quorum(given.ensemble, given.write, given.ack)
    return Quorum.in_sync(given.ensemble, given.in_sync, replica_lag_time_max=LAG_S)


async def _run(settings: Settings) -> None:
    end_with_parent()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await CampaignWriter(settings, stopping).run()


if __name__ == "__main__":
    main()
