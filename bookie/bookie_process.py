"""One bookie, built from its disk, its store and its options, and stopped in order.

Leaves creating the real disk, store and rng to `bookie.main`; a simulation passes its own.

Invariants: identity is proved before data is read; the position is claimed before requests are
served; the registration is added after the port is open and removed before it closes; a bookie that
loses its disk, registration or position stops serving at once.

Source: protocol rules 2.1-2.4, 2.6-2.9; CONTRIBUTING.md, "Rules of the code".
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from bookie.config import StorageConfig
from bookie.errors import BookieError, DiskFailedError
from bookie.files.disk import Disk, remove_mark
from bookie.identity.identity import (
    LIMBO_NAME,
    AnchorWatch,
    Identity,
    keep_limbo_reason,
    prove_identity,
)
from bookie.identity.metadata_age import MetadataAge
from bookie.identity.original import OriginalCheck, registration_wait_s
from bookie.identity.own_lifecycle import OperatorSwitch, OwnLifecycle
from bookie.identity.position import PositionCallbacks, PositionClaim, PositionKeeper
from bookie.log.reserve import make_room
from bookie.options import BookieOptions
from bookie.scrubber import Scrubber
from bookie.server.access import ServerAccess, make_authorizer
from bookie.server.admin import BookieAdmin
from bookie.server.client_logins import make_logins
from bookie.server.collector import Collector, FeedExpiry
from bookie.server.connection import BookieServer, follow_grants
from bookie.server.metrics import BookieMetrics
from bookie.server.registration import Registration, describe, report_conditions
from bookie.server.server_context import ServerContext
from bookie.server.server_limits import ServerCounters
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.disk_watch import DiskHealth, RunningOperations, watched
from bookie.storage.horizon import ledger_status_reader
from bookie.storage.opening import KnownDisk
from bookie.wire.messages import WIRE_VERSION, WIRE_VERSION_MIN
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError
from metadata.ids import BookieId
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.registrar import BookieRegistrar
from metadata.registry.registration import BookieRegistration
from metadata.repair.repair_key import read_repair_key
from metadata.security.quota_set import QuotaSet
from metadata.security.quota_store import QuotaTable
from metadata.store.ephemeral import INCARNATION_BYTES
from metadata.store.interface import MetadataStore, SessionState
from quire.addresses import is_wildcard, join_address
from quire.server.admin import AdminContent, AdminServer
from quire.server.served_tls import ServedTls
from quire.server.server_log import ServerLog, SessionLog
from quire.server.server_options import TlsMode

DISK_VERSION: Final = 2
SEEN_S_MAX: Final = 2.0
"""Maximum time a stopping bookie waits for the age of the metadata service, in seconds."""


@dataclass(frozen=True, slots=True)
class BookieAddresses:
    """Addresses of a running bookie."""

    host: str
    port: int
    admin_host: str
    admin_port: int
    is_admin_tls: bool

    @property
    def admin_url(self) -> str:
        """Address of the admin port."""
        scheme = "https" if self.is_admin_tls else "http"
        return f"{scheme}://{join_address(self.admin_host, self.admin_port)}"


class BookieProcess:
    """One bookie. Call `start` once, then `wait_for_failure`, and `stop` in any case."""

    def __init__(
        self,
        options: BookieOptions,
        disk: Disk,
        store: MetadataStore,
        rng: Random,
        *,
        build: str,
        wall_clock_ms: Callable[[], int],
        secret_rng: Random | None = None,
    ) -> None:
        """Use a locked disk and a store; the caller closes both. `secret_rng` makes nonces: outside
        of tests it is a `random.SystemRandom`.
        """
        self._options = options
        self.under_way = RunningOperations(asyncio.get_running_loop().time)
        self.health: DiskHealth | None = None
        """Set once the bookie is registered."""
        self._disk = watched(disk, self.under_way)
        self._store = store
        self._rng = rng
        self._secret_rng = secret_rng or rng
        self._build = build
        self._wall_clock_ms = wall_clock_ms
        self._parts = AsyncExitStack()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing: str | None = "the bookie is starting"
        self._incarnation = rng.randbytes(INCARNATION_BYTES)
        self._keeper: PositionKeeper | None = None
        self._has_failed = False
        self.limbo_reason = ""
        """Reason of the bookie's limbo; empty when it is not in limbo."""

    async def start(self) -> tuple[BookieId, BookieAddresses]:
        """Start serving; return the id and the addresses. Raises BookieError, CannotListenError,
        SecurityError and MetadataError.
        """
        loop = asyncio.get_running_loop()
        log = ServerLog(loop.time)
        self._parts.callback(self._store.on_session(SessionLog(log)))
        config = self._options.storage
        wait_s = registration_wait_s(self._options.session_timeout_s)
        originals = OriginalCheck(self._store, wait_s=wait_s, log=log)
        identity = await prove_identity(
            self._disk, self._store, originals, partial(self._make_room, config, log)
        )
        storage = await self._open_storage(identity, config)
        switch = OperatorSwitch(self._disk, storage.writability)
        await switch.restore()
        lifecycle = OwnLifecycle(
            self._store, self._rng, identity.bookie_id, storage.writability, log
        )
        await lifecycle.restore()
        report_conditions(storage.writability, log)
        limits = self._options.server
        access = await self._start_access(loop.time)
        ledgers = LedgerStore(self._store, self._rng, self._wall_clock_ms)
        authorizer = make_authorizer(ledgers, self._store, self._rng, self._options.roles)
        counters = ServerCounters()
        context = ServerContext(
            identity.bookie_id, storage, access, limits, counters, log, loop.time, authorizer
        )
        context.limit_clients(await self._follow_quotas(), self._options.roles)
        if authorizer is not None:
            self._parts.push_async_callback(authorizer.aclose)
            await authorizer.start()
            self._run(follow_grants(context))
        if not identity.has_original_ended:
            # While the storage was opened, an original that was between two sessions may have
            # registered again. If it has recorded its position instead, the claim fails.
            await originals.run(identity.bookie_id, identity.lock, is_counted=True)
        age = await self._claim_position(identity, context)
        scrubber = Scrubber(
            self._store, self._rng, identity.bookie_id, storage, self._wall_clock_ms, log
        )
        addresses = await self._listen(context, identity, switch, age, scrubber)
        await self._register(context, identity, addresses)
        self._missing = None
        self._run(
            AnchorWatch(self._disk, identity.files, partial(self._stop_answering, context)).run()
        )
        self._run(lifecycle.run(self._options.drain_grace_s))
        self._run(self._make_collector(context, age).run())
        self._run(scrubber.run())
        return identity.bookie_id, addresses

    async def wait_for_failure(self) -> None:
        """Wait for a failure that must stop the bookie, and raise it; never return."""
        await self._failed

    async def stop(self) -> None:
        """Remove the registration, finish running requests, close every part, and announce that
        the bookie stopped in order, unless it failed.
        """
        self._missing = "the bookie is closing"
        self._failed.cancel()
        await self._parts.aclose()

    async def _make_room(self, config: StorageConfig, log: ServerLog) -> None:
        if await make_room(self._disk, config):
            log.warning("reserve file removed", reason="the disk is full at the start")

    async def _start_access(self, now: Callable[[], float]) -> ServerAccess:
        logins = make_logins(self._store, self._secret_rng, self._options.client_logins)
        if logins is not None:
            self._parts.push_async_callback(logins.aclose)
            await logins.start()
        access = ServerAccess(partial(read_repair_key, self._store), now, logins)
        await access.start()
        return access

    async def _follow_quotas(self) -> QuotaSet:
        quotas = QuotaTable(self._store, self._rng)
        self._parts.push_async_callback(quotas.aclose)
        await quotas.start()
        return quotas.set

    async def _open_storage(self, identity: Identity, config: StorageConfig) -> BookieStorage:
        ledgers = LedgerStore(self._store, self._rng, self._wall_clock_ms)
        storage = await BookieStorage.open(
            self._disk,
            config,
            rng=self._rng,
            known=KnownDisk(identity.limbo_reason, identity.recorded_end_lsn),
            read_standing=ledger_status_reader(ledgers, identity.bookie_id, self._rng),
        )
        self._parts.push_async_callback(self._record_orderly, storage)
        self._run(storage.background())
        self._parts.push_async_callback(storage.close)
        self.limbo_reason = await keep_limbo_reason(
            self._disk, storage.limbo_reason, is_limbo=storage.is_limbo
        )
        if self.limbo_reason:
            storage.writability.explain_loss(self.limbo_reason)
        if identity.limbo_reason:
            await storage.checkpoint()  # from now on the storage itself stores the limbo
            await remove_mark(self._disk, LIMBO_NAME)
        return storage

    async def _claim_position(self, identity: Identity, context: ServerContext) -> MetadataAge:
        """Record that this process is the bookie from now on, before requests are served."""
        writability = context.storage.writability
        age = MetadataAge(self._disk, self._store, self._rng, identity.bookie_id, writability)
        await age.restore()
        keeper = PositionKeeper(
            self._store,
            self._claim_of(identity),
            identity.position,
            context.storage.log,
            interval_s=self._options.position_interval_s,
            rng=self._rng,
            log=context.log,
            callbacks=PositionCallbacks(
                partial(self._stop_answering, context), age.note_recorded, age.may_collect
            ),
        )
        await keeper.claim()
        self._keeper = keeper
        self._run(keeper.run())
        self._parts.push_async_callback(_keep_seen, age)
        self._run(age.run())
        return age

    def _claim_of(self, identity: Identity) -> PositionClaim:
        options = self._options
        host = options.advertised_host or options.host
        return PositionClaim(
            identity.bookie_id,
            self._incarnation,
            identity.files,
            identity.lock,
            join_address(host, options.port) if options.port else host,
            options.location,
        )

    async def _record_orderly(self, storage: BookieStorage) -> None:
        if self._keeper is not None and not self._has_failed and storage.log.failure is None:
            await self._keeper.record_orderly(self._wall_clock_ms())

    async def _listen(
        self,
        context: ServerContext,
        identity: Identity,
        switch: OperatorSwitch,
        age: MetadataAge,
        scrubber: Scrubber,
    ) -> BookieAddresses:
        options = self._options
        tls = ServedTls("bookie", options, context.log)
        server = BookieServer(context)
        self._parts.push_async_callback(server.close)
        listening_host, port = await server.start(options.host, options.port, tls.listening)
        self._run(tls.watch())
        host = options.advertised_host or listening_host
        described = {
            "id": str(identity.bookie_id),
            "cluster": identity.cluster.hex(),
            "address": join_address(host, port),
            "build": self._build,
        }
        routes = BookieAdmin(context, self._readiness, described, switch, age).routes()
        assert self._keeper is not None, "the position is claimed before anything is served"
        metrics = BookieMetrics(
            identity.bookie_id,
            context.counters,
            context.storage,
            self._keeper,
            lambda: scrubber.record,
        )
        admin = AdminServer(
            AdminContent(
                "bookie",
                metrics,
                self._readiness,
                routes,
                (BookieError,),
                tls.admin_access(self._options.roles.changers),
                (tls,),
            ),
            context.log,
        )
        self._parts.push_async_callback(admin.close)
        admin_host, admin_port = await admin.start(options.admin_host, options.admin_port)
        if is_wildcard(admin_host):
            admin_host = host
        is_admin_tls = options.tls_mode is TlsMode.REQUIRED
        return BookieAddresses(host, port, admin_host, admin_port, is_admin_tls)

    async def _register(
        self, context: ServerContext, identity: Identity, addresses: BookieAddresses
    ) -> None:
        mode = self._options.tls_mode
        first = describe(
            context.storage,
            BookieRegistration(
                bookie_id=context.bookie_id,
                host=addresses.host,
                port=addresses.port,
                tls=mode is TlsMode.REQUIRED,
                admin_url=addresses.admin_url,
                location=self._options.location,
                weight=float(self._options.weight),
                build=self._build,
                wire_versions=(WIRE_VERSION_MIN, WIRE_VERSION),
                disk_versions=(DISK_VERSION, DISK_VERSION),
                features=self._options.features,
            ),
        )
        dead = identity.dead_incarnation
        registrar = BookieRegistrar(
            self._store,
            first,
            self._rng,
            incarnation=self._incarnation,
            dead_incarnations=() if dead is None else (dead,),
            on_lost=partial(self._stop_answering, context),
        )
        registration = Registration(context.storage, registrar, first)
        self._parts.push_async_callback(registration.leave)
        await registration.start()
        self.health = DiskHealth(
            self.under_way, self._options.disk_hung_s, context.storage.writability, registration
        )
        self._parts.callback(self.health.stop)
        self.health.start()

    def _make_collector(self, context: ServerContext, age: MetadataAge) -> Collector:
        ledgers = LedgerStore(self._store, self._rng, self._wall_clock_ms)
        return Collector(
            context,
            self._store,
            ledgers,
            self._rng,
            age,
            pass_interval_s=self._options.collect_interval_s,
            reads_per_s=self._options.collect_reads_per_s,
            expiry=FeedExpiry(self._wall_clock_ms, self._options.feed_age_h * 3600),
        )

    def _readiness(self) -> str | None:
        if self._missing is None and self._store.session_state is SessionState.EXPIRED:
            return "the session with the metadata service has expired"
        if self._missing is None and self.health is not None:
            return self.health.hung
        return self._missing

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._note_end)
        self._parts.push_async_callback(cancel_and_wait, task)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _stop_answering(self, context: ServerContext, error: BookieError | MetadataError) -> None:
        """Stop answering at once: this process has lost its directories or its place."""
        context.abort_connections()
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._has_failed = True
        if not self._failed.done():
            self._failed.set_exception(error)


async def _keep_seen(age: MetadataAge) -> None:
    """Store the age of the metadata service, at a stop; as of its last answer if it does not
    answer.
    """
    with contextlib.suppress(MetadataError, TimeoutError, DiskFailedError):
        async with asyncio.timeout(SEEN_S_MAX):
            await age.may_collect()
    with contextlib.suppress(DiskFailedError):
        await age.keep()
