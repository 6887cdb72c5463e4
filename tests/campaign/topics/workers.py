"""Start, replacement and end of the client processes of a campaign on topics.

Leaves their work to their modules.

Invariant: each name has a separate history and log. A process that replaces another has the same
name and another run number.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tests.campaign.child import END_S_MAX, Child
from tests.campaign.topics.work import STUCK_STATUS

ENDED_AGAIN_MAX: Final = 3
REPLACED: Final = ("transactor", "member", "producer")
"""Modules whose processes are killed at times, and replaced by new ones."""
FINISHING: Final = ("watcher",)
"""Modules whose processes read to the end of their data after the stop."""


@dataclass(slots=True)
class ClientProcess:
    """One client of the campaign, as it runs now."""

    module: str
    name: str
    records_per_s: float
    process: Child
    run: int = 0
    is_ending: bool = False
    """Whether it was told to end: from then on only what it has to finish starts it again."""


class Workers:
    """All clients of one campaign."""

    def __init__(self, bootstrap: str, directory: Path, seed: int, partitions: int) -> None:
        self.complaints: list[str] = []
        self._bootstrap = bootstrap
        self._directory = directory
        self._seed = seed
        self._partitions = partitions
        self._clients: dict[str, ClientProcess] = {}

    async def start(self, module: str, name: str, records_per_s: float = 0.0) -> None:
        """Start a client under a new name."""
        assert name not in self._clients, "a name is one client's"
        process = await self._spawn(module, name, 0, records_per_s)
        self._clients[name] = ClientProcess(module, name, records_per_s, process)

    async def replace_one(self, rng: Random) -> None:
        """Kill one of the replaceable clients, and start it again."""
        names = [process.name for process in self._clients.values() if process.module in REPLACED]
        client = self._clients[rng.choice(names)]
        if client.process.status is not None:
            self.complaints += filter(None, [client.process.failure(STUCK_STATUS)])
        await client.process.kill()
        await self._start_again(client)

    async def replace_stuck(self) -> None:
        """Start the clients again that ended because they hung, unless they were to end anyway."""
        for client in self._clients.values():
            if client.process.status == STUCK_STATUS and not client.is_ending:
                await self._start_again(client)

    async def _start_again(self, client: ClientProcess, *, is_ending: bool = False) -> None:
        client.run += 1
        client.process = await self._spawn(
            client.module, client.name, client.run, client.records_per_s, is_ending=is_ending
        )

    async def end(self, module: str) -> None:
        """End every client of a module in order."""
        chosen = [process for process in self._clients.values() if process.module == module]
        for client in chosen:
            client.is_ending = True
            client.process.terminate()
        for client in chosen:
            await self._end_one(client)

    async def _end_one(self, client: ClientProcess) -> None:
        """Wait for a stopped client; one that hangs and has data to read may start again."""
        for _ in range(ENDED_AGAIN_MAX):
            complaint = await client.process.ended(END_S_MAX, STUCK_STATUS)
            if client.process.status != STUCK_STATUS or client.module not in FINISHING:
                break
            await self._start_again(client, is_ending=True)
        else:
            complaint = client.process.failure()
        self.complaints += filter(None, [complaint])

    async def kill_all(self) -> None:
        """End every client that still runs."""
        for client in self._clients.values():
            await client.process.kill()

    async def _spawn(
        self, module: str, name: str, run: int, records_per_s: float, *, is_ending: bool = False
    ) -> Child:
        options = {
            "bootstrap": self._bootstrap,
            "history": self._directory / f"{name}.jsonl",
            "name": name,
            "run": run,
            "seed": self._seed,
            "records_per_s": records_per_s,
            "partitions": self._partitions,
            "is_ending": is_ending,
        }
        log = self._directory / f"{name}.log"
        return await Child.start(name, f"tests.campaign.topics.{module}", options, log)
