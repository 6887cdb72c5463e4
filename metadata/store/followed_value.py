"""Follower of one node's value.

Leaves the meaning of the value to its owners (`metadata.repair.settings`), and nodes below one node
to `child_values.py`.

Invariants: a value is reported as gone only when a successful read shows it, never because the
store does not answer; the last change is always reported.

Source: protocol rule 1.6.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random

from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError, MetadataFormatError
from metadata.store.interface import Cancel, MetadataStore, SessionState, find

_log = logging.getLogger(__name__)


class FollowedValue:
    """Reports the value of `path` until `aclose`.

    `on_value` receives the value when it is new, has changed or may have changed, and None while
    the node does not exist. It may raise MetadataFormatError, which is logged. Any other exception
    of it is reported to the loop, and the value is followed further.
    """

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        rng: Random,
        *,
        on_value: Callable[[bytes | None], None],
    ) -> None:
        self._store = store
        self._path = path
        self._rng = rng
        self._on_value = on_value
        self._lock = asyncio.Lock()
        """Held during reads: of two that overlap, an older answer could come last."""
        self._wake = asyncio.Event()
        self._cancel: Cancel | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the value, and keep following it from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        assert self._task is None, "started once"
        self._cancel = self._store.watch_value(self._path, self._wake.set)
        try:
            await self._read(fresh=True)
        except BaseException:
            self._cancel()
            raise
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def refresh(self) -> None:
        """Read the current value. Raises MetadataError."""
        await self._read(fresh=True)

    async def aclose(self) -> None:
        """Stop following."""
        if self._cancel is not None:
            self._cancel()
        await cancel_and_wait(self._task)

    async def _follow(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._read(fresh=False)
                backoff.count = 0
            except MetadataError as error:
                if self._store.session_state is SessionState.CLOSED:
                    return
                _log.debug("cannot read %s, keeping the last known value: %s", self._path, error)
                self._wake.set()
                await asyncio.sleep(backoff.next_s())

    async def _read(self, *, fresh: bool) -> None:
        async with self._lock:
            stored = await find(self._store, self._path, fresh=fresh)
            self._report(None if stored is None else stored.value)

    def _report(self, value: bytes | None) -> None:
        try:
            self._on_value(value)
        except MetadataFormatError as error:
            _log.warning("ignoring the value of %s: %s", self._path, error)
        except Exception as error:  # noqa: BLE001 - it is reported; the value is still followed
            what = {"message": f"a change of {self._path}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)
