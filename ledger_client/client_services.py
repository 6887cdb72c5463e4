"""Objects shared by all handles of one client: created, started and ended here.

Leaves the calls that users make to `ledger_client.client`.

Invariants: everything here belongs to one loop; a start that fails leaves nothing running; the
store is closed last, because closing ledgers needs it.

Source: protocol rules 5.6 and 9.2; metadata design, "Clients".
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from bookie.wire.messages import Status
from ledger_client.bookies.connection_calls import CallFailure
from ledger_client.bookies.placement import Placement, PlacementPolicy
from ledger_client.bookies.pool import BookiePool
from ledger_client.bookies.pool_link import BookieAddress
from ledger_client.bookies.quarantine import Quarantine
from ledger_client.config import ClientConfig
from ledger_client.copying import CopyThrottle
from ledger_client.observability import (
    BookieDeparted,
    BookieQuarantined,
    BookieSuspected,
    ClientEvent,
    EventCallback,
    MetadataSessionChanged,
    Observer,
)
from ledger_client.own_principal import OwnPrincipal
from ledger_client.recovery.late_fences import LateFences
from ledger_client.tasks import NextTick
from ledger_client.writing.bookie_news import BookieProbes, WriterNews
from ledger_client.writing.pacing import LedgerTurns, MetadataReads, Slices
from ledger_client.writing.watchdog import Watchdog
from ledger_client.writing.writer_services import WriterServices
from metadata.ids import BookieId
from metadata.ledgers.chain_store import ChainStore
from metadata.ledgers.ledger_ids import LedgerIdAllocator
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import bookie_path
from metadata.registry.directory import BookieChanged, BookieDirectory, BookieJoined, BookieLeft
from metadata.registry.directory import DirectoryEvent as Change
from metadata.registry.registrar import ClientRegistration
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import MetadataStore, SessionState, find
from quire.identity.renewed_tls import ContextSource
from quire.identity.sasl_access import SaslAccess

COUNTED_FAILURES = (
    CallFailure.REFUSED,
    CallFailure.LOST,
    CallFailure.TIMEOUT,
    CallFailure.PROTOCOL,
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Inputs of a client: its access to network, store and randomness, and its configuration."""

    open_store: Callable[[], Awaitable[MetadataStore]]
    address: str
    config: ClientConfig
    rng: Random
    wall_clock_ms: Callable[[], int]
    ssl: ContextSource | None = None
    sasl: SaslAccess | None = None
    """Login at bookies."""
    credentials: bytes = b""
    policy: PlacementPolicy | None = None
    on_event: EventCallback | None = None


class DirectoryAddresses:
    """Lookup of bookies in the directory, and in the store when the directory may be out
    of date.
    """

    def __init__(self, directory: BookieDirectory, store: MetadataStore) -> None:
        self._directory = directory
        self._store = store

    async def address_of(self, bookie_id: BookieId, *, fresh: bool) -> BookieAddress | None:
        """Return a bookie's address, None if it is not registered. Raises MetadataError."""
        known = self._directory.bookies.get(bookie_id)
        if fresh or known is None:
            known = await self._read(bookie_id)
        if known is None:
            return None
        return BookieAddress(known.host, known.port, known.tls, known.offers_tls)

    async def _read(self, bookie_id: BookieId) -> BookieRegistration | None:
        path = bookie_path(bookie_id)
        stored = await find(self._store, path)
        if stored is None:
            return None
        return REGISTRATION_CODEC.unpack(path, unpack_held(path, stored.value).content)


