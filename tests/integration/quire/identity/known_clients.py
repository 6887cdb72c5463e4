"""Clients that a cluster knows by name, their commands, and what they read, for tests of rights.

Leaves how the cluster knows them, and what they may do, to the tests.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ledger_client import LedgerClient, Quorum, UnauthorizedError
from ledger_client.config import ClientConfig
from ledger_client.errors import LedgerError
from quire.local.development_certificates import ORGANIZATION
from quire.local.secure_directory import SecureDirectory
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire
from tests.until import WAIT_S

THREE: Final = Quorum(3, 3, 2)
RETRY_S: Final = 0.1


@dataclass
class KnownClients:
    """A cluster, and a certificate for each client's name."""

    cluster: LocalCluster
    directory: SecureDirectory
    config: ClientConfig

    @property
    def address(self) -> str:
        """Address of the metadata, without a client's file."""
        return self.cluster.metadata_uri

    def uri(self, name: str) -> str:
        """Return the address for a client."""
        return f"{self.address}?client={self.directory.client_file(name)}"

    def client(self, name: str) -> LedgerClient:
        """Return a client that is not connected yet."""
        return LedgerClient(self.uri(name), config=self.config)

    async def quire(self, *words: str, name: str = "root") -> int:
        """Run a command as a client; return its status."""
        done = await asyncio.to_thread(run_quire, *words, metadata=self.uri(name))
        return done.returncode


def principal(name: str) -> str:
    """Return the principal of a client with a certificate."""
    return f"User:CN={name},O={ORGANIZATION}"


async def read_all(client: LedgerClient, ledger_id: int) -> list[bytes]:
    """Return all confirmed entries of a ledger."""
    async with client.open_ledger(ledger_id) as reader:
        last = reader.last_confirmed
        return [entry.data async for batch in reader.read(0, last) for entry in batch]


async def until_done(
    call: Callable[[], Awaitable[object]], refusal: type[LedgerError] = UnauthorizedError
) -> None:
    """Repeat a call until it is not refused any more; a change takes at most 5 s."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with suppress(refusal):
                await call()
                return
            await asyncio.sleep(RETRY_S)


async def until_refused(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call until it is refused."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await call()
            except UnauthorizedError:
                return
            await asyncio.sleep(RETRY_S)
