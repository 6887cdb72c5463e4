"""Metadata service of a transcript of one bookie: late reads, held requests, other processes.

Leaves the events that cause these to `bookie_player.py`.
"""

import asyncio
import copy
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from typing_extensions import override  # `typing` has it from 3.12 on

from bookie.identity.identity import Identity
from bookie.identity.metadata_age import MetadataAge
from bookie.identity.position import PositionCallbacks, PositionClaim, PositionKeeper
from bookie.server.access import ServerAccess
from bookie.server.server_context import ServerContext
from bookie.server.server_limits import ServerCounters, ServerLimits
from bookie.storage.bookie_storage import BookieStorage
from metadata.ids import BookieId
from metadata.paths import bookie_path
from metadata.registry.positions import PositionStore
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.repair.repair_key import read_repair_key
from metadata.restore.restore_record import accept_restore
from metadata.store.ephemeral import INCARNATION_BYTES, HeldNode, pack_held
from metadata.store.interface import MetadataStore
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.memory_faults import NoFaults, StoreCall
from metadata.store.memory_tree import MemoryTree
from quire.server.server_log import ServerLog
from tests.simulation.disk import CrashableDisk
from tests.simulation.loop import simulation_loop
from tests.support.metadata.dumps import dump_of, restore

RECORD_INTERVAL_S: Final = 0.1


class MetadataFaults(NoFaults):
    """Delays what the bookie's session reads, or holds one of its requests."""

    def __init__(self) -> None:
        self.bookie_session = -1
        self.standing = "metadata-is-fresh"
        self.requests_until_held = 0
        self.released = asyncio.Event()

    @override
    async def before(self, call: StoreCall) -> None:
        await super().before(call)
        if call.session_id == self.bookie_session and self.requests_until_held:
            self.requests_until_held -= 1
            if not self.requests_until_held:
                await self.released.wait()

    @override
    def missed_changes(self, call: StoreCall) -> int:
        is_stale = self.standing == "metadata-leader-is-replaced" or (
            self.standing == "metadata-is-stale" and not call.is_fresh
        )
        return 1_000 if is_stale and call.session_id == self.bookie_session else 0


@dataclass(slots=True)
class KeptMetadata:
    """Data of the metadata service as it was before: a backup of it, and the lines of a dump."""

    backup: MemoryTree
    dump: list[bytes]

    async def change(
        self, how: str, server: MemoryMetadataServer, store: MemoryMetadataStore
    ) -> None:
        """Keep the data, or replace it by what was kept; what a backup replaces is kept then."""
        match how:
            case "back-up-metadata":
                self.backup = copy.deepcopy(server.tree)
            case "restore-metadata":
                server.tree, self.backup = copy.deepcopy(self.backup), server.tree
            case "dump-metadata":
                self.dump = await dump_of(store)
            case "restore-dump":
                server.tree = MemoryTree()
                await restore(store, self.dump)
            case _:
                await accept_restore(store)


async def record_as_another(store: MetadataStore, bookie_id: BookieId) -> None:
    """Record a bookie's position as a process other than the one that recorded it last."""
    positions = PositionStore(store)
    found = await positions.get(bookie_id)
    assert found.record is not None
    other = replace(found.record, incarnation=b"another process!")
    await positions.put(bookie_id, other, found.version)


async def register_another(store: MetadataStore, bookie_id: BookieId) -> None:
    """Register the bookie for a process of another session, at an address where none listens."""
    content = REGISTRATION_CODEC.pack("a registration", BookieRegistration(bookie_id, "another", 1))
    value = pack_held(HeldNode(b"another process!", 1, content))
    await store.create(bookie_path(bookie_id), value, ephemeral=True)


def context_of(store: MetadataStore, bookie_id: BookieId, storage: BookieStorage) -> ServerContext:
    """Return the state that the connections to a bookie share."""
    now = simulation_loop().time
    access = ServerAccess(partial(read_repair_key, store), now)
    limits, counters = ServerLimits(), ServerCounters()
    return ServerContext(bookie_id, storage, access, limits, counters, ServerLog(now), now)


@dataclass(frozen=True, slots=True)
class Claimed:
    """Objects that a start made before it served."""

    age: MetadataAge
    keeper: PositionKeeper
    recording: "asyncio.Task[None]"


async def claim(
    store: MetadataStore,
    identity: Identity,
    disk: CrashableDisk,
    context: ServerContext,
    lines: list[str],
) -> Claimed:
    """Compare the service's age and claim the position, as a start does before it serves."""
    rng = Random(f"run {identity.starts}")
    age = MetadataAge(disk, store, rng, identity.bookie_id, context.storage.writability)
    await age.restore()
    keeper = PositionKeeper(
        store,
        PositionClaim(
            identity.bookie_id, rng.randbytes(INCARNATION_BYTES), identity.files, identity.lock
        ),
        identity.position,
        context.storage.log,
        interval_s=RECORD_INTERVAL_S,
        rng=rng,
        log=context.log,
        callbacks=PositionCallbacks(
            lambda error: lines.append(f"ended {type(error).__name__}"),
            age.note_recorded,
            age.may_collect,
        ),
    )
    await keeper.claim()
    return Claimed(age, keeper, asyncio.get_running_loop().create_task(keeper.run()))
