"""A cluster that has metadata only, in memory, for tests of commands.

Leaves bookies that answer to the tests with real processes.
"""

import argparse
import io
import json
from random import Random
from typing import Any

import pytest

from ledger_client import cluster_access
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import bookie_path
from metadata.registry.cluster import ensure_cluster
from metadata.registry.cookies import CookieRecord, CookieStore
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.store.ephemeral import HeldNode, pack_held
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.cli.output import Output
from quire.operate import reachability
from quire.operate.faulty_servers import FaultyServer

RNG_SEED = 7
CREATED_MS = 1_700_000_000_000
FREE_BYTES = 10**9


class MemoryCluster:
    """Metadata of a cluster, and commands that use it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = MemoryMetadataServer()
        self.store = MemoryMetadataStore(self.server)
        self.rng = Random(RNG_SEED)
        self.faulty: list[FaultyServer] = []
        """Servers that a check cannot reach: there are no real ones."""
        self.ledgers = LedgerStore(self.store, self.rng, lambda: CREATED_MS)
        self.lifecycles = LifecycleStore(self.store, self.rng)
        monkeypatch.setattr(cluster_access, "open_cluster_store", self._open)
        monkeypatch.setattr(reachability, "contact_servers", self._contact)
        monkeypatch.setenv("QUIRE_METADATA", "zk://nowhere:1/cluster")

    async def _contact(self, _cluster: cluster_access.Cluster) -> list[FaultyServer]:
        return list(self.faulty)

    async def create(self, *names: str) -> None:
        """Create the cluster, with these bookies up."""
        await ensure_cluster(self.store, self.rng)
        for name in names:
            await self.format(name)
            await self.start(name)

    async def format(self, name: str) -> None:
        """Create a bookie that is not up."""
        record = CookieRecord(BookieId(name), bytes(16), CREATED_MS, 1, bytes(32))
        await CookieStore(self.store).create(record)

    async def start(
        self,
        name: str,
        *,
        writable: bool = True,
        build: str = "",
        admin_url: str = "",
        features: tuple[str, ...] = (),
    ) -> None:
        """Register a bookie."""
        bookie_id = BookieId(name)
        registration = BookieRegistration(
            bookie_id,
            f"host-{name}",
            4181,
            free_bytes=FREE_BYTES,
            writable=writable,
            build=build,
            admin_url=admin_url,
            features=features,
        )
        value = pack_held(
            HeldNode(bytes(16), 1, REGISTRATION_CODEC.pack("a registration", registration))
        )
        await self.store.create(bookie_path(bookie_id), value)

    async def stop(self, name: str) -> None:
        """End the registration of a bookie."""
        path = bookie_path(BookieId(name))
        await self.store.delete(path, (await self.store.get(path)).version)

    async def add(self, *ledgers: LedgerMetadata) -> None:
        """Store ledgers."""
        for ledger in ledgers:
            await self.ledgers.create(ledger)

    async def set_state(self, name: str, *states: Lifecycle) -> None:
        """Change the state of a bookie, one state after the other."""
        for number, state in enumerate(states):
            await self.lifecycles.change(BookieId(name), state, "for a test", CREATED_MS + number)

    async def text(self, parser: argparse.ArgumentParser, *words: str) -> tuple[int, str]:
        """Run a verb; return its status and its output for people."""
        return await self._run(parser, words, as_json=False)

    async def run(self, parser: argparse.ArgumentParser, *words: str) -> tuple[int, Any]:
        """Run a verb; return its status and its JSON output."""
        code, text = await self._run(parser, words, as_json=True)
        return code, json.loads(text)

    async def aclose(self) -> None:
        """End the session of the tests."""
        await self.store.aclose()

    async def _run(
        self, parser: argparse.ArgumentParser, words: tuple[str, ...], *, as_json: bool
    ) -> tuple[int, str]:
        arguments = parser.parse_args(words)
        results = io.StringIO()
        output = Output(as_json=as_json, results=results, remarks=io.StringIO())
        return int(await arguments.handler(arguments, output)), results.getvalue()

    async def _open(self, _address: str, *, rng: Random) -> MemoryMetadataStore:
        assert rng is not self.rng
        return MemoryMetadataStore(self.server)
