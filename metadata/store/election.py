"""Election of one process, by an ephemeral node that only one session can hold.

Leaves what the elected process does, and the content of the node, to its owner
(`metadata.brokers.election`, `metadata.repair.auditor_election`).

Invariants: at most one live session holds the node; a process whose session ended, by its own
clock, stops being elected before another one can be.

Source: topics design, "What a takeover does"; protocol rule 1.2.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from metadata.backoff import Backoff
from metadata.callbacks import Callbacks
from metadata.cancelling import cancel_and_wait
from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.records import Codec
from metadata.store.ephemeral import (
    INCARNATION_BYTES,
    HeldNode,
    pack_held,
    remove_held,
    unpack_held,
)
from metadata.store.interface import Cancel, MetadataStore, SessionState, find

_log = logging.getLogger(__name__)

Candidate = TypeVar("Candidate")


class Election(Generic[Candidate]):
    """Candidacy of one process, from `start` to `aclose`. It stays elected while it can.

    `codec` reads and writes the content of the node; while it cannot be read, the election waits.
    """

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        codec: Codec[Candidate],
        candidate: Candidate,
        rng: Random,
    ) -> None:
        self._store = store
        self._path = path
        self._candidate = candidate
        self._rng = rng
        self._codec = codec
        self._content = codec.pack(path, candidate)
        self._incarnation = rng.randbytes(INCARNATION_BYTES)
        self._elected: Candidate | None = None
        self._held_session_id: int | None = None
        self._callbacks = Callbacks[()]()
        self._wake = asyncio.Event()
        self._cancels: list[Cancel] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_elected(self) -> bool:
        """Whether this process is elected, as far as its session shows."""
        return self._held_session_id == self._store.session_id and self._store.session_state in (
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
        )

    @property
    def elected(self) -> Candidate | None:
        """The elected candidate as last known; None when there is none."""
        return self._elected

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back when `elected` or `is_elected` may have changed."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Become a candidate; `on_change` reports the outcome."""
        assert self._task is None, "started once"
        # The watch also fires after every suspension and in every new session.
        self._cancels = [
            self._store.watch_value(self._path, self._wake.set),
            self._store.on_session(self._note_session),
        ]
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def aclose(self) -> None:
        """Stop being elected; the node is removed as `remove_held` does."""
        if self._task is None:
            return
        for cancel in self._cancels:
            cancel()
        await cancel_and_wait(self._task)
        self._note(self._elected, None)
        await remove_held(self._store, self._path, self._incarnation)

    async def _follow(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while not await self._elect():
                    pass
                backoff.count = 0
            except MetadataError as error:
                if self._store.session_state is SessionState.CLOSED:
                    return
                _log.debug("the holder of %s is unknown: %s", self._path, error)
                self._wake.set()
                await asyncio.sleep(backoff.next_s())

    async def _elect(self) -> bool:
        """Become elected if no process is, or learn which one is. Returns False if the state must
        be read again.
        """
        stored = await find(self._store, self._path)
        if stored is None:
            with contextlib.suppress(NodeExistsError):
                await self._store.create(self._path, self._value(), ephemeral=True)
            return False
        held = unpack_held(self._path, stored.value)
        if held.incarnation != self._incarnation:
            self._note(self._codec.unpack(self._path, held.content), None)
            return True
        if held.is_of(self._incarnation, self._store.session_id):
            self._note(self._candidate, self._store.session_id)
            return True
        # The node is from an earlier session of this process: it is about to vanish.
        with contextlib.suppress(NodeNotFoundError, VersionConflictError):
            await self._store.delete(self._path, stored.version)
        return False

    def _value(self) -> bytes:
        return pack_held(HeldNode(self._incarnation, self._store.session_id, self._content))

    def _note_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and self._held_session_id is not None:
            self._note(None, None)
        self._wake.set()

    def _note(self, elected: Candidate | None, held_session_id: int | None) -> None:
        if (elected, held_session_id) == (self._elected, self._held_session_id):
            return
        self._elected, self._held_session_id = elected, held_session_id
        self._callbacks.notify()
