"""Clients of one campaign on topics: their start, what they saw, and the checks at the end.

Leaves each client, its replacement and judging to their modules, faults to
`tests.campaign.faults`, and the cluster to `runner` and to `tests.campaign.repair.topics_beside`.
Every check runs outside the clients' processes.

Format of the result: one JSON object; `is_well` says whether every guarantee was kept.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from metadata.store.embedded import EmbeddedZooKeeper
from tests.campaign.child import Child
from tests.campaign.faults import OF_TOPICS, FaultInjector, Group, Targets
from tests.campaign.injecting import FaultLog
from tests.campaign.topics.arranging import consumed_by, make_topics, probe
from tests.campaign.topics.facts import FactsFollower, Outcome
from tests.campaign.topics.work import GROUP
from tests.campaign.topics.workers import Workers

STALL_S_MAX: Final = 90.0
AVAILABLE_S_MAX: Final = 60.0
SILENT_S_MAX: Final = 150.0
"""A group that reads to the end commits more within this time, even if one of its clients hangs."""
WATCH_S: Final = 0.25
Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """Number of clients of each kind, and their rate."""

    seed: int
    partitions: int = 6
    producers: int = 2
    transactors: int = 3
    members: int = 3
    """For each group: there is one group for each protocol."""
    protocols: tuple[str, ...] = ("classic", "consumer")
    watchers: int = 1
    records_per_s: float = 0.0
    """Rate of all producers together; 0: as fast as records are acknowledged."""


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
    times = [int(part) for part in first.split()[1:9]]
    idle, waiting = times[3:5]
    return sum(times) - idle - waiting, sum(times)


class TopicClients:
    """All clients of one campaign. Call `start`, `watch` and `finish` in this order."""

    def __init__(self, load: Load, directory: Path, bootstrap: str) -> None:
        self._load = load
        self._bootstrap = bootstrap
        self._histories = directory / "histories"
        self._histories.mkdir(parents=True, exist_ok=True)
        self._transactions = directory / "transactions.jsonl"
        self._follower = FactsFollower(self._histories)
        self.workers = Workers(bootstrap, self._histories, load.seed, load.partitions)
        self._complaints: list[str] = []
        self._seconds = 0.0
        self._longest_stall_s = 0.0
        self._acked_under_load = 0
        self._busy = 0.0
        self._available_after_s: float | None = None
        self._consumed_after_s: float | None = None

    def _say(self, text: str) -> None:
        """Log a fault next to the histories, for the search for a cause."""
        with (self._histories / "faults.log").open("a") as file:
            at = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
            file.write(f"{at} {text}\n")

    def faults(
        self, groups: Sequence[Group], rng: Random, zookeeper: EmbeddedZooKeeper | None = None
    ) -> FaultInjector:
        """Return faults of servers and of these clients."""
        targets = Targets(partial(self.workers.replace_one, rng))
        return FaultInjector(groups, rng, targets, OF_TOPICS, zookeeper=zookeeper, say=self._say)

    async def start(self) -> None:
        """Create the topics, and start the clients."""
        load, workers = self._load, self.workers
        await asyncio.to_thread(make_topics, self._bootstrap, load.partitions)
        rate = load.records_per_s / load.producers
        for number in range(load.producers):
            await workers.start("producer", f"p{number}", rate)
        for number in range(load.transactors):
            await workers.start("transactor", f"t{number}", load.records_per_s / 10)
        for protocol in load.protocols:
            for number in range(load.members):
                await workers.start("member", f"{protocol}-{number}")
        for number in range(load.watchers):
            await workers.start("watcher", f"w{number}")
        await workers.start("observer", "-".join(("observer", *load.protocols)))

    async def watch(self, faults: "asyncio.Task[None]", stop: asyncio.Event) -> None:
        """Wait until `stop`; record the longest time without an acknowledgement of a partition."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        stalls, processors = Stalls(self._load.partitions, begun), processor_times()
        while not stop.is_set():
            await asyncio.sleep(WATCH_S)
            if faults.done():
                faults.result()
            await self.workers.replace_stuck()
            stalls.take(self._follower.catch_up().acked_counts, loop.time())
            self._longest_stall_s = stalls.longest_s
            self._acked_under_load = self._follower.facts.acked_count
            if stalls.longest_s > STALL_S_MAX:
                self._complaints.append(f"a partition took nothing for {STALL_S_MAX:.0f} s")
                break
        self._seconds = loop.time() - begun
        used, all_of_it = (b - a for a, b in zip(processors, processor_times(), strict=True))
        self._busy = round(used / max(1, all_of_it), 2)

    async def finish(self, faults: FaultLog) -> Summary:
        """End the clients once all faults have ended; check what they saw; return the summary."""
        is_available = await self._is_available()
        await self.workers.end("producer")
        await self.workers.end("transactor")
        if is_available:
            await self._read_to_ends()
        for module in ("member", "watcher", "observer"):
            await self.workers.end(module)
        checked = await self._check()
        self._complaints += [*faults.complaints, *self.workers.complaints]
        return self._summary(faults.counts, checked)

    async def _is_available(self) -> bool:
        """Return whether every partition accepts records again in time after all faults ended."""
        begun = time.monotonic()
        partitions = self._load.partitions
        failed = await asyncio.to_thread(probe, self._bootstrap, partitions, AVAILABLE_S_MAX)
        self._available_after_s = round(time.monotonic() - begun, 2)
        if failed:
            self._complaints.append(f"not available after {AVAILABLE_S_MAX:.0f} s: {failed}")
        return not failed

    async def _read_to_ends(self) -> None:
        """Let the groups read to the end."""
        partitions = self._load.partitions
        begun = time.monotonic()
        groups = [f"{GROUP}-{protocol}" for protocol in self._load.protocols]
        reading = asyncio.gather(
            *(
                asyncio.to_thread(consumed_by, self._bootstrap, group, partitions, SILENT_S_MAX)
                for group in groups
            )
        )
        while not reading.done():
            await self.workers.replace_stuck()
            await asyncio.sleep(WATCH_S)
        for group, lag in zip(groups, reading.result(), strict=True):
            if lag:
                self._complaints.append(f"{group} did not read to the end: {lag}")
        self._consumed_after_s = round(time.monotonic() - begun, 2)

    async def _check(self) -> dict[str, Any]:
        options = {
            "bootstrap": self._bootstrap,
            "histories": self._histories,
            "partitions": self._load.partitions,
            "transactions": self._transactions,
        }
        module, log = "tests.campaign.topics.checker", self._histories / "checker.log"
        checker = await Child.start("the checker", module, options, log, has_output=True)
        result, complaint = await checker.result()
        self._complaints += filter(None, [complaint])
        return result

    def _summary(self, faults: Mapping[str, int], checked: dict[str, Any]) -> Summary:
        facts = self._follower.catch_up()
        complaints = self._complaints + facts.complaints
        if facts.left:
            complaints.append(f"{facts.left} records were neither acknowledged nor refused")
        broken = checked.get("broken", {})
        return {
            "is_well": bool(checked) and not broken and not complaints,
            "seed": self._load.seed,
            "seconds": round(self._seconds, 1),
            "acked_records": facts.acked_count,
            "acked_records_per_s": round(self._acked_under_load / max(1.0, self._seconds)),
            "processors_busy": self._busy,
            "tokens_committed": facts.tokens_of(Outcome.COMMITTED),
            "tokens_aborted": facts.tokens_of(Outcome.ABORTED),
            "tokens_unknown": facts.tokens_of(Outcome.UNKNOWN),
            "offsets_committed": sum(len(group.commits) for group in facts.groups.values()),
            "offsets_fetched": sum(len(group.fetches) for group in facts.groups.values()),
            "faults": dict(sorted(faults.items())),
            "stuck_clients": facts.stuck,
            "client_errors": dict(sorted(facts.failures.items())),
            "in_sync_least": facts.in_sync_least,
            "longest_stall_s": round(self._longest_stall_s, 2),
            "available_after_s": self._available_after_s,
            "consumed_after_s": self._consumed_after_s,
            "complaints": complaints,
            "checked": checked,
        }
