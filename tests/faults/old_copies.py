"""Campaign: bookies are started on copies of a busy bookie's disk, made at random times.

Leaves the disk and the clock to the simulation; identity, position and storage are the real ones.

One history is one bookie that adds, fences, checkpoints, rolls segments, is killed, loses power or
stops, while the metadata service is sometimes not available. Copies of its disk are made at any
moment, block by block (the files keep their identities) or file by file. Then the bookie dies, and
each copy is started in its place, with the metadata that the bookie left.

Guarantee: a start refuses, is in limbo, or returns every entry that was acknowledged before the
last recorded position. No start denies such an entry, or accepts an ordinary add to a ledger that
was fenced before it. An entry acknowledged after the last record that is missing is counted, and is
no broken guarantee (rule 2.6).
"""

import asyncio
import copy
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from bookie.config import KIB, StorageConfig
from bookie.errors import BookieError, PositionTakenError
from bookie.identity.identity import format_directories, prove_identity
from bookie.identity.position import PositionCallbacks, PositionClaim, PositionKeeper
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.opening import KnownDisk
from bookie.wire.messages import Status
from metadata.errors import MetadataError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.registry.cluster import ensure_cluster
from metadata.registry.positions import PositionStore
from metadata.store.ephemeral import INCARNATION_BYTES
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.server.server_log import ServerLog
from tests.faults.budget import Budget, Summary
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.batches import make_run

