"""One campaign on topics: a cluster, clients, faults, and at the end the checker.

Leaves each of these to its module. Every check runs outside the clients' processes.

Format of the result: one JSON object; `is_well` says whether every guarantee was kept.
"""

import asyncio
import json
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from quire.local_cluster import LocalCluster
from tests.campaign.topics.arranging import consumed_by, make_topics, probe
from tests.campaign.topics.facts import FactsFollower, Outcome
from tests.campaign.topics.faults import Bounds, FaultInjector
from tests.campaign.topics.work import GROUP
from tests.campaign.topics.workers import REPOSITORY, Workers

STALL_S_MAX: Final = 90.0
AVAILABLE_S_MAX: Final = 60.0
SILENT_S_MAX: Final = 150.0
"""A group that reads to the end commits more within this time, even if one of its clients hangs."""
CHECK_S_MAX: Final = 3600.0
WATCH_S: Final = 0.25
Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Campaign:
    """Options of a campaign."""

    seconds: float
    seed: int
    brokers: int = 3
    bookies: int = 5
    partitions: int = 6
    producers: int = 2
    transactors: int = 3
    members: int = 3
    """For each group: there is one group for each protocol."""
    protocols: tuple[str, ...] = ("classic", "consumer")
    watchers: int = 1
    records_per_s: float = 0.0
    """Rate of all producers together; 0: as fast as records are acknowledged."""
    brokers_down_max: int = 2
    bookies_down_max: int = 2
    keep: Path | None = None
    """Directory that keeps histories and the cluster's data; None: they are removed."""


class Stalls:
    """Times that partitions were without an acknowledgement."""

    def __init__(self, partitions: int, now: float) -> None:
        self.longest_s = 0.0
        self._counts: Counter[int] = Counter()
        self._since = dict.fromkeys(range(partitions), now)

    def take(self, counts: Counter[int], now: float) -> None:
        """Add the current number of acknowledged records."""
        for partition, since in self._since.items():
            self.longest_s = max(self.longest_s, now - since)
            if counts[partition] > self._counts[partition]:
                self._since[partition] = now
        self._counts = Counter(counts)


def processor_times() -> tuple[int, int]:
    """Return the busy time of this machine's processors, and their total time."""
    first = Path("/proc/stat").read_text().splitlines()[0]
    times = [int(each) for each in first.split()[1:9]]
    idle, waiting = times[3:5]
    return sum(times) - idle - waiting, sum(times)


