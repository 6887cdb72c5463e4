"""Process that holds a session with the metadata service, uses it, and records every call.

    python -m tests.campaign.zookeeper.holder --uri zk://... --record FILE --name h0 --seed N

All such processes write one register by compare-and-set, read it in each of the three ways, watch
it, and own an ephemeral node. Leaves judging to `judge`. On SIGTERM it waits until its watch has
reported the last write, and ends.
"""

import argparse
import asyncio
import contextlib
import signal
import time
from pathlib import Path
from random import Random
from typing import Final

from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.store.interface import MetadataStore, SessionState
from metadata.store.zookeeper.store import open_store
from tests.campaign.orphans import end_with_parent
from tests.campaign.zookeeper.record import Change, Complaint, Read, RecordFile, Write

REGISTER: Final = "/campaign/register"
LIVE: Final = "/campaign/live"
READ_KINDS: Final = ("plain", "plain", "fresh", "agreed")
WRITE_SHARE: Final = 0.4
GAP_S: Final = (0.02, 0.15)
NODE_GAP_S: Final = 0.5
POLL_S: Final = 1.0
WATCHED_S_MAX: Final = 20.0


class Holder:
    """One session."""

    def __init__(self, store: MetadataStore, file: RecordFile, name: str, rng: Random) -> None:
        self._store = store
        self._file = file
        self._name = name
        self._rng = rng
        self._writes = 0
        self._version = 0
        """Newest version that this process knows."""
        self._watched = 0
        """Newest version that was read after a call of the watch."""
        self._changed = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Use the session until the stop."""
        self._session_changed(self._store.session_state)
        self._store.on_session(self._session_changed)
        self._store.watch_value(REGISTER, self._changed.set)
        watching = asyncio.create_task(self._follow())
        owning = asyncio.create_task(self._own_node())
        polling = asyncio.create_task(self._poll())
        while not stopping.is_set():
            if self._rng.random() < WRITE_SHARE:
                await self._write()
            else:
                await self._read(self._rng.choice(READ_KINDS))
            await asyncio.sleep(self._rng.uniform(*GAP_S))
        owning.cancel()
        polling.cancel()
        await self._expect_news()
        watching.cancel()

    def _session_changed(self, state: SessionState) -> None:
        self._file.tell(Change(time.time(), state.value, self._store.session_id))

    async def _write(self) -> None:
        self._writes += 1
        value, expected, began = f"{self._name}/{self._writes}", self._version, time.time()
        try:
            await self._store.compare_and_set(REGISTER, value.encode(), Version(expected))
        except VersionConflictError:
            outcome = "conflict"
        except OutcomeUnknownError:
            outcome = "unknown"
        except StoreUnavailableError:
            outcome = "unavailable"
        else:
            outcome = "applied"
            self._version = max(self._version, expected + 1)
        self._file.tell(Write(began, time.time(), expected, value, outcome))
        if outcome != "applied":
            await self._read("fresh")

    async def _read(self, kind: str) -> int | None:
        began = time.time()
        try:
            stored = await self._store.get(REGISTER, fresh=kind == "fresh", agreed=kind == "agreed")
        except StoreUnavailableError as error:
            self._file.tell(Read(began, time.time(), kind, error=str(error)))
            return None
        version, value = int(stored.version), stored.value.decode()
        self._file.tell(Read(began, time.time(), kind, version, value))
        self._version = max(self._version, version)
        return version

    async def _poll(self) -> None:
        """Read once a second, also while earlier reads have no answer."""
        async with asyncio.TaskGroup() as reads:
            while True:
                reads.create_task(self._read("plain"))
                await asyncio.sleep(POLL_S)

    async def _follow(self) -> None:
        """Read again after each call of the watch, as every user of a watch must."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            version = await self._read("plain")
            if version is None:
                self._changed.set()
            else:
                self._watched = max(self._watched, version)

    async def _expect_news(self) -> None:
        """Require that the watch reports what an agreed read returns, while nothing is missing."""
        version = await self._read("agreed")
        try:
            async with asyncio.timeout(WATCHED_S_MAX):
                while version is None or self._watched < version:
                    await asyncio.sleep(0.05)
                    version = version or await self._read("agreed")
        except TimeoutError:
            text = f"no watch reported version {version}: the newest was {self._watched}"
            self._file.tell(Complaint(time.time(), text))

    async def _own_node(self) -> None:
        """Keep an ephemeral node of the current session, and require that it exists."""
        while True:
            session = self._store.session_id
            path = f"{LIVE}/{self._name}-{session:x}"
            with contextlib.suppress(StoreUnavailableError, OutcomeUnknownError):
                with contextlib.suppress(NodeExistsError):
                    await self._store.create(path, b"", ephemeral=True)
                while self._store.session_id == session:
                    await self._require_node(path, session)
                    await asyncio.sleep(NODE_GAP_S)
            await asyncio.sleep(NODE_GAP_S)

    async def _require_node(self, path: str, session: int) -> None:
        try:
            await self._store.get(path)
        except NodeNotFoundError:
            if self._store.session_id == session:
                text = f"the node of the session {session:x} is gone, and its reads are answered"
                self._file.tell(Complaint(time.time(), text))
                raise StoreUnavailableError(self._store.address, text) from None


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uri", required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", required=True)
    given = parser.parse_args()
    asyncio.run(_run(given.uri, given.record, given.name, Random(f"{given.seed}/{given.name}")))


async def _run(uri: str, record: Path, name: str, rng: Random) -> None:
    end_with_parent()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    store = await open_store(uri, rng=rng)
    with contextlib.suppress(NodeExistsError):
        await store.create(REGISTER, b"")
    await Holder(store, RecordFile(record), name, rng).run(stopping)
    await store.aclose()


if __name__ == "__main__":
    main()
