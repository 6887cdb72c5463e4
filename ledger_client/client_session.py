"""Start, open handles and end of one client.

Leaves the calls that users make to `ledger_client.client`, and the shared parts to
`client_services`. Writers are imported when the first ledger is created, and recovery when the
first ledger is recovered: a client that only reads starts without their protocols.

Invariants: a client belongs to one loop and one process; one start runs at a time, and a failed one
can be repeated; handles are closed before the objects that they use.

Source: api design, "Client".
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from ledger_client.client_services import ClientServices, ClientSettings
from ledger_client.encryption.keys import (
    Encryption,
    StoredPayloads,
    cipher_to_read,
    sealer_to_write,
)
from ledger_client.errors import ClientClosedError, LedgerError, LedgerFencedError
from ledger_client.handle import LoopGuard
from ledger_client.ledger_calls import LedgerCalls, NewLedger
from ledger_client.metadata_failures import metadata_call
from ledger_client.observability import ClientStats, EnsembleChanged, LedgerFenced, Observer
from ledger_client.reading.reader import LedgerReader
from metadata.cancelling import cancel_and_wait
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerState

if TYPE_CHECKING:
    from ledger_client.protocol.append_events import FailWriter, MembersChanged
    from ledger_client.writing.writer import LedgerWriter

START_MARGIN_S: Final = 1.0
"""Extra time of a start beyond the store's timeout, in seconds: the store's error message says
more.
"""

_log = logging.getLogger(__name__)


class ClientSession:
    """One client, from its first use to its end."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self.own_loop: Final = LoopGuard("client", None, None)
        self._services: ClientServices | None = None
        self._starting: asyncio.Task[ClientServices] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._writers: dict[LedgerId, LedgerWriter] = {}
        self._readers: WeakValueDictionary[int, LedgerReader] = WeakValueDictionary()
        self._reader_count = 0
        self._last_stats = Observer().snapshot()

    async def services(self) -> ClientServices:
        """Return the shared objects; connect first if necessary. Raises ClientClosedError,
        MetadataUnavailableError.
        """
        self._require_usable()
        if self._services is not None:
            return self._services
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
            self._starting.add_done_callback(self._note_started)
        try:
            return await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            if self._closing is not None:  # the start was cancelled, not the caller
                raise ClientClosedError(
                    "the client was closed while it started: create a new one"
                ) from None
            raise

    async def begin(self, timeout: float | None) -> tuple[ClientServices, float]:
        """Begin a call: return the shared objects, and what is left of the call's time, in seconds.
        Raises the errors of `services`.
        """
        limit, loop = self.limit(timeout), asyncio.get_running_loop()
        if self._services is not None:
            return await self.services(), limit
        began_at = loop.time()
        async with metadata_call("connecting", self._settings.address, limit):
            services = await self.services()
        return services, max(0.0, limit - (loop.time() - began_at))

    async def create(self, wanted: NewLedger, timeout: float | None) -> "LedgerWriter":
        """Create a ledger and return its writer."""
        from ledger_client.writing.writer import LedgerWriter  # noqa: PLC0415 - see the docstring

        services, limit = await self.begin(timeout)
        metadata, version, keys = await LedgerCalls(services).create(wanted, limit)
        self._require_usable()  # it may have been closed meanwhile
        ledger_id = metadata.ledger_id
        services.observer.ledgers_created += 1
        writer = LedgerWriter(
            metadata=metadata,
            version=version,
            keys=keys,
            services=services.for_writers,
            watchdog=services.watchdog,
            observe=partial(self._observe, services, ledger_id),
            on_closed=self._remove_writer,
            sealer=sealer_to_write(metadata, wanted.key),
        )
        self._writers[ledger_id] = writer
        return writer

    async def open(
        self,
        ledger_id: LedgerId,
        password: bytes,
        encryption: Encryption | StoredPayloads | None,
        timeout: float | None,
        *,
        is_one_of_many: bool = False,
    ) -> LedgerReader:
        """Open a ledger and return its reader.

        One of many closed ledgers costs one request: its metadata may be some moments old, which a
        failed read finds out, and a wrong password is found by the first read.
        """
        services, limit = await self.begin(timeout)
        calls, loop = LedgerCalls(services), asyncio.get_running_loop()
        deadline = loop.time() + limit
        closed = await calls.find_closed(ledger_id, password, limit) if is_one_of_many else None
        metadata, version, keys = closed or await calls.find(ledger_id, password, limit)
        cipher = cipher_to_read(metadata, encryption)
        # For an open ledger, the reader requests the LAC.
        if metadata.state is LedgerState.CLOSED and closed is None:
            await calls.check_password(metadata, keys, deadline)
        reader = LedgerReader(
            metadata=metadata,
            version=version,
            keys=keys,
            pool=services.pool,
            ledgers=services.ledgers,
            config=services.config,
            rng=services.rng,
            report=services.observer.emit,
            cipher=cipher,
            find_writer=partial(self._writers.get, ledger_id),
        )
        try:
            await reader.start(deadline - loop.time())
            self._require_usable()  # it may have been closed meanwhile
        except BaseException:
            await reader.aclose()
            raise
        services.observer.ledgers_opened += 1
        self._reader_count += 1
        self._readers[self._reader_count] = reader
        return reader

    def stats(self) -> ClientStats:
        """Return a snapshot of the counters; after closing, the last one."""
        services = self._services
        if services is None:
            return self._last_stats
        pool = services.pool
        return services.observer.snapshot(
            writers_open=len(self._writers),
            unanswered_bytes=sum(pool.unanswered_bytes(bookie_id) for bookie_id in pool.bookie_ids),
        )

    @property
    def description(self) -> str:
        """The cluster's address, and whether the client uses it."""
        is_connected = self._services is not None
        state = "closed" if self._closing else "connected" if is_connected else "not connected"
        return f"{self._settings.address}, {state}"

    @property
    def is_left_open(self) -> bool:
        """Whether something would be left open if nothing used this session any more."""
        return self._services is not None and self._closing is None and self.own_loop.is_alive

    def limit(self, timeout: float | None) -> float:
        """Return the time limit of a call, in seconds."""
        return self._settings.config.call_timeout_s if timeout is None else timeout

    async def aclose(self) -> None:
        """Close every open handle, writers at their LAC, and then the shared objects."""
        if self.own_loop.is_forked:
            return  # in a forked child, the connections belong to the parent
        if self._closing is None or not self._closing.done():
            self.own_loop.require()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    # Internals

    def _require_usable(self) -> None:
        self.own_loop.require_process()
        if self._closing is not None:
            raise ClientClosedError("the client is closed: create a new one")
        self.own_loop.require()

    async def _start(self) -> ClientServices:
        settings = self._settings
        limit = settings.config.metadata_timeout_s + START_MARGIN_S
        async with metadata_call("connecting", settings.address, limit):
            store = await settings.open_store()
            services = ClientServices(settings, store)
            await services.start()
        return services

    def _note_started(self, starting: "asyncio.Task[ClientServices]") -> None:
        self._starting = None
        if not starting.cancelled() and starting.exception() is None:
            self._services = starting.result()

    def _observe(
        self,
        services: ClientServices,
        ledger_id: LedgerId,
        action: "MembersChanged | FailWriter",
    ) -> None:
        from ledger_client.protocol.append_events import FailWriter  # noqa: PLC0415

        if isinstance(action, FailWriter):
            if isinstance(action.error, LedgerFencedError):
                services.observer.emit(LedgerFenced(ledger_id))
        elif action.replaced or action.joined:
            first, ensemble = action.fragment.first_entry_id, action.fragment.ensemble
            services.observer.emit(
                EnsembleChanged(ledger_id, first, ensemble, action.replaced, action.joined)
            )

    def _remove_writer(self, ledger_id: LedgerId) -> None:
        self._writers.pop(ledger_id, None)

    async def _close(self) -> None:
        await cancel_and_wait(self._starting)
        if self._services is None:
            return
        for reader in list(self._readers.values()):
            await reader.aclose()
        await asyncio.gather(*[_abort(writer) for writer in list(self._writers.values())])
        self._last_stats = self.stats()
        services, self._services = self._services, None
        await services.aclose()


async def _abort(writer: "LedgerWriter") -> None:
    try:
        await writer.abort()
    except LedgerError as error:
        _log.warning("closing the client: %s", error)
    finally:
        await writer.stop()
