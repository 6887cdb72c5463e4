"""A cluster whose metadata service is an ensemble of three ZooKeeper servers, and processes that
hold sessions with it.

Leaves the faults to `faults`, and judging the sessions to `judge`.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from quire.local.local_server import LocalBookie
from tests.campaign.child import Child
from tests.campaign.faults import FaultInjector, Group, Targets
from tests.campaign.zookeeper.faults import EnsembleFaults, Outages
from tests.campaign.zookeeper.judge import judge
from tests.campaign.zookeeper.record import read_record
from tests.support.metadata.zookeeper_ensemble import ZooKeeperEnsemble

CHROOT: Final = "/quire"
HOLDERS: Final = ("h0", "h1")
END_S_MAX: Final = 60.0


class EnsembleWorld:
    """An ensemble, bookies and holders of sessions."""

    def __init__(self, bookies: int, directory: Path) -> None:
        self._directory = directory
        self._ensemble = ZooKeeperEnsemble(directory / "zookeeper")
        self._bookies = [self._make_bookie(number) for number in range(1, bookies + 1)]
        self._holders: dict[str, Child] = {}
        self._outages = Outages()
        self._faults: EnsembleFaults | None = None

    @property
    def metadata_uri(self) -> str:
        """Address of all servers."""
        return self._ensemble.uri(*self._ensemble.members) + CHROOT

    def faults(self, rng: Random, down_max: int, targets: Targets) -> EnsembleFaults:
        """Return the faults of servers and bookies."""

        def clients() -> list[int]:
            return [*targets.client_pids(), *(holder.pid for holder in self._holders.values())]

        bookies = FaultInjector(
            [Group("bookie", self._bookies, down_max)],
            Random(rng.getrandbits(64)),
            targets,
            may_start_again=self._outages.any_since,
        )
        self._faults = EnsembleFaults(self._ensemble, bookies, rng, clients, self._outages)
        return self._faults

    async def finish(self) -> tuple[Sequence[str], dict[str, Any]]:
        """End the holders, and judge their records."""
        assert self._faults is not None, "it had faults"
        for holder in self._holders.values():
            holder.terminate()
        complaints = [await holder.ended(END_S_MAX) for holder in self._holders.values()]
        records = [read_record(self._record(name)) for name in self._holders]
        verdict = judge(records, self._outages.times)
        found = verdict.as_json() | {"longest_election_s": self._faults.longest_election_s}
        return [*filter(None, complaints), *verdict.complaints], {"sessions": found}

    async def __aenter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            await self._ensemble.__aenter__()
            await asyncio.gather(*(bookie.start() for bookie in self._bookies))
            for name in HOLDERS:
                self._holders[name] = await self._start_holder(name)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for holder in self._holders.values():
            await holder.kill()
        await asyncio.gather(*(bookie.stop() for bookie in self._bookies), return_exceptions=True)
        await self._ensemble.__aexit__()

    def _make_bookie(self, number: int) -> LocalBookie:
        name = f"bookie-{number}"
        log_path = self._directory / "logs" / f"{name}.log"
        return LocalBookie(name, self._directory / name, log_path, self.metadata_uri, {})

    def _record(self, name: str) -> Path:
        return self._directory / f"{name}.jsonl"

    async def _start_holder(self, name: str) -> Child:
        options = {"uri": self.metadata_uri, "record": self._record(name), "name": name}
        return await Child.start(
            name,
            "tests.campaign.zookeeper.holder",
            {**options, "seed": name},
            self._directory / "logs" / f"{name}.log",
        )
