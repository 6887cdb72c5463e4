"""Puts one bookie together from its disk, its store and its options, and takes it apart in order.

Leaves making the real disk, store and rng to `bookie.main`; a simulation gives others.

Invariants: identity is proved before anything is read; the registration appears after the port
answers and goes before it closes; a bookie whose disk or registration is lost stops serving at
once.

Source: protocol rules 2.1-2.4; style section 1.4.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Final

from bookie.admin import BookieAdmin
from bookie.collector import Collector
from bookie.config import StorageConfig
from bookie.disk import Disk
from bookie.errors import BookieError
from bookie.identity import LIMBO_NAME, Identity, prove_identity, remove_mark
from bookie.metrics import BookieMetrics
from bookie.options import BookieOptions
from bookie.registration import Registration, describe, make_registrar
from bookie.server import BookieServer
from bookie.server_context import ServerContext
from bookie.server_counters import ServerCounters
from bookie.server_errors import CannotListenError
from bookie.server_limits import ServerLimits
from bookie.storage import BookieStorage
from bookie.wire.messages import WIRE_VERSION, WIRE_VERSION_MIN
from metadata.ids import BookieId
from metadata.ledger_store import LedgerStore
from metadata.registration import BookieRegistration
from metadata.store import MetadataStore, SessionState
from serving.admin import Administered, AdminServer
from serving.server_log import ServerLog

DISK_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a bookie that is up can be reached."""

    host: str
    port: int
    admin_host: str
    admin_port: int


class BookieProcess:
    """One bookie. `start` once, then `wait_for_failure`, and `stop` whatever happened."""

    def __init__(
        self,
        options: BookieOptions,
        disk: Disk,
        store: MetadataStore,
        rng: Random,
        *,
        build: str,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        """Take a locked disk and a store, which stay the caller's to close."""
        self._options = options
        self._disk = disk
        self._store = store
        self._rng = rng
        self._build = build
        self._wall_clock_ms = wall_clock_ms
        self._parts = AsyncExitStack()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing: str | None = "the bookie is starting"

    async def start(self) -> tuple[BookieId, Addresses]:
        """Serve; return who and where. Raises BookieError and MetadataError, saying what to do."""
        loop = asyncio.get_running_loop()
        log = ServerLog(loop.time)
        identity = await prove_identity(self._disk, self._store)
        if identity.is_stale:
            log.warning("limbo", bookie=identity.bookie_id, reason="a directory is an old copy")
        config = storage_config(self._options)
        storage = await BookieStorage.open(
            self._disk, config, rng=self._rng, has_lost_data=identity.is_stale
        )
        self._run(storage.background())
        self._parts.push_async_callback(storage.close)
        if identity.is_stale:
            await storage.checkpoint()  # from here on the storage itself remembers
            await remove_mark(self._disk, LIMBO_NAME)
        limits = limits_of(self._options)
        context = ServerContext(
            identity.bookie_id, storage, limits, ServerCounters(), log, loop.time
        )
        addresses = await self._listen(context, identity)
        await self._register(context, addresses)
        self._missing = None
        self._run(self._make_collector(context).run())
        return identity.bookie_id, addresses

    async def wait_for_failure(self) -> None:
        """Return never; raise what makes serving on wrong."""
        await self._failed

    async def stop(self) -> None:
        """Leave the registration, finish what is under way, and close every part."""
        self._missing = "the bookie is closing"
        self._failed.cancel()
        await self._parts.aclose()

    async def _listen(self, context: ServerContext, identity: Identity) -> Addresses:
        options = self._options
        server = BookieServer(context)
        self._parts.push_async_callback(server.close)
        listening_host, port = await server.start(options.host, options.port)
        host = options.advertised_host or listening_host
        described = {
            "id": str(identity.bookie_id),
            "cluster": identity.cluster.hex(),
            "address": f"{host}:{port}",
            "build": self._build,
        }
        routes = BookieAdmin(context, self._readiness, described).routes()
        metrics = BookieMetrics(identity.bookie_id, context.counters, context.storage.statistics)
        admin = AdminServer(
            Administered("bookie", metrics, self._readiness, routes, BookieError), context.log
        )
        self._parts.push_async_callback(admin.close)
        try:
            admin_host, admin_port = await admin.start(options.admin_host, options.admin_port)
        except OSError as error:
            raise CannotListenError(
                "the admin server", options.admin_host, options.admin_port, str(error)
            ) from error
        return Addresses(host, port, admin_host, admin_port)

    async def _register(self, context: ServerContext, addresses: Addresses) -> None:
        first = describe(
            context.storage,
            BookieRegistration(
                bookie_id=context.bookie_id,
                host=addresses.host,
                port=addresses.port,
                admin_url=f"http://{addresses.admin_host}:{addresses.admin_port}",
                location=self._options.location,
                weight=float(self._options.weight),
                build=self._build,
                wire_versions=(WIRE_VERSION_MIN, WIRE_VERSION),
                disk_versions=(DISK_VERSION, DISK_VERSION),
            ),
        )
        registrar = await make_registrar(self._disk, self._store, first, self._rng, self._fail)
        registration = Registration(context.storage, registrar, first)
        self._parts.push_async_callback(registration.leave)
        await registration.start()

    def _make_collector(self, context: ServerContext) -> Collector:
        ledgers = LedgerStore(self._store, self._rng, self._wall_clock_ms)
        return Collector(
            context,
            self._store,
            ledgers,
            self._rng,
            pass_interval_s=self._options.collect_interval_s,
            reads_per_s=self._options.collect_reads_per_s,
        )

    def _readiness(self) -> str | None:
        if self._missing is None and self._store.session_state is SessionState.EXPIRED:
            return "the session with the metadata service has expired"
        return self._missing

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._note_end)
        self._parts.push_async_callback(_cancel, task)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


def limits_of(options: BookieOptions) -> ServerLimits:
    """Return the server's bounds."""
    return ServerLimits(
        connections_max=options.connections_max,
        frame_bytes_max=options.frame_bytes_max,
        entry_bytes_max=options.entry_bytes_max,
        read_bytes_max=options.read_bytes_max,
        long_polls_max=options.long_polls_max,
        drain_timeout_s=options.drain_timeout_s,
    )


def storage_config(options: BookieOptions) -> StorageConfig:
    """Return the storage's bounds."""
    return StorageConfig(
        segment_bytes_max=options.segment_bytes_max,
        queue_bytes_max=options.queue_bytes_max,
        recent_bytes_max=options.recent_bytes_max,
        cached_bytes_max=options.cached_bytes_max,
        read_bytes_max=options.read_bytes_max,
        disk_high_mark=options.disk_high_mark,
        disk_low_mark=options.disk_low_mark,
        reserve_bytes_min=options.reserve_bytes_min,
        reserve_share=options.reserve_share,
    )


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
