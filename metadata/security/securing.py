"""Rights of all existing nodes: set by the table, or opened again.

Leaves the rights of new nodes to `followed_rights.py`, which every store that logs in
follows, and the rights themselves to `metadata.paths`.

Invariants: the record changes before the first node, so that a node is created with the new rights
while the walk goes on; a process that would lose its own rights changes nothing; a walk is repeated
until one finds nothing to change, at most PASSES_MAX times; each step may be repeated after an
interruption.

Source: docs/security.md, "ZooKeeper"; protocol rule 1.3.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from metadata.backoff import Backoff
from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.ledgers.ledger_ids import FIRST_ID
from metadata.paths import ALL, LEDGER_IDS, NODE_RIGHTS, ROOT, made_for_clients
from metadata.restore.dump_contents import root_names
from metadata.security.access_errors import AccessRefusedError, NotAServerError
from metadata.security.rights_record import (
    OPEN,
    RIGHTS_NODE,
    AccessEntry,
    AccessList,
    NodeRights,
)
from metadata.store.interface import MetadataStore, find
from metadata.store.number_blocks import pack_block

AT_ONCE_MAX: Final = 64
"""Maximum number of nodes that are read and changed at once."""
PASSES_MAX: Final = 10
ATTEMPTS_MAX: Final = 20
"""Maximum number of attempts at one change whose outcome is unknown."""
REFUSED_MAX: Final = 1_000
"""Maximum number of refused nodes that an outcome names."""

OnChange = Callable[[str, AccessList, AccessList], None]


class ProtectedStore(MetadataStore, Protocol):
    """A store whose nodes have rights."""

    async def access_to(self, path: str) -> AccessList:
        """Return the rights on a node. Raises NodeNotFoundError."""

    async def set_access(self, path: str, access: AccessList) -> None:
        """Replace the rights on a node. Raises NodeNotFoundError."""


@dataclass(slots=True)
class Outcome:
    """Result of the walks."""

    node_count: int = 0
    """Number of nodes that the last walk found."""
    changed_count: int = 0
    """Number of nodes that all walks changed, or would change."""
    refused: list[str] = field(default_factory=list)
    """Nodes whose rights this login may not read or change, at most REFUSED_MAX."""
    is_settled: bool = False
    """Whether the last walk found nothing to change."""


def _ignore(_path: str, _found: AccessList, _wanted: AccessList) -> None:
    """Do nothing."""


class Securing:
    """One change of the rights of all nodes."""

    def __init__(
        self,
        store: ProtectedStore,
        rng: Random,
        rights: NodeRights,
        *,
        on_change: OnChange = _ignore,
        on_walked: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._store = store
        self._rng = rng
        self._rights = rights
        self._on_change = on_change
        self._on_walked = on_walked
        self._outcome = Outcome()

    async def plan(self) -> Outcome:
        """Walk, and change nothing. Raises MetadataError."""
        await self._walk(changes=False)
        return self._outcome

    async def apply(self) -> Outcome:
        """Store the record, then set the rights of every node. Raises MetadataError,
        NotAServerError before anything is changed.
        """
        if not self._rights.is_open:
            await self._check_own_rights()
        await self._store_record()
        if not self._rights.is_open:
            await self._make_nodes_of_clients()
        for _ in range(PASSES_MAX):
            if await self._walk(changes=True) == 0:
                self._outcome.is_settled = True
                break
        if self._rights.is_open and self._outcome.is_settled:
            await self._remove_record()
        return self._outcome

    async def _check_own_rights(self) -> None:
        """Raise NotAServerError unless this login is one of the servers. A node shows it, which
        ends with this session.
        """
        path = f"{NODE_RIGHTS}-check-{self._rng.randbytes(8).hex()}"
        await self._store.create(path, b"", ephemeral=True)
        servers = tuple(AccessEntry(server, ALL) for server in self._rights.servers)
        try:
            await self._store.set_access(path, servers)
            await self._store.get(path)
        except AccessRefusedError:
            raise NotAServerError(self._store.address) from None
        finally:
            with contextlib.suppress(MetadataError):  # else the end of the session removes it
                await self._store.delete(path, Version(0))

    async def _store_record(self) -> None:
        """Store who the servers and clients are. Other processes follow it."""
        value = RIGHTS_NODE.pack(self._rights)
        for is_last in self._attempts():
            try:
                stored = await find(self._store, NODE_RIGHTS)
                if stored is None:
                    await self._store.create(NODE_RIGHTS, value)
                elif stored.value != value:
                    await self._store.compare_and_set(NODE_RIGHTS, value, stored.version)
                break
            except (NodeExistsError, VersionConflictError, OutcomeUnknownError):
                if is_last:
                    raise
                await asyncio.sleep(Backoff(self._rng).next_s())
        await self._set_access(NODE_RIGHTS, self._rights.access_to(NODE_RIGHTS))

    async def _remove_record(self) -> None:
        """Remove the record of an open cluster: nothing refers to it."""
        stored = await find(self._store, NODE_RIGHTS)
        if stored is not None and stored.value == RIGHTS_NODE.pack(OPEN):
            with contextlib.suppress(NodeNotFoundError, VersionConflictError, OutcomeUnknownError):
                await self._store.delete(NODE_RIGHTS, stored.version)

    async def _make_nodes_of_clients(self) -> None:
        """Make the nodes that clients may not create in the root."""
        made = [(path, b"") for path in made_for_clients()]
        for path, value in (*made, (LEDGER_IDS, pack_block(LEDGER_IDS, FIRST_ID))):
            with contextlib.suppress(NodeExistsError, OutcomeUnknownError):
                await self._store.create(path, value)

    async def _walk(self, *, changes: bool) -> int:
        """Visit every node from the root; return how many had other rights."""
        outcome = self._outcome
        outcome.node_count, outcome.refused = 0, []
        before = outcome.changed_count
        waiting = [ROOT]
        while waiting:
            paths = [waiting.pop() for _ in range(min(AT_ONCE_MAX, len(waiting)))]
            children = await asyncio.gather(*[self._visit(path, changes=changes) for path in paths])
            outcome.node_count += len(paths)
            self._on_walked(len(paths))
            for below in children:
                waiting += below
        return outcome.changed_count - before

    async def _visit(self, path: str, *, changes: bool) -> Sequence[str]:
        """Check one node; return the paths below it."""
        wanted = self._rights.access_to(path)
        try:
            access = await self._store.access_to(path)
            if access != wanted:
                if changes:
                    await self._set_access(path, wanted)
                self._outcome.changed_count += 1
                self._on_change(path, access, wanted)
            if path == ROOT:
                return [f"/{name}" for name in await root_names(self._store)]
            return [f"{path}/{name}" for name in await self._store.children(path)]
        except NodeNotFoundError:
            return []  # removed since it was listed
        except AccessRefusedError:
            if len(self._outcome.refused) < REFUSED_MAX:
                self._outcome.refused.append(path)
            return []

    async def _set_access(self, path: str, wanted: AccessList) -> None:
        """Set the rights of a node; the same rights may be set again."""
        for is_last in self._attempts():
            try:
                await self._store.set_access(path, wanted)
                return
            except OutcomeUnknownError:
                if is_last:
                    raise
                await asyncio.sleep(Backoff(self._rng).next_s())

    def _attempts(self) -> Iterator[bool]:
        """Yield whether each attempt is the last one."""
        for attempt in range(ATTEMPTS_MAX):
            yield attempt == ATTEMPTS_MAX - 1
