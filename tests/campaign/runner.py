"""One campaign: a cluster, a writer, a tailing reader, contending clients, faults, and then the
checker and an outside judge.

Leaves each of these to its module. Every check runs outside the writer's process.

Format of the result: one JSON object; `is_well` says whether every guarantee was kept.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.campaign.availability import Setting, unexplained
from tests.campaign.child import REPOSITORY, Child
from tests.campaign.contenders import Contenders
from tests.campaign.faults import Targets
from tests.campaign.history import HistoryFollower
from tests.campaign.injecting import FaultLog, injecting
from tests.campaign.tailer import TailReport, read_report
from tests.campaign.world import LocalWorld, MakeWorld, World

STALL_S_MAX: Final = 60.0
HEALED_S_MAX: Final = 60.0
"""Maximum time after the faults until each open ledger is acknowledged further, or ends."""
WATCH_S: Final = 0.25
Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Campaign:
    """Options of a campaign."""

    seconds: float
    seed: int
    ensemble: int = 3
    write: int = 3
    ack: int = 2
    in_sync: int | None = None
    """In-sync mode with at least this many of `ensemble` members; None for ordinary ledgers."""
    bookies: int = 7
    down_max: int = 2
    parallel: int = 2
    megabytes_per_s: float = 6.0
    keep: Path | None = None
    """Directory that keeps the history and the cluster's data; None: they are removed."""
    other_code: Path | None = None
    """Checkout of another version, which half of the processes run; None: all run this one."""

    def code_dir(self, run: int) -> Path:
        """Return the checkout that a client process runs, given its number."""
        return REPOSITORY if self.other_code is None or run % 2 == 0 else self.other_code


