"""One ephemeral node, kept in place across sessions.

Leaves the content of the node to its owner (`registrar.py`, `broker_registry.py`).

Invariants: a node with another incarnation is removed or overwritten only if the caller knows that
this incarnation is dead; a node from an earlier session of this process is replaced, because it is
about to vanish.

Source: protocol rules 2.1 and 9.2.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import (
    MetadataError,
    NameHeldError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.records import INT64_MAX, Count, codec_of
from metadata.store.interface import Cancel, MetadataStore, SessionState, find

INCARNATION_BYTES: Final = 16
HELD_WAIT_S: Final = 30.0
HELD_POLL_S: Final = 0.2
REMOVE_S_MAX: Final = 5.0
"""Maximum time to remove the node at the end; a service that is away must not delay a stop."""


@dataclass(frozen=True, slots=True)
class HeldNode:
    """Value of an ephemeral node: the incarnation and session that hold it, and its content."""

    incarnation: bytes
    session_id: Count
    content: bytes

    def is_of(self, incarnation: bytes, session_id: int) -> bool:
        """Return whether this incarnation made the node in this session."""
        return (self.incarnation, self.session_id) == (incarnation, session_id & INT64_MAX)


HELD_CODEC: Final = codec_of(HeldNode)


def pack_held(held: HeldNode) -> bytes:
    """Return the stored form; it holds the lower 63 bits of the session's id."""
    return HELD_CODEC.pack(
        "an ephemeral node", replace(held, session_id=held.session_id & INT64_MAX)
    )


def unpack_held(path: str, value: bytes) -> HeldNode:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    return HELD_CODEC.unpack(path, value)


async def remove_held(store: MetadataStore, path: str, incarnation: bytes) -> None:
    """Remove the node if this incarnation holds it and the store answers within REMOVE_S_MAX.
    Otherwise the end of the session removes it.
    """
    with contextlib.suppress(MetadataError, TimeoutError):
        async with asyncio.timeout(REMOVE_S_MAX):
            stored = await store.get(path, fresh=True)
            if unpack_held(path, stored.value).incarnation == incarnation:
                await store.delete(path, stored.version)


class EphemeralKeeper:
    """Holds one path for this process until `aclose`. `on_lost` is called when another process
    holds the path.
    """

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        content: bytes,
        rng: Random,
        *,
        incarnation: bytes | None = None,
        dead_incarnations: tuple[bytes, ...] = (),
        on_lost: Callable[[NameHeldError], None] | None = None,
    ) -> None:
        """Use the given incarnation of this process, or create one."""
        self._store = store
        self._path = path
        self._content = content
        self._rng = rng
        self._dead_incarnations = dead_incarnations
        self._on_lost = on_lost
        self.incarnation = incarnation or rng.randbytes(INCARNATION_BYTES)
        self._is_wanted = True
        self._wake = asyncio.Event()
        self._cancels: list[Cancel] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self, *, held_wait_s: float = HELD_WAIT_S) -> None:
        """Create the node; wait up to `held_wait_s` for a holder that may be gone.

        Raises NameHeldError if the holder stays, StoreUnavailableError when the store does not
        answer.
        """
        assert self._task is None, "started once"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + held_wait_s
        backoff = Backoff(self._rng)
        while True:
            try:
                if await self._ensure():
                    break
            except NameHeldError:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(HELD_POLL_S)
            except (OutcomeUnknownError, VersionConflictError):
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(backoff.next_s())
        # The watch also fires after every suspension and in every new session.
        self._cancels.append(self._store.watch_value(self._path, self._wake.set))
        # A new session has no node yet, and the watch's call may come late.
        self._cancels.append(self._store.on_session(self._note_session))
        self._task = loop.create_task(self._keep())

    def set_content(self, content: bytes) -> None:
        """Change the node's content as soon as possible."""
        if content != self._content:
            self._content = content
            self._wake.set()

    def want(self, *, held: bool) -> None:
        """Hold the node, or remove it until it is wanted again, as soon as possible."""
        self._is_wanted = held
        self._wake.set()

    async def aclose(self) -> None:
        """Stop keeping the node, and remove it as `remove_held` does."""
        if self._task is None:
            return
        for cancel in self._cancels:
            cancel()
        await cancel_and_wait(self._task)
        await remove_held(self._store, self._path, self.incarnation)

    def _note_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._wake.set()

    async def _keep(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if await self._ensure():
                    backoff.count = 0
                else:
                    self._wake.set()
            except NameHeldError as error:
                if self._on_lost is not None:
                    self._on_lost(error)
                return
            except MetadataError as error:
                if self._store.session_state is SessionState.CLOSED:
                    return
                if not isinstance(error, NodeNotFoundError | VersionConflictError):
                    await asyncio.sleep(backoff.next_s())
                self._wake.set()

    async def _ensure(self) -> bool:
        """Make the node exist with this session and content, or not exist while it is not wanted.
        Returns False if the node must be checked again.
        """
        if not self._is_wanted:
            return await self._remove_own()
        value = pack_held(HeldNode(self.incarnation, self._store.session_id, self._content))
        stored = await find(self._store, self._path)
        if stored is None:
            return await self._create(value)
        if stored.value == value:
            return True
        held = unpack_held(self._path, stored.value)
        if held.is_of(self.incarnation, self._store.session_id):
            await self._store.compare_and_set(self._path, value, stored.version)
            return True
        await self._remove_old(held, stored.version)
        return False

    async def _create(self, value: bytes) -> bool:
        try:
            await self._store.create(self._path, value, ephemeral=True)
        except NodeExistsError:
            return False  # created by another process, or by an earlier attempt of this one
        return True

    async def _remove_own(self) -> bool:
        stored = await find(self._store, self._path)
        if stored is None:
            return True
        if unpack_held(self._path, stored.value).incarnation == self.incarnation:
            await self._store.delete(self._path, stored.version)
        return True

    async def _remove_old(self, held: HeldNode, version: Version) -> None:
        if held.incarnation not in (self.incarnation, *self._dead_incarnations):
            raise NameHeldError(self._path)
        with contextlib.suppress(NodeNotFoundError):
            await self._store.delete(self._path, version)
