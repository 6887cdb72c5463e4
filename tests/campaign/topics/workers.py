"""Start, replacement and end of the client processes of a campaign on topics.

Leaves their work to their modules.

Invariant: each name has a separate history and log. A process that replaces another has the same
name and another run number.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tests.campaign.topics.work import STUCK_STATUS

END_S_MAX: Final = 150.0
ENDED_AGAIN_MAX: Final = 3
REPOSITORY: Final = Path(__file__).parents[3]
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
    process: Process
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
        names = [each.name for each in self._clients.values() if each.module in REPLACED]
        client = self._clients[rng.choice(names)]
        if client.process.returncode is not None:
            self._note_end(client)
        else:
            client.process.kill()
            await client.process.wait()
        await self._start_again(client)

    async def replace_stuck(self) -> None:
        """Start the clients again that ended because they hung, unless they were to end anyway."""
        for client in self._clients.values():
            if client.process.returncode == STUCK_STATUS and not client.is_ending:
                await self._start_again(client)

    async def _start_again(self, client: ClientProcess, *, is_ending: bool = False) -> None:
        client.run += 1
        client.process = await self._spawn(
            client.module, client.name, client.run, client.records_per_s, is_ending=is_ending
        )

    async def end(self, module: str) -> None:
        """End every client of a module in order."""
        chosen = [each for each in self._clients.values() if each.module == module]
        for client in chosen:
            client.is_ending = True
            if client.process.returncode is None:
                client.process.send_signal(signal.SIGTERM)
        for client in chosen:
            await self._end_one(client)

    async def _end_one(self, client: ClientProcess) -> None:
        """Wait for a stopped client; one that hangs and has data to read may start again."""
        for _ in range(ENDED_AGAIN_MAX):
            try:
                await asyncio.wait_for(client.process.wait(), END_S_MAX)
            except TimeoutError:
                self.complaints.append(f"{client.name} did not end within {END_S_MAX:.0f} s")
                client.process.kill()
                await client.process.wait()
                return
            if client.process.returncode != STUCK_STATUS or client.module not in FINISHING:
                break
            await self._start_again(client, is_ending=True)
        self._note_end(client)

    async def kill_all(self) -> None:
        """End every client that still runs."""
        for client in self._clients.values():
            if client.process.returncode is None:
                client.process.kill()
                await client.process.wait()

    async def _spawn(
        self, module: str, name: str, run: int, records_per_s: float, *, is_ending: bool = False
    ) -> Process:
        words = {
            "bootstrap": self._bootstrap,
            "history": str(self._directory / f"{name}.jsonl"),
            "name": name,
            "run": str(run),
            "seed": str(self._seed),
            "records-per-s": str(records_per_s),
            "partitions": str(self._partitions),
        }
        flags = [word for key, value in words.items() for word in (f"--{key}", value)]
        flags += ["--is-ending"] if is_ending else []
        with (self._directory / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"tests.campaign.topics.{module}", *flags),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=log,
                cwd=REPOSITORY,
            )

    def _note_end(self, client: ClientProcess) -> None:
        status = client.process.returncode
        if status not in (0, STUCK_STATUS):
            tail = (self._directory / f"{client.name}.log").read_text()[-2_000:]
            self.complaints.append(f"{client.name} ended with status {status}: {tail}")