class ClientServices:
    """Shared objects of one client, from `start` to `aclose`."""

    def __init__(self, settings: ClientSettings, store: MetadataStore) -> None:
        config, rng = settings.config, settings.rng
        self.config = config
        self.rng = rng
        self.wall_clock_ms = settings.wall_clock_ms
        self.store = store
        self.quarantine = Quarantine(config.quarantine_s)
        self.observer = Observer(self._pass_on)
        self.ledgers = LedgerStore(store, rng, settings.wall_clock_ms)
        self.chains = ChainStore(store, rng, settings.wall_clock_ms)
        self.ledger_ids = LedgerIdAllocator(store, rng, block_ids=config.ledger_ids_at_once)
        self.directory = BookieDirectory(store, rng)
        self.registration = ClientRegistration(store, rng)
        self.pool = BookiePool(
            DirectoryAddresses(self.directory, store),
            config=config,
            rng=rng,
            ssl=settings.ssl,
            sasl=settings.sasl,
            credentials=settings.credentials,
            client_name=self.registration.client_id,
            observer=self.observer,
        )
        self.principal = OwnPrincipal(self.directory, self.pool, config.read_timeout_s)
        on_failed = self.observer.note_callback_failed
        self.placement = Placement(self.directory, self.quarantine, rng, settings.policy, on_failed)
        self.for_writers = self._services_of_writers()
        self.watchdog = Watchdog(self.pool, config, self.observer, self.for_writers.slices)
        self.late_fences = LateFences(self.pool, rng, config.read_timeout_s)
        self._on_event = settings.on_event
        self._cancels = [
            self.directory.on_event(self._follow_directory),
            self.pool.on_unavailable(self._count_failure),
            store.on_session(self._follow_session),
        ]

    def _services_of_writers(self) -> WriterServices:
        loop = asyncio.get_running_loop()
        slices = Slices(self.config.slice_max_s, loop.time, loop.call_soon)
        return WriterServices(
            pool=self.pool,
            placement=self.placement,
            ledgers=self.ledgers,
            config=self.config,
            rng=self.rng,
            on_refused=self._note_refused,
            report=self.observer.emit,
            next_tick=NextTick(),
            metadata_reads=MetadataReads(
                self.rng, self.config.metadata_reads_per_s, self.config.metadata_reads_at_once
            ),
            slices=slices,
            turns=LedgerTurns(self.config.metadata_changes_at_once, slices),
            news=WriterNews(self.pool, slices, self.directory.bookies),
            probes=BookieProbes(self.pool, self.config.add_timeout_s, slices),
            copy_turns=LedgerTurns(self.config.copies_at_once, slices),
            copy_throttle=CopyThrottle(self.config.copy_bytes_per_s),
        )

    async def start(self) -> None:
        """Read the live bookies and register. Raises MetadataError."""
        try:
            await self.directory.start()
            await self.registration.start()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End everything; the handles must be closed before."""
        for cancel in self._cancels:
            cancel()
        self.watchdog.close()
        self.for_writers.slices.close()
        await self.for_writers.metadata_reads.aclose()
        await self.for_writers.probes.aclose()
        await self.late_fences.aclose()
        await self.pool.aclose()
        await self.directory.aclose()
        await self.registration.aclose()
        await self.store.aclose()

    # Internals

    def _follow_directory(self, change: Change) -> None:
        match change:
            case BookieLeft(bookie_id):
                self.observer.emit(BookieDeparted(bookie_id))
                self.pool.note_departed(bookie_id)
            case BookieJoined(registration):
                self.quarantine.release(registration.bookie_id)
                self.for_writers.news.spare_joined()
                self.for_writers.news.remind_of_departed()
            case BookieChanged(registration):
                # A bookie that came back took over its registration, so it is reported as changed.
                self.quarantine.release(registration.bookie_id)
                if registration.writable:
                    self.for_writers.news.spare_joined()
                    self.for_writers.news.remind_of_departed()
                elif registration.drains:
                    self.for_writers.news.note_drains(registration.bookie_id)
        self.pool.drop_idle(self.directory.bookies)

    def _follow_session(self, state: SessionState) -> None:
        self.observer.emit(MetadataSessionChanged(state.value))

    def _count_failure(self, bookie_id: BookieId, failure: CallFailure, reason: str) -> None:
        if failure in COUNTED_FAILURES:
            self._avoid(bookie_id, f"{failure.value}: {reason}")

    def _note_refused(self, bookie_id: BookieId, status: Status) -> None:
        """Quarantine a bookie once for all adds that it refuses at the same time."""
        if self.quarantine.reason(bookie_id, asyncio.get_running_loop().time()) is None:
            self._avoid(bookie_id, f"answered {status.name}")

    def _avoid(self, bookie_id: BookieId, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        until = self.quarantine.record_failure(bookie_id, reason, now)
        self.observer.emit(BookieQuarantined(bookie_id, until))

    def _pass_on(self, event: ClientEvent) -> None:
        try:
            if self._on_event is not None:
                self._on_event(event)
        finally:
            if isinstance(event, BookieSuspected):
                self._avoid(event.bookie_id, "silent while others answered")