STARTS_SMALL: Final = 60
STARTS_FULL: Final = 10_000
COPIES: Final = 8
"""Number of copies of one history."""
STEPS: Final = (40, 160)
LEDGERS: Final = 4
KEY: Final = b"k" * 32
INTERVALS_S: Final = (0.02, 0.1, 0.5)
CONFIG: Final = StorageConfig(
    segment_bytes_max=6 * KIB,
    checkpoint_log_bytes=24 * KIB,
    reserve_bytes_min=KIB,
    reserve_share=0.0,
    recent_bytes_max=KIB,
)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One promise: an entry, or a fence if `entry_id` is negative."""

    lsn: int
    """End of the durable log when the promise was made."""
    ledger_id: int
    entry_id: int


@dataclass(slots=True)
class Copy:
    """Copy of a disk, and the way it was made."""

    platter: Platter
    kind: str


class History:
    """One busy bookie, from its formatting to its death."""

    def __init__(self, rng: Random) -> None:
        self.server = MemoryMetadataServer()
        self.platter = Platter()
        self.copies: list[Copy] = []
        self.promises: list[Acknowledged] = []
        self._rng = rng
        self._store = MemoryMetadataStore(self.server)
        self._bookie_id = BookieId("")
        self._next_entry = dict.fromkeys(range(1, LEDGERS + 1), 0)
        self._fenced: dict[int, None] = {}
        self._interval_s = rng.choice(INTERVALS_S)

    async def live(self) -> None:
        """Format, run several processes, and make copies."""
        disk = self._disk()
        self._bookie_id = await format_directories(
            disk,
            self._store,
            "bookie",
            self._rng,
            lambda: 5,
            partial(ensure_cluster, rng=self._rng),
        )
        loop = simulation_loop()
        for _ in range(self._rng.randint(1, 3)):
            self._store.resume()
            ready: asyncio.Future[None] = loop.create_future()
            node, task = loop.spawn(self._process(ready))
            await ready
            if self._rng.random() < 0.25:
                await task
            else:
                await asyncio.wait({task}, timeout=self._rng.random() * 4.0)
                if self._rng.random() < 0.5:  # so late that the last records may be missing
                    self._keep_copy()
                    await asyncio.wait({task}, timeout=self._rng.random() * self._interval_s)
                loop.kill(node)
                self.platter.crash(self._rng)
            self.platter.locked = False

    async def recorded_end(self) -> int:
        """Return the position that the bookie recorded last."""
        self._store.resume()
        record = (await PositionStore(self._store).get(self._bookie_id)).record
        assert record is not None
        return record.end_lsn

    def _disk(self) -> CrashableDisk:
        faults = DiskFaults(delay_s_max=0.003)
        return CrashableDisk(self.platter, self._rng, faults)

    async def _process(self, ready: "asyncio.Future[None]") -> None:
        disk = self._disk()
        await disk.lock()
        identity = await prove_identity(disk, self._store)
        assert not identity.limbo_reason, "the original was taken for a copy"
        known = KnownDisk("", identity.recorded_end_lsn)
        storage = await BookieStorage.open(disk, CONFIG, rng=self._rng, known=known)
        assert not storage.limbo_reason, storage.limbo_reason
        keeper = PositionKeeper(
            self._store,
            PositionClaim(
                identity.bookie_id, self._rng.randbytes(INCARNATION_BYTES), identity.files, "lock"
            ),
            identity.position,
            storage.log,
            interval_s=self._interval_s,
            rng=self._rng,
            log=ServerLog(simulation_loop().time),
            callbacks=PositionCallbacks(_unexpected, lambda _: None, _moved),
        )
        await keeper.claim()
        tasks = [asyncio.ensure_future(storage.background()), asyncio.ensure_future(keeper.run())]
        ready.set_result(None)
        for _ in range(self._rng.randint(*STEPS)):
            await self._step(storage)
        self._store.resume()
        await storage.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await keeper.record_orderly(stopped_ms=1_700_000_000_000)

    async def _step(self, storage: BookieStorage) -> None:
        rng = self._rng
        draw = rng.random()
        if draw < 0.6:
            self._add(storage, rng.randint(1, LEDGERS))
        elif draw < 0.63:
            await self._fence(storage)
        elif draw < 0.66:
            await storage.checkpoint()
        elif draw < 0.70:
            self._store.suspend()
        elif draw < 0.76:
            self._store.resume()
        elif draw < 0.84:
            self._keep_copy()
        await asyncio.sleep(rng.choice((0.0, 0.001, 0.01, 0.1)) * rng.random())

    def _keep_copy(self) -> None:
        label = f"copy {len(self.copies)}" if self._rng.random() < 0.4 else ""
        kind = "file by file" if label else "block by block"
        self.copies.append(Copy(self.platter.copied(label), kind))

    def _add(self, storage: BookieStorage, ledger_id: int) -> None:
        if ledger_id in self._fenced:
            return
        first, count = self._next_entry[ledger_id], self._rng.randint(1, 5)
        self._next_entry[ledger_id] = first + count

        def note(status: Status) -> None:
            if status is Status.OK:
                lsn = storage.log.durable_lsn
                for entry_id in range(first, first + count):
                    self.promises.append(Acknowledged(lsn, ledger_id, entry_id))

        batch = make_run(ledger_id, first, count, size=self._rng.choice((20, 200)))
        storage.add(batch, recovery=False, master_key=KEY, done=note)

    async def _fence(self, storage: BookieStorage) -> None:
        ledger_id = self._rng.randint(1, LEDGERS)
        self._fenced[ledger_id] = None
        if (await storage.fence(LedgerId(ledger_id), KEY)).status is Status.OK:
            self.promises.append(Acknowledged(storage.log.durable_lsn, ledger_id, -1))


class OldCopies:
    """One campaign that runs."""

    def __init__(self, budget: Budget) -> None:
        wanted = budget.cycles(small=STARTS_SMALL, full=STARTS_FULL)
        self.summary = Summary("old_copies", budget, wanted)

    def run(self) -> Summary:
        """Run all starts."""
        number = 0
        while self.summary.is_wanting():
            seed = f"old copies {self.summary.budget.seed} {number}"
            run_simulation(lambda seed=seed: self._history(seed), number)  # type: ignore[misc]
            number += 1
        self.summary.counts["histories"] = number
        return self.summary

    async def _history(self, seed: str) -> None:
        rng = Random(seed)
        history = History(rng)
        await history.live()
        end_lsn = await history.recorded_end()
        copies = rng.sample(history.copies, min(COPIES, len(history.copies)))
        copies.append(Copy(history.platter, "the disk itself"))
        for each in copies:
            if self.summary.is_wanting():
                await self._start(history, each, end_lsn, rng, seed)

    async def _start(
        self, history: History, made: Copy, end_lsn: int, rng: Random, seed: str
    ) -> None:
        """Start one copy with separate metadata, and check every promise."""
        self.summary.cycles += 1
        server = MemoryMetadataServer()
        server.tree = copy.deepcopy(history.server.tree)
        store = MemoryMetadataStore(server)
        made.platter.crash(rng)
        disk = CrashableDisk(made.platter, rng, DiskFaults(delay_s_max=0.0))
        counts, kind = self.summary.counts, made.kind
        try:
            await disk.lock()
            identity = await prove_identity(disk, store)
            known = KnownDisk(identity.limbo_reason, identity.recorded_end_lsn)
            storage = await BookieStorage.open(disk, CONFIG, rng=rng, known=known)
        except (BookieError, MetadataError) as error:
            counts[f"{kind}: refused, {type(error).__name__}"] += 1
            return
        is_limbo = storage.statistics().is_limbo
        counts[f"{kind}: {'limbo' if is_limbo else 'serves'}"] += 1
        if kind == "the disk itself" and is_limbo:
            self._violate(seed, kind, f"the original is in limbo: {storage.limbo_reason}")
        lost = 0
        for promise in history.promises:
            is_kept = await _keeps(storage, promise)
            counts["promises asked for"] += 1
            if is_kept:
                continue
            lost += 1
            if promise.lsn <= end_lsn or kind == "the disk itself":
                self._violate(seed, kind, f"denied {promise}, recorded up to {end_lsn}")
        counts[f"{kind}: denied after the last record"] += bool(lost)
        await storage.close()
        await store.aclose()

    def _violate(self, seed: str, kind: str, text: str) -> None:
        self.summary.violations.append(f"{seed}, {kind}: {text}")


async def _keeps(storage: BookieStorage, promise: Acknowledged) -> bool:
    """Return whether an entry is returned or UNKNOWN, or a fence is kept."""
    ledger_id = LedgerId(promise.ledger_id)
    if promise.entry_id < 0:
        statuses: list[Status] = []
        batch = make_run(ledger_id, 10_000, 1)
        storage.add(batch, recovery=False, master_key=KEY, done=statuses.append)
        await storage.log.barrier()
        return statuses != [Status.OK]
    entry_id = EntryId(promise.entry_id)
    found = await storage.reads.read(ledger_id, entry_id, entry_id, 4096, KEY, after_fence=False)
    return found.status in (Status.OK, Status.UNKNOWN)


def _unexpected(error: PositionTakenError) -> None:
    raise AssertionError(f"no other process records here: {error}")


async def _moved() -> bool:
    raise AssertionError("the node is older than before")


def run(budget: Budget) -> Summary:
    """Run the campaign."""
    return OldCopies(budget).run()
