"""Election of one broker as the controller.

Leaves what a controller does to the brokers. A controller changes topics by compare-and-set alone,
so two brokers that both act as controller for a moment do no harm.

Format: the value of `/controller` is that of an ephemeral node (`ephemeral.py`); its content is a
msgpack array [1, broker id int].

Invariants: at most one live session holds the node; a broker whose session ended, by its own clock,
stops being the controller before another one can become it.

Source: topics design, "The mapping", "What a takeover does"; protocol rule 1.2.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.callbacks import Callbacks
from metadata.cancelling import cancel_and_wait
from metadata.errors import (
    MetadataError,
    MetadataFormatError,
    NodeExistsError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.msgpack_fields import FieldError, int_of, pack, unpack_versioned
from metadata.paths import CONTROLLER
from metadata.store.ephemeral import INCARNATION_BYTES, HeldNode, pack_held, unpack_held
from metadata.store.interface import Cancel, MetadataStore, SessionState, find
from metadata.topics.topic import BROKER_ID_MAX

_FORMAT_VERSION: Final = 1
_INT64_MAX: Final = 2**63 - 1

_log = logging.getLogger(__name__)


class ControllerElection:
    """Candidacy of one broker, from `start` to `aclose`. It stays the controller while it can."""

    def __init__(self, store: MetadataStore, broker_id: int, rng: Random) -> None:
        self._store = store
        self._broker_id = broker_id
        self._rng = rng
        self._incarnation = rng.randbytes(INCARNATION_BYTES)
        self._controller_id: int | None = None
        self._held_session_id: int | None = None
        self._callbacks = Callbacks[()]()
        self._wake = asyncio.Event()
        self._cancels: list[Cancel] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as its session shows."""
        return self._held_session_id == self._store.session_id and self._store.session_state in (
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
        )

    @property
    def controller_id(self) -> int | None:
        """Id of the controller as last known; None when there is none."""
        return self._controller_id

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back when `controller_id` or `is_controller` may have changed."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Become a candidate; `on_change` reports the outcome."""
        assert self._task is None, "started once"
        # The watch also fires after every suspension and in every new session.
        self._cancels = [
            self._store.watch_value(CONTROLLER, self._wake.set),
            self._store.on_session(self._note_session),
        ]
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def aclose(self) -> None:
        """Stop being the controller: at once if the store answers, else when the session ends."""
        if self._task is None:
            return
        for cancel in self._cancels:
            cancel()
        await cancel_and_wait(self._task)
        self._note(self._controller_id, None)
        with contextlib.suppress(MetadataError):
            stored = await self._store.get(CONTROLLER, fresh=True)
            if unpack_held(CONTROLLER, stored.value).incarnation == self._incarnation:
                await self._store.delete(CONTROLLER, stored.version)

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
                _log.debug("the controller is unknown: %s", error)
                self._wake.set()
                await asyncio.sleep(backoff.next_s())

    async def _elect(self) -> bool:
        """Become the controller if there is none, or learn which broker is. Returns False if the
        state must be read again.
        """
        stored = await find(self._store, CONTROLLER)
        if stored is None:
            with contextlib.suppress(NodeExistsError):
                await self._store.create(CONTROLLER, self._value(), ephemeral=True)
            return False
        held = unpack_held(CONTROLLER, stored.value)
        if held.incarnation != self._incarnation:
            self._note(_broker_id_of(held), None)
            return True
        if held.session_id == self._store.session_id & _INT64_MAX:
            self._note(self._broker_id, self._store.session_id)
            return True
        # The node is from an earlier session of this process: it is about to vanish.
        with contextlib.suppress(NodeNotFoundError, VersionConflictError):
            await self._store.delete(CONTROLLER, stored.version)
        return False

    def _value(self) -> bytes:
        content = pack(CONTROLLER, [_FORMAT_VERSION, self._broker_id])
        return pack_held(HeldNode(self._incarnation, self._store.session_id, content))

    def _note_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and self._held_session_id is not None:
            self._note(None, None)
        self._wake.set()

    def _note(self, controller_id: int | None, held_session_id: int | None) -> None:
        if (controller_id, held_session_id) == (self._controller_id, self._held_session_id):
            return
        self._controller_id, self._held_session_id = controller_id, held_session_id
        self._callbacks.notify()


def _broker_id_of(held: HeldNode) -> int:
    fields = unpack_versioned(CONTROLLER, held.content, _FORMAT_VERSION, 2)
    try:
        return int_of(fields[1], 0, BROKER_ID_MAX)
    except FieldError as error:
        raise MetadataFormatError(CONTROLLER, str(error)) from error
