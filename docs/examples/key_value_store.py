"""Replicated key-value store: a write-ahead ledger, snapshots, a leader that changes, replicas.

The store is a chain of ledgers. A link of the chain holds the log of one leader, or a snapshot and
the log that continues it.

1. The leader appends a change to its log, and applies the change once it is confirmed. So the log
   decides the order, and every state is the result of a prefix of the log.
2. A new leader recovers the last log, which ends the leader before it. Then it publishes a log of
   its own as link number n, with n as the number of the batch. Of two candidates that read the same
   chain, the second one finds the batch published, and has lost.
3. A snapshot is the state at the end of a log. The leader publishes it, with the next log, in place
   of all earlier links. The chain deletes their ledgers after a grace period.
4. A replica follows the links in order. If it is behind a snapshot, it starts again from there.

Run it with QUIRE_METADATA set: `python docs/examples/key_value_store.py lead NAME` reads commands
from standard input (`set KEY VALUE`, `unset KEY`, `get KEY`, `snapshot`). `... follow NAME` prints
each change.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Self

from ledger_client import (
    Chain,
    ChainLink,
    LedgerClient,
    LedgerInfo,
    LedgerNotFoundError,
    LedgerWriter,
    Quorum,
)

QUORUM = Quorum(ensemble=3, write=3, ack=2)
PAIRS_PER_STEP = 1000
"""Number of pairs of a snapshot that are encoded at a time."""
GRACE_S = 3600.0
"""Age at which the ledgers of a replaced log are deleted: longer than a replica reads one."""
CHANGE_WAIT_S = 60.0

Change = tuple[str, str | None]
"""A key and its new value; None removes the key."""


class DeposedError(Exception):
    """Another leader was elected: this store takes no more changes."""


def encoded(key: str, value: str | None) -> bytes:
    """Return one change as an entry."""
    return json.dumps([key, value]).encode()


def apply(state: dict[str, str], entry: bytes) -> Change:
    """Apply the change of one entry to a state; return the change."""
    key, value = json.loads(entry)
    if value is None:
        state.pop(key, None)
    else:
        state[key] = value
    return key, value


class Leader:
    """Store that takes changes until another leader is elected. Created by `lead`."""

    def __init__(self, client: LedgerClient, chain: Chain, log: LedgerWriter) -> None:
        self._client = client
        self._chain = chain
        self._log = log
        self._index = -1
        self._state: dict[str, str] = {}
        self._changes: set[asyncio.Task[None]] = set()
        self._takes_changes = asyncio.Event()

    @classmethod
    async def lead(cls, client: LedgerClient, name: str) -> Self:
        """End the leader before this one, and lead. Raises DeposedError if another one was elected
        meanwhile.
        """
        chain = client.chain(name)
        await chain.create(exist_ok=True)
        info = await chain.info()
        log = await client.create_ledger(QUORUM, metadata=chain.custom_metadata)
        leader = cls(client, chain, log)
        async for index, link in chain.links(info.first_index, info.next_index):
            await leader._replay(index, link)
        await leader._publish([log.info], info.next_index)
        leader._takes_changes.set()
        return leader

    def get(self, key: str) -> str | None:
        """Return a value as it is known here: an old one if another leader was elected."""
        return self._state.get(key)

    async def read(self, key: str) -> str | None:
        """Return a value that is not older than this call: an entry, which removes the key "", is
        confirmed first. That fails if another leader was elected.
        """
        await self.set("", None)
        return self._state.get(key)

    async def set(self, key: str, value: str | None) -> None:
        """Set a key, or remove it with None. Returns once the change is durable and applied.

        If the caller is cancelled, or gets an error, the change may be made nevertheless. Its
        append continues, so the state here lacks no entry of the log.
        """
        await self._takes_changes.wait()
        change = asyncio.create_task(self._append(encoded(key, value)))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        await asyncio.shield(change)

    async def snapshot(self) -> None:
        """Write the state, and begin a log after it. Changes wait meanwhile. After an error, this
        store takes no more changes.
        """
        self._takes_changes.clear()
        try:
            if self._changes:
                await asyncio.wait(self._changes)
            await self._log.aclose()
            metadata = self._chain.custom_metadata
            async with self._client.create_ledger(QUORUM, metadata=metadata) as snapshot:
                pairs = list(self._state.items())
                for start in range(0, len(pairs), PAIRS_PER_STEP):
                    part = pairs[start : start + PAIRS_PER_STEP]
                    await snapshot.append_many([encoded(*pair) for pair in part])
            self._log = await self._client.create_ledger(QUORUM, metadata=metadata)
            await self._publish([snapshot.info, self._log.info], self._index + 1, replaces=True)
        finally:
            self._takes_changes.set()  # after an error, the closed log refuses them
        await self._chain.collect(GRACE_S)

    async def aclose(self) -> None:
        """End the log. The next leader continues after its last entry."""
        await self._log.aclose()

    async def _replay(self, index: int, link: ChainLink | None) -> None:
        if link is None:
            raise DeposedError(f"another leader wrote a snapshot and removed link {index}")
        for linked in link.ledgers:
            await self._client.recover_ledger(linked.ledger_id)  # a closed ledger stays as it is
            async with self._client.open_ledger(linked.ledger_id) as reader:
                async for batch in reader.read():
                    for entry in batch:
                        apply(self._state, entry.data)

    async def _publish(
        self, ledgers: list[LedgerInfo], index: int, *, replaces: bool = False
    ) -> None:
        published = await self._chain.publish(
            ledgers, application="leader", batch=index, replaces=replaces
        )
        if not published.is_new:
            await self._log.abort()  # it is not linked: `collect` deletes it
            raise DeposedError(f"another leader of {self._chain.name!r} published link {index}")
        self._index = index

    async def _append(self, entry: bytes) -> None:
        await self._log.append(entry)  # appends are confirmed, and continue here, in their order
        apply(self._state, entry)


class Replica:
    """Copy of the state that follows the log of whichever store leads."""

    def __init__(self, client: LedgerClient, name: str) -> None:
        self._client = client
        self._chain = client.chain(name)
        self.state: dict[str, str] = {}

    async def changes(self) -> AsyncIterator[Change]:
        """Yield each change after it is applied to `state`. After a snapshot that this replica did
        not reach in time, `state` begins empty again.
        """
        info = await self._chain.info()
        index = -1
        while True:
            if index < info.first_index:
                index = info.first_index
                self.state.clear()
            if index == info.next_index:
                info = await self._chain.wait_changed(info, timeout=CHANGE_WAIT_S)
                continue
            try:
                async for change in self._changes_of(index):
                    yield change
            except LedgerNotFoundError:
                info = await self._chain.info()
                if index >= info.first_index:
                    raise  # not because of a snapshot
            else:
                index += 1
                info = await self._chain.info()

    async def _changes_of(self, index: int) -> AsyncIterator[Change]:
        async for _, link in self._chain.links(index, index + 1):
            if link is None:
                raise LedgerNotFoundError(f"link {index} was removed")
            ledgers = link.ledgers
            if self.state:
                ledgers = ledgers[-1:]  # the snapshot before the log is this state
            for linked in ledgers:
                async with self._client.open_ledger(linked.ledger_id) as reader:
                    async for batch in reader.tail():
                        for entry in batch:
                            yield apply(self.state, entry.data)


async def obey(leader: Leader) -> None:
    """Run commands from standard input until it ends."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.split(maxsplit=2):
            case ["set", key, value]:
                await leader.set(key, value.strip())
                print("ok", flush=True)
            case ["unset", key]:
                await leader.set(key, None)
                print("ok", flush=True)
            case ["get", key]:
                print(await leader.read(key), flush=True)
            case ["snapshot"]:
                await leader.snapshot()
                print("ok", flush=True)
            case _:
                print("commands: set KEY VALUE, unset KEY, get KEY, snapshot", flush=True)


async def main(role: str, name: str) -> None:
    """Lead or follow a store."""
    async with LedgerClient(os.environ["QUIRE_METADATA"]) as client:
        if role == "lead":
            leader = await Leader.lead(client, name)
            print("leading", flush=True)
            await obey(leader)
            await leader.aclose()
        else:
            async for key, value in Replica(client, name).changes():
                if key:  # else an entry of `read`
                    print(key, "removed" if value is None else value, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
