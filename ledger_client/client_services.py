"""Objects shared by all handles of one client: created, started and ended here.

Leaves the calls that users make to `ledger_client.client`.

Invariants: everything here belongs to one loop; a start that fails leaves nothing running; the
store is closed last, because closing ledgers needs it.

Source: protocol rules 5.6, 9.2, 12.2, 12.4 and 12.6; metadata design, "Clients".
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

from bookie.wire.messages import ReadRights, Status
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure
from ledger_client.bookies.placement import Placement, PlacementPolicy, Quarantine
from ledger_client.bookies.pool import BookiePool
from ledger_client.bookies.pool_link import BookieAddress
from ledger_client.config import ClientConfig
from ledger_client.copying import CopyThrottle
from ledger_client.digest import LedgerKeys
from ledger_client.errors import PrincipalUnknownError, UnauthorizedError
from ledger_client.observability import (
    BookieDeparted,
    BookieQuarantined,
    BookieSuspected,
    ClientEvent,
    EventCallback,
    MetadataSessionChanged,
    Observer,
)
from ledger_client.recovery.unclean_recovery import LateFences
from ledger_client.tasks import NextTick
from ledger_client.writing.bookie_news import BookieProbes, WriterNews
from ledger_client.writing.pacing import LedgerTurns, MetadataReads, Slices
from ledger_client.writing.watchdog import Watchdog
from ledger_client.writing.writer_services import WriterServices
from metadata.ids import BookieId
from metadata.ledgers.chain_store import ChainStore
from metadata.ledgers.ledger_ids import LedgerIdAllocator
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_owner import NO_OWNER, is_owner
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import bookie_path
from metadata.registry.directory import BookieChanged, BookieDirectory, BookieJoined, BookieLeft
from metadata.registry.directory import DirectoryEvent as Change
from metadata.registry.registrar import ClientRegistration
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.security.ledger_roles import LedgerRight
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import MetadataStore, SessionState, find
from quire.identity.sasl_access import SaslAccess
from quire.identity.tls import ContextSource

COUNTED_FAILURES = (
    CallFailure.REFUSED,
    CallFailure.LOST,
    CallFailure.TIMEOUT,
    CallFailure.PROTOCOL,
)
BOOKIES_ASKED_MAX: Final = 3
RECOVERY: Final = int(LedgerRight.FENCE | LedgerRight.RECOVERY_ADD)
"""Rights that a recovery needs at each bookie."""


class OwnPrincipal:
    """Principal of one client, as bookies say it: the owner of the ledgers that it creates. It does
    not change while the client lives.

    Invariants: a cluster whose bookies know no principals is asked nothing; at most
    BOOKIES_ASKED_MAX bookies are asked; without an answer no ledger is created, because its creator
    could not use it.
    """

    def __init__(self, directory: BookieDirectory, pool: BookiePool, timeout_s: float) -> None:
        self._directory = directory
        self._pool = pool
        self._timeout_s = timeout_s
        self._known: str | None = None

    async def owner_in(self, ensemble: tuple[BookieId, ...]) -> str:
        """Return the owner of a new ledger; empty if bookies know no principal of this client. The
        bookies of `ensemble` are asked first. Raises PrincipalUnknownError; UnauthorizedError if
        each bookie refuses this client.
        """
        if self._known is not None:
            return self._known
        failures: list[str] = []
        is_refused = True
        for bookie_id in islice(self._candidates(ensemble), BOOKIES_ASKED_MAX):
            try:
                await self._pool.ping(bookie_id, timeout_s=self._timeout_s)
            except BookieCallError as error:
                failures.append(str(error))
                is_refused &= error.status is Status.UNAUTHORIZED
                continue
            told = self._pool.principals.get(bookie_id, NO_OWNER)
            self._known = told if is_owner(told) else NO_OWNER
            return self._known
        if failures and is_refused:
            why = "; ".join(failures)
            raise UnauthorizedError(f"bookies refuse this client, and nothing was created: {why}")
        if failures:
            raise PrincipalUnknownError(
                "nothing was created: a new ledger names its owner, and none of "
                f"{len(failures)} bookies said who this client is (the last one: {failures[-1]}): "
                "correct this, and try again"
            )
        return NO_OWNER

    async def check_may_recover(self, metadata: LedgerMetadata, keys: LedgerKeys) -> None:
        """Raise UnauthorizedError if a bookie says that this client may not recover a ledger. The
        first step of a recovery is a change of the metadata, which ends the writer, and no bookie
        sees it. Nothing is known of a ledger without an owner, and without an answer.
        """
        if not metadata.owner:
            return
        ledger_id, request = metadata.ledger_id, ReadRights(metadata.ledger_id)
        self._pool.attach(ledger_id, keys.master_key)
        try:
            for bookie_id in metadata.last_fragment.ensemble[:BOOKIES_ASKED_MAX]:
                try:
                    timeout_s = self._timeout_s
                    reply = await self._pool.read_rights(bookie_id, request, timeout_s=timeout_s)
                except BookieCallError:
                    continue
                if RECOVERY & ~reply.rights:
                    who = self._pool.principals.get(bookie_id) or "a client without a principal"
                    raise UnauthorizedError(
                        f"{who} may not fence it, as bookie {bookie_id} says, and nothing was "
                        "changed: an administrator can give it the role with `quire grant add "
                        f"{who!r} recoverer ledger:{ledger_id}`",
                        ledger_id=ledger_id,
                    )
                return
        finally:
            self._pool.detach(ledger_id)

    def _candidates(self, ensemble: tuple[BookieId, ...]) -> Iterator[BookieId]:
        bookies = self._directory.bookies
        for bookie_id in dict.fromkeys((*ensemble, *bookies)):
            known = bookies.get(bookie_id)
            if known is not None and known.names_owners:
                yield bookie_id


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
