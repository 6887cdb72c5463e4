"""A machine on which bookies are formatted, started, stopped and killed, with real disks and real
sockets.

It uses real disks and real sockets. Leaves the metadata service to its in-process implementation.
"""

import asyncio
import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from bookie.bookie_process import BookieAddresses, BookieProcess
from bookie.files.disk_real import RealDisk
from bookie.identity.identity import format_directories
from bookie.options import BOOKIE
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import (
    LedgerMetadata,
    QuorumSpec,
)
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import bookie_path
from metadata.registry.cluster import ensure_cluster
from metadata.store.interface import MetadataStore
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.bookie.wire_client import WireClient
from tests.support.sample_ledgers import ledger_of

SMALL = {
    "reserve_bytes_min": 1,
    "segment_bytes_max": 2**20,
    "drain_timeout_s": 2.0,
    "disk_high_mark": 1.0,
}


class Machine:
    """Disks below one directory, and one metadata service."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = MemoryMetadataServer()
        self.rng = random.Random(11)

    def store(self) -> MemoryMetadataStore:
        return MemoryMetadataStore(self.server)

    async def format(self, name: str = "a") -> BookieId:
        disk, store = RealDisk(self.root / name), self.store()
        try:
            await disk.lock()
            create = partial(ensure_cluster, rng=self.rng)
            return await format_directories(disk, store, "bookie", self.rng, lambda: 5, create)
        finally:
            await disk.close()
            await store.aclose()

    async def start(self, name: str = "a", **options: str | float) -> "Running":
        return await Running.start(self, name, options)

    def ledgers(self, store: MetadataStore) -> LedgerStore:
        return LedgerStore(store, self.rng, lambda: 5)

    async def create_ledger(self, ledger_id: int, *bookies: str) -> LedgerMetadata:
        """Store an open ledger on the given bookies."""
        count = len(bookies)
        quorum = QuorumSpec(count, count, count)
        metadata = ledger_of((0, bookies), ledger_id=ledger_id, quorum=quorum)
        store = self.store()
        await self.ledgers(store).create(metadata)
        await store.aclose()
        return metadata


@dataclass
class Running:
    """One running bookie."""

    server: MemoryMetadataServer
    process: BookieProcess
    disk: RealDisk
    store: MemoryMetadataStore
    bookie_id: BookieId
    addresses: BookieAddresses

    @classmethod
    async def start(cls, machine: Machine, name: str, options: dict[str, str | float]) -> Self:
        flags = {**SMALL, "data_dir": str(machine.root / name), **options}
        disk, store = RealDisk(machine.root / name), machine.store()
        process = None
        try:
            await disk.lock()
            process = BookieProcess(
                BOOKIE.load(None, {}, flags),
                disk,
                store,
                machine.rng,
                build="test",
                wall_clock_ms=lambda: 5,
            )
            return cls(machine.server, process, disk, store, *await process.start())
        except BaseException:
            if process is not None:
                await process.stop()
            await disk.close()
            await store.aclose()
            raise

    async def client(self, *ledgers: int) -> WireClient:
        address = (self.addresses.host, self.addresses.port)
        return await WireClient.greeted(address, self.bookie_id, ledgers)

    @property
    def admin_url(self) -> str:
        return f"http://{self.addresses.admin_host}:{self.addresses.admin_port}"

    async def cut_off(self, *, stays_registered: bool = False) -> MemoryMetadataStore | None:
        """Stop without the records of an orderly stop; return the session that keeps the
        registration, if it stays.
        """
        path = bookie_path(self.bookie_id)
        registration = (await self.store.get(path, fresh=True)).value
        self.process._has_failed = True  # so that it records nothing
        await self.stop()
        if not stays_registered:
            return None
        session = MemoryMetadataStore(self.server)
        await session.create(path, registration, ephemeral=True)
        return session

    async def stop(self) -> None:
        await self.process.stop()
        await self.disk.close()
        await self.store.aclose()
        await asyncio.sleep(0)
