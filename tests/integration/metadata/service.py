"""Real ZooKeeper service for the contract suite, with broken connections and sessions on demand.

Leaves the server to `conftest.py`.
"""

import asyncio
import random
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from metadata.store.embedded import EmbeddedZooKeeper
from metadata.store.interface import MetadataStore
from metadata.store.zookeeper.store import ZooKeeperMetadataStore, open_store

HURRIED_S: Final = 1.5


async def pause(server: EmbeddedZooKeeper) -> None:
    """Pause the server, and wait until all of its threads have stopped: on a busy machine, some run
    on after the signal. Systems without /proc stop a process at once.
    """
    server.pause()
    threads = Path(f"/proc/{server.pid}/task")
    while any(_state(path / "stat") not in "Tt" for path in threads.glob("*")):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return "T"


class ZooKeeperService:
    """Stores that a test opened below one chroot."""

    def __init__(
        self, uri: str, *, session_timeout_s: float = 6.0, operation_timeout_s: float = 15.0
    ) -> None:
        self.uri = uri
        self.session_timeout_s = session_timeout_s
        self.operation_timeout_s = operation_timeout_s
        self.stores: list[MetadataStore] = []

    async def connect(self) -> MetadataStore:
        store = await open_store(
            self.uri,
            rng=random.Random(len(self.stores)),
            operation_timeout_s=self.operation_timeout_s,
            session_timeout_s=self.session_timeout_s,
        )
        self.stores.append(store)
        return store

    def hurry(self, store: MetadataStore) -> None:
        """Have the later calls of a store, to a server that does not answer, wait for a short
        time.
        """
        assert isinstance(store, ZooKeeperMetadataStore)
        store._operation_timeout_s = HURRIED_S

    async def interrupt(self, store: MetadataStore) -> None:
        """Cut the connection; kazoo makes another one for the same session."""
        assert isinstance(store, ZooKeeperMetadataStore)
        store._session.cut()

    async def expire(self, store: MetadataStore) -> None:
        """Close the session from another connection; the server then ends it for both."""
        assert isinstance(store, ZooKeeperMetadataStore)
        other = KazooClient(
            hosts=self.uri.removeprefix("zk://").partition("/")[0],
            client_id=store._session._client.client_id,
            timeout=self.session_timeout_s,
        )

        def take_over_and_close() -> None:
            other.start()
            other.stop()
            other.close()

        await asyncio.to_thread(take_over_and_close)

    async def aclose(self) -> None:
        for store in self.stores:
            await store.aclose()