class CampaignRun:
    """One campaign that runs."""

    def __init__(self, campaign: Campaign, directory: Path) -> None:
        self._campaign = campaign
        self._histories = directory / "histories"
        self._histories.mkdir(exist_ok=True)
        self._transactions = directory / "transactions.jsonl"
        self._data_dir = directory / "cluster"
        self._follower = FactsFollower(self._histories)
        self._complaints: list[str] = []
        self._longest_stall_s = 0.0
        self._acked_under_load = 0
        self._busy = 0.0
        self._available_after_s: float | None = None
        self._consumed_after_s: float | None = None

    async def run(self) -> Summary:
        """Run the campaign; return the summary."""
        campaign = self._campaign
        async with LocalCluster(campaign.bookies, self._data_dir, campaign.brokers) as cluster:
            bootstrap = ",".join(broker.address for broker in cluster.brokers)
            await asyncio.to_thread(make_topics, bootstrap, campaign.partitions)
            workers = Workers(bootstrap, self._histories, campaign.seed, campaign.partitions)
            try:
                return await self._run(cluster, workers, bootstrap)
            finally:
                await workers.kill_all()

    async def _run(self, cluster: LocalCluster, workers: Workers, bootstrap: str) -> Summary:
        campaign = self._campaign
        await self._start(workers)
        bounds = Bounds(campaign.brokers_down_max, campaign.bookies_down_max)
        rng = Random(campaign.seed)
        injector = FaultInjector(cluster, rng, bounds, workers.replace_one, self._say)
        faults = asyncio.create_task(injector.run())
        await self._watch(faults, workers)
        injector.stop()
        await faults
        await injector.settle()
        is_available = await self._is_available(bootstrap)
        await workers.end("producer")
        await workers.end("transactor")
        if is_available:
            await self._read_to_ends(workers, bootstrap)
        for module in ("member", "watcher", "observer"):
            await workers.end(module)
        checked = await self._check(bootstrap)
        self._complaints += injector.complaints + workers.complaints
        return self._summary(injector, checked)

    def _say(self, text: str) -> None:
        """Log each fault next to the histories, for the search for a cause."""
        with (self._histories / "faults.log").open("a") as file:
            at = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
            file.write(f"{at} {text}\n")

    async def _start(self, workers: Workers) -> None:
        campaign = self._campaign
        rate = campaign.records_per_s / campaign.producers
        for number in range(campaign.producers):
            await workers.start("producer", f"p{number}", rate)
        for number in range(campaign.transactors):
            await workers.start("transactor", f"t{number}", campaign.records_per_s / 10)
        for protocol in campaign.protocols:
            for number in range(campaign.members):
                await workers.start("member", f"{protocol}-{number}")
        for number in range(campaign.watchers):
            await workers.start("watcher", f"w{number}")
        await workers.start("observer", "-".join(("observer", *campaign.protocols)))

    async def _watch(self, faults: "asyncio.Task[None]", workers: Workers) -> None:
        """Wait until the time is over; record the longest time without an acknowledgement of a
        partition.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        stalls, processors = Stalls(self._campaign.partitions, begun), processor_times()
        while loop.time() < begun + self._campaign.seconds:
            await asyncio.sleep(WATCH_S)
            if faults.done():
                faults.result()
            await workers.replace_stuck()
            stalls.take(self._follower.catch_up().acked_counts, loop.time())
            self._longest_stall_s = stalls.longest_s
            self._acked_under_load = self._follower.facts.acked_count
            if stalls.longest_s > STALL_S_MAX:
                self._complaints.append(f"a partition took nothing for {STALL_S_MAX:.0f} s")
                break
        used, all_of_it = (b - a for a, b in zip(processors, processor_times(), strict=True))
        self._busy = round(used / max(1, all_of_it), 2)

    async def _is_available(self, bootstrap: str) -> bool:
        """Return whether every partition accepts records again in time after all faults ended."""
        begun = time.monotonic()
        partitions = self._campaign.partitions
        failed = await asyncio.to_thread(probe, bootstrap, partitions, AVAILABLE_S_MAX)
        self._available_after_s = round(time.monotonic() - begun, 2)
        if failed:
            self._complaints.append(f"not available after {AVAILABLE_S_MAX:.0f} s: {failed}")
        return not failed

    async def _read_to_ends(self, workers: Workers, bootstrap: str) -> None:
        """Let the groups read to the end."""
        partitions = self._campaign.partitions
        begun = time.monotonic()
        groups = [f"{GROUP}-{protocol}" for protocol in self._campaign.protocols]
        reading = asyncio.gather(
            *(
                asyncio.to_thread(consumed_by, bootstrap, group, partitions, SILENT_S_MAX)
                for group in groups
            )
        )
        while not reading.done():
            await workers.replace_stuck()
            await asyncio.sleep(WATCH_S)
        for group, lag in zip(groups, reading.result(), strict=True):
            if lag:
                self._complaints.append(f"{group} did not read to the end: {lag}")
        self._consumed_after_s = round(time.monotonic() - begun, 2)

    async def _check(self, bootstrap: str) -> dict[str, Any]:
        checker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.campaign.topics.checker", "--bootstrap", bootstrap),
            *("--histories", str(self._histories)),
            *("--partitions", str(self._campaign.partitions)),
            *("--transactions", str(self._transactions)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=(self._histories / "checker.log").open("ab"),
            cwd=REPOSITORY,
        )
        try:
            output, _ = await asyncio.wait_for(checker.communicate(), CHECK_S_MAX)
        except TimeoutError:
            self._complaints.append(f"the checker did not end within {CHECK_S_MAX:.0f} s")
            checker.kill()
            await checker.wait()
            return {}
        if not output:
            tail = (self._histories / "checker.log").read_text()[-2_000:]
            self._complaints.append(f"the checker failed with {checker.returncode}: {tail}")
            return {}
        result: dict[str, Any] = json.loads(output)
        return result

    def _summary(self, injector: FaultInjector, checked: dict[str, Any]) -> Summary:
        facts, campaign = self._follower.catch_up(), self._campaign
        complaints = self._complaints + facts.complaints
        if facts.left:
            complaints.append(f"{facts.left} records were neither acknowledged nor refused")
        broken = checked.get("broken", {})
        return {
            "is_well": bool(checked) and not broken and not complaints,
            "seed": campaign.seed,
            "seconds": campaign.seconds,
            "acked_records": facts.acked_count,
            "acked_records_per_s": round(self._acked_under_load / campaign.seconds),
            "processors_busy": self._busy,
            "tokens_committed": facts.tokens_of(Outcome.COMMITTED),
            "tokens_aborted": facts.tokens_of(Outcome.ABORTED),
            "tokens_unknown": facts.tokens_of(Outcome.UNKNOWN),
            "offsets_committed": sum(len(each.commits) for each in facts.groups.values()),
            "offsets_fetched": sum(len(each.fetches) for each in facts.groups.values()),
            "faults": dict(sorted(injector.counts.items())),
            "stuck_clients": facts.stuck,
            "client_errors": dict(sorted(facts.failures.items())),
            "in_sync_least": facts.in_sync_least,
            "longest_stall_s": round(self._longest_stall_s, 2),
            "available_after_s": self._available_after_s,
            "consumed_after_s": self._consumed_after_s,
            "complaints": complaints,
            "checked": checked,
        }


async def run_campaign(campaign: Campaign) -> Summary:
    """Run one campaign in a separate directory; return its summary."""
    directory = campaign.keep or Path(tempfile.mkdtemp(prefix="quire-topics-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        return await CampaignRun(campaign, directory).run()
    finally:
        if campaign.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
