"""Faults that only repair heals: bookies that are wiped, lost for good, or drained and removed, and
kills of the processes of repair.

Leaves faults that end by themselves to `tests.campaign.faults`, which has them at the same time.

Invariants: one bookie is lost or drained at a time, and the next one only after nothing is left to
repair, and the last one is removed; then every bookie scrubs once. Every kind occurs once before
any occurs again. The number of bookies is the same before each loss.
"""

import asyncio
import os
import shutil
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from metadata.repair.lifecycle import Lifecycle
from quire.errors import ExitCode, LocalClusterError
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from tests.campaign.availability import FaultTime
from tests.campaign.faults import FaultInjector, Targets
from tests.campaign.repair.commands import Commands, left_of
from tests.campaign.repair.restoration import Left, Restoration

GAP_S: Final = (1.0, 5.0)
KILL_REPAIR_S: Final = (8.0, 25.0)
"""Time between two kills of processes of repair."""
KILL_ALL: Final = 0.25
"""Share of these kills that hit all of them."""
POLL_S: Final = 1.0
ENDED_S_MAX: Final = 30.0
"""Maximum time until the process of a removed bookie ends."""
KINDS: Final = ("wiped", "drained", "lost for good")


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss or drain that was repaired, and the most that was seen to be left meanwhile."""

    kind: str
    bookie_id: str
    restored_s: float
    """Time from the loss until the bookie was removed."""
    ledgers: int
    bytes_left: int


class Losses:
    """Injects the faults of one campaign."""

    def __init__(
        self,
        cluster: LocalCluster,
        bookies: list[LocalBookie],
        injector: FaultInjector,
        rng: Random,
        targets: Targets,
    ) -> None:
        """`bookies` are those that the injector hits."""
        self.log = injector.log
        self.removed: list[str] = []
        self._cluster = cluster
        self._bookies = bookies
        self._injector = injector
        self._commands = Commands(cluster.metadata_uri)
        self._rng = rng
        self._targets = targets
        self._losses: list[Loss] = []
        self._kinds: list[str] = []

    def as_json(self) -> list[dict[str, Any]]:
        """Return every loss that was repaired."""
        return [asdict(loss) for loss in self._losses]

    async def run(self) -> None:
        """Inject faults until the log's `stop`; return once the last loss is repaired."""
        await asyncio.gather(self._injector.run(), self._lose_bookies(), self._kill_repair())

    async def settle(self) -> None:
        """Wait until every fault that ends by itself has ended."""
        await self._injector.settle()

    async def restored(self, bookie_id: str, wanted: Lifecycle) -> tuple[Left | None, str]:
        """Wait until nothing is left to repair and the bookie is in a state; return the most that
        was left, and a complaint, or an empty text.
        """
        loop = asyncio.get_running_loop()
        restoration = Restoration(loop.time())
        while True:
            await asyncio.sleep(POLL_S)
            summary = await self._commands.summary()
            left = summary and left_of(summary, bookie_id, wanted)
            now_s = loop.time()
            why = restoration.see(left, now_s) if left else restoration.late(now_s)
            if why:
                says = summary.sentence if summary else "the metadata service does not answer"
                return None, f"{why}; {says}"
            if left and left.is_nothing:
                return restoration.most, ""
            if left and left.blocked:
                await self._end_abandoned()

    # -- losses ----------------------------------------------------------------------------------

    async def _lose_bookies(self) -> None:
        while not await self.log.stops_within(self._rng.uniform(*GAP_S)):
            if not self._kinds:
                self._kinds = self._rng.sample(KINDS, len(KINDS))
            kind, bookie = self._kinds.pop(), self._choose()
            self.log.counts[kind] += 1
            bookie_id, began, began_s = bookie.id, time.time(), asyncio.get_running_loop().time()
            try:
                most, why = await self._lose(kind, bookie)
            except LocalClusterError as error:
                most, why = None, str(error)
            self.log.times.append(FaultTime(bookie_id, began, time.time()))
            if most is None:  # another loss might be one too many
                self.log.complaints.append(f"{bookie_id} was {kind}: {why}")
                return
            taken_s = round(asyncio.get_running_loop().time() - began_s, 1)
            loss = Loss(kind, bookie_id, taken_s, most.ledgers, most.bytes_left)
            self._losses.append(loss)
            await self._commands.quire("repair", "scrub", "--now")

    def _choose(self) -> LocalBookie:
        members = self._targets.aim(self._rng)
        aimed = [bookie for bookie in self._bookies if bookie.id in members]
        return self._rng.choice(aimed or self._bookies)

    async def _lose(self, kind: str, bookie: LocalBookie) -> tuple[Left | None, str]:
        match kind:
            case "wiped":
                return await self._wipe(bookie)
            case "drained":
                return await self._drain(bookie)
            case _:
                return await self._end_for_good(bookie)

    async def _wipe(self, bookie: LocalBookie) -> tuple[Left | None, str]:
        """Kill a bookie, and start one without data in its place: it has another id."""
        before = bookie.id
        await self._withdraw(bookie)
        self._remove_data(bookie)
        await bookie.restart()
        if bookie.id == before:
            return None, "a bookie without data has its id"
        self._bookies.append(bookie)
        return await self._restore_lost(before)

    async def _end_for_good(self, bookie: LocalBookie) -> tuple[Left | None, str]:
        """Kill a bookie, and add another one when all copies are restored."""
        await self._withdraw(bookie)
        self._remove_data(bookie)
        result = await self._restore_lost(bookie.id)
        self._bookies.append(await self._cluster.add_bookie())
        return result

    async def _drain(self, bookie: LocalBookie) -> tuple[Left | None, str]:
        """Drain a bookie that may have other faults meanwhile, remove it, and add another one."""
        answer = await self._commands.quire("bookie", "drain", bookie.id)
        if answer.status != ExitCode.DONE:
            return None, f"the drain was refused: {answer.error}"
        most, why = await self.restored(bookie.id, Lifecycle.DRAINED)
        await self._withdraw(bookie)
        if most is not None:
            why = await self._remove(bookie.id)
        if most is None or why:
            return None, why
        if not await self._has_ended(bookie):
            return None, f"its process did not end within {ENDED_S_MAX:.0f} s after its removal"
        try:
            await bookie.start()
        except LocalClusterError:
            self._bookies.append(await self._cluster.add_bookie())
            return most, ""
        return None, "it started again although it is removed"

    async def _restore_lost(self, bookie_id: str) -> tuple[Left | None, str]:
        """Wait until all copies of a lost bookie are restored, and remove it."""
        most, why = await self.restored(bookie_id, Lifecycle.LOST)
        if most is not None:
            why = await self._remove(bookie_id)
        return (None, why) if why else (most, "")

    async def _remove(self, bookie_id: str) -> str:
        """Remove a bookie; return a complaint, or an empty text."""
        restoration = Restoration(asyncio.get_running_loop().time())
        while True:
            answer = await self._commands.quire("bookie", "remove", bookie_id)
            if answer.status == ExitCode.DONE:
                self.removed.append(bookie_id)
                return ""
            # A ledger that is open or new names it: its writer or repair replaces it.
            if late := restoration.late(asyncio.get_running_loop().time()):
                return f"{late}; {answer.error}"
            self.log.counts["removal refused"] += 1
            await self._end_abandoned()
            await asyncio.sleep(POLL_S)

    async def _end_abandoned(self) -> None:
        """Recover blocked ledgers whose key no bookie knows, as docs/repair.md says: too few of
        their members are left for repair to end them without it.
        """
        answer = await self._commands.quire("repair", "list", "--blocked")
        for row in answer.rows:
            if "key" in str(row.get("blocked_reason")):
                recovery = await self._commands.quire("ledger", "recover", str(row["ledger"]))
                self.log.counts["recovered by the operator"] += recovery.status == ExitCode.DONE

    async def _withdraw(self, bookie: LocalBookie) -> None:
        """Choose a bookie for no more faults; return once one that it has has ended."""
        self._bookies.remove(bookie)
        await self._injector.end_of_fault(bookie)

    def _remove_data(self, bookie: LocalBookie) -> None:
        bookie.kill()
        shutil.rmtree(bookie.data_dir)

    async def _has_ended(self, bookie: LocalBookie) -> bool:
        try:
            async with asyncio.timeout(ENDED_S_MAX):
                while bookie.is_running:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True

    # -- processes of repair ---------------------------------------------------------------------

    async def _kill_repair(self) -> None:
        while not await self.log.stops_within(self._rng.uniform(*KILL_REPAIR_S)):
            bookies = list(self._bookies)
            if self._rng.random() >= KILL_ALL:
                bookies = self._rng.sample(bookies, 1)
            pids = [
                pid for bookie in bookies if bookie.is_running for pid in repair_pids(bookie.pid)
            ]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            self.log.counts["repair killed"] += len(pids)


def repair_pids(bookie_pid: int) -> list[int]:
    """Return the processes of repair beside a bookie."""
    try:
        children = Path(f"/proc/{bookie_pid}/task/{bookie_pid}/children").read_text().split()
        return [
            int(child)
            for child in children
            if b"run-worker" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        ]
    except OSError:  # one of them has ended
        return []