class CampaignRun:
    """One campaign that runs."""

    def __init__(self, campaign: Campaign, directory: Path, make_world: MakeWorld) -> None:
        self._campaign = campaign
        self._world = make_world(campaign.bookies, directory / "cluster")
        self._directory = directory
        self._history = directory / "history.jsonl"
        self._tails = directory / "tails.json"
        self._follower = HistoryFollower(self._history)
        self._children: list[Child] = []
        options = self._quorum_options()
        self._contenders = Contenders(directory, campaign.seed, options, campaign.code_dir)
        self._writer: Child | None = None
        self._writer_runs = 0
        self._complaints: list[str] = []
        self._longest_stall_s = 0.0

    async def run(self) -> Summary:
        """Run the campaign; return the summary."""
        async with self._world as world:
            try:
                return await self._run(world)
            finally:
                for child in self._children:
                    await child.kill()
                await self._contenders.kill_all()

    async def _run(self, world: World) -> Summary:
        uri, campaign = world.metadata_uri, self._campaign

        async def replace_clients() -> None:
            await self._contenders.replace_one(uri)
            await self._kill_writer()
            await self._start_writer(uri)

        await self._start_writer(uri)
        await self._contenders.start(uri)
        tailer = await self._start("tailer", uri, {"report": self._tails})
        await self._see_first()
        targets = Targets(
            replace_clients, lambda: self._follower.catch_up().ensembles, self._writer_pids
        )
        faults = world.faults(Random(campaign.seed), campaign.down_max, targets)
        async with injecting(faults) as running:
            await self._watch(running)
        await self._see_progress()
        assert self._writer is not None, "it was started"
        await self._end(self._writer)
        await self._end(tailer)
        tail = read_report(self._tails) if self._tails.exists() else None
        await self._contenders.finish(uri)
        more_complaints, more = await world.finish()
        checked = await self._check(uri)
        judged = await self._contenders.judge()
        self._complaints += [*faults.log.complaints, *self._contenders.complaints, *more_complaints]
        return self._summary(faults.log, tail, checked) | {"judged": judged, **more}

    # -- processes -------------------------------------------------------------------------------

    async def _start(
        self, module: str, uri: str, options: Mapping[str, object], run: int = 0
    ) -> Child:
        common = {"uri": uri, "history": self._history, "seed": self._campaign.seed}
        child = await Child.start(
            f"the {module}",
            f"tests.campaign.{module}",
            {**common, **options},
            self._directory / f"{module}.log",
            code_dir=self._campaign.code_dir(run),
            has_output=module == "checker",
        )
        self._children.append(child)
        return child

    async def _start_writer(self, uri: str) -> None:
        campaign = self._campaign
        options = {
            **self._quorum_options(),
            "run": self._writer_runs,
            "parallel": campaign.parallel,
            "megabytes-per-s": campaign.megabytes_per_s,
        }
        self._writer = await self._start("writer", uri, options, self._writer_runs)
        self._writer_runs += 1

    def _writer_pids(self) -> list[int]:
        assert self._writer is not None, "it was started"
        return [self._writer.pid]

    def _quorum_options(self) -> dict[str, int | None]:
        names = ("ensemble", "write", "ack", "in_sync")
        return {name: getattr(self._campaign, name) for name in names}

    async def _kill_writer(self) -> None:
        assert self._writer is not None, "it was started"
        if self._writer.status is not None:
            self._complaints.append(f"the writer ended by itself: {self._writer.status}")
        await self._writer.kill()

    async def _end(self, child: Child) -> None:
        child.terminate()
        self._complaints += filter(None, [await child.ended()])

    async def _see_first(self) -> None:
        """Wait for the first acknowledgement, so that faults hit processes that have started."""
        tries_left = STALL_S_MAX / WATCH_S  # afterwards `_watch` complains
        while not self._follower.catch_up().acked_count and tries_left > 0:
            tries_left -= 1
            await asyncio.sleep(WATCH_S)

    async def _watch(self, faults: "asyncio.Task[None]") -> None:
        """Wait until the time is over; record the longest time without an acknowledgement."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._campaign.seconds
        acked, since = 0, loop.time()
        while loop.time() < end:
            await asyncio.sleep(WATCH_S)
            if faults.done():
                faults.result()
            now_acked = self._follower.catch_up().acked_count
            if now_acked > acked:
                acked, since = now_acked, loop.time()
            self._longest_stall_s = max(self._longest_stall_s, loop.time() - since)
            if loop.time() - since > STALL_S_MAX:
                self._complaints.append(f"nothing was acknowledged for {STALL_S_MAX:.0f} s")
                return

    async def _see_progress(self) -> None:
        """Require that each open ledger is acknowledged further, or ends, after the faults."""
        before = {each: self._acked_of(each) for each in self._follower.catch_up().unended}
        waiting = list(before)
        try:
            async with asyncio.timeout(HEALED_S_MAX):
                while waiting:
                    await asyncio.sleep(WATCH_S)
                    unended = self._follower.catch_up().unended
                    waiting = [
                        each
                        for each in waiting
                        if each in unended and self._acked_of(each) == before[each]
                    ]
        except TimeoutError:
            text = f"ledgers {waiting}: nothing was acknowledged or refused for "
            self._complaints.append(text + f"{HEALED_S_MAX:.0f} s after the faults")

    def _acked_of(self, ledger_id: int) -> int:
        return len(self._follower.history.ledgers[ledger_id].acked)

    async def _check(self, uri: str) -> dict[str, Any]:
        tails = self._tails if self._tails.exists() else None
        checker = await self._start("checker", uri, {"tails": tails})
        result, complaint = await checker.result()
        self._complaints += filter(None, [complaint])
        return result

    # -- the result ------------------------------------------------------------------------------

    def _summary(
        self, faults: FaultLog, tail: TailReport | None, checked: dict[str, Any]
    ) -> Summary:
        history = self._follower.catch_up()
        broken = checked.get("broken", {})
        setting = Setting(self._campaign.bookies, self._campaign.ensemble, self._campaign.in_sync)
        needless = unexplained(history.errors, faults.times, setting)
        complaints = self._complaints + history.complaints + needless
        complaints += tail.complaints if tail else ["the tailing reader left no report"]
        ends = [ledger.ended for ledger in history.ledgers.values()]
        campaign = self._campaign
        return {
            "is_well": bool(checked) and not broken and not complaints,
            "seed": campaign.seed,
            "seconds": campaign.seconds,
            "quorum": [campaign.ensemble, campaign.write, campaign.ack],
            "in_sync": campaign.in_sync,
            "ledgers": len(history.ledgers),
            "closed_by_writer": ends.count("closed"),
            "recovered": ends.count("recovered"),
            "acked_entries": history.acked_count,
            "faults": dict(faults.counts),
            "ensemble_changes": history.ensemble_changes,
            "typed_errors": history.failures,
            "unexplained_errors": len(needless),
            "tail_errors": tail.errors if tail else None,
            "tailed_entries": sum(tail.entries.values()) if tail else None,
            "longest_stall_s": round(self._longest_stall_s, 2),
            "lost": broken.get("lost", 0),
            "changed": broken.get("changed", 0),
            "duplicates": broken.get("duplicate", 0),
            "complaints": complaints,
            "checked": checked,
        }


async def run_campaign(campaign: Campaign, make_world: MakeWorld | None = None) -> Summary:
    """Run one campaign in a separate directory; return its summary."""
    if make_world is None:
        make_world = partial(LocalWorld, other_code=campaign.other_code)
    directory = campaign.keep or Path(tempfile.mkdtemp(prefix="quire-campaign-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        return await CampaignRun(campaign, directory, make_world).run()
    finally:
        if campaign.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
