"""Repair in one process: a candidate for the auditor, and a worker.

Invariants: the parts end in the reverse order of their start; a process whose session ends stops
auditing before another one begins.

Source: protocol rules 9.1 and 9.2.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Final, Self

from ledger_client.client_services import ClientServices, ClientSettings
from ledger_client.config import ClientConfig
from ledger_client.copying import CopyLimits
from ledger_client.recovery.missing_writers import MissingWriters
from metadata.cancelling import cancel_and_wait
from metadata.registry.cookies import CookieStore
from metadata.repair.auditor_election import AuditorElection
from metadata.repair.claims import ClaimStore
from metadata.repair.job_store import JobStore
from metadata.repair.lifecycle_store import Lifecycles, LifecycleStore
from metadata.repair.repair_key import read_or_create_repair_key
from metadata.repair.scrub_store import Scrubs
from metadata.repair.settings_store import RepairSettingsView
from metadata.repair.status_store import StatusStore
from metadata.repair.workers import WorkerDirectory, WorkerRegistrar
from metadata.store.interface import MetadataStore
from quire.identity.client_file import NO_IDENTITY, ClientFile
from quire.repair.auditor import Auditor, AuditorParts
from quire.repair.ledger_repair import LedgerRepair
from quire.repair.peer_probes import PeerProbes
from quire.repair.worker import RepairViews, RepairWorker
from quire.server.server_log import ServerLog, SessionLog

AUDIT_AGAIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class RepairRoles:
    """What a process does for repair."""

    audits: bool = True
    """Whether it is a candidate for the auditor."""
    copies: bool = True
    """Whether it is a worker."""
    probes_from: str = ""
    """Name of the machine from which a worker probes other bookies; empty: it probes none."""


class RepairProcess:
    """Repair in this process, from `start` to `aclose`."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        process_id: str,
        rng: Random,
        secret_rng: Random,
        wall_clock_ms: Callable[[], int],
        config: ClientConfig,
        identity: ClientFile = NO_IDENTITY,
        roles: RepairRoles,
    ) -> None:
        """Create the process. `process_id` has the form of a bookie's id; the store is closed at
        the end. `secret_rng` makes the key of repair: outside of tests it is a
        `random.SystemRandom`.
        """
        self._store = store
        self._process_id = process_id
        self._rng = rng
        self._secret_rng = secret_rng
        self._wall_clock_ms = wall_clock_ms
        self._config = config
        self._identity = identity
        self._roles = roles
        self._log = ServerLog(asyncio.get_running_loop().time)
        self._ends = AsyncExitStack()

    async def start(self) -> Self:
        """Begin. Raises MetadataError and SecurityError, and leaves nothing running then."""
        async with AsyncExitStack() as ends:
            await self._start(ends)
            self._ends = ends.pop_all()
        return self

    async def aclose(self) -> None:
        """Stop; what this process copies is copied again by another one."""
        await self._ends.aclose()

    async def _start(self, ends: AsyncExitStack) -> None:
        services = await self._services(ends)
        ends.callback(services.store.on_session(SessionLog(self._log)))
        lifecycles = Lifecycles(services.store, self._rng)
        settings = RepairSettingsView(services.store, self._rng)
        scrubs = Scrubs(services.store, self._rng)
        for view in (lifecycles, settings, scrubs):
            ends.push_async_callback(view.aclose)
            await view.start()
        if self._roles.copies:
            await self._start_worker(ends, services, lifecycles, settings, scrubs)
        if self._roles.audits:
            await self._start_auditor(ends, services, lifecycles, settings, scrubs)

    async def _services(self, ends: AsyncExitStack) -> ClientServices:
        key = await read_or_create_repair_key(self._store, self._secret_rng)

        async def given() -> MetadataStore:
            return self._store

        services = ClientServices(
            ClientSettings(
                open_store=given,
                address=self._store.address,
                config=self._config,
                rng=self._rng,
                wall_clock_ms=self._wall_clock_ms,
                ssl=self._identity.contexts,
                sasl=self._identity.sasl,
                credentials=key,
            ),
            self._store,
        )
        await services.start()
        ends.push_async_callback(services.aclose)
        return services

    async def _start_worker(
        self,
        ends: AsyncExitStack,
        services: ClientServices,
        lifecycles: Lifecycles,
        settings: RepairSettingsView,
        scrubs: Scrubs,
    ) -> None:
        store, rng = services.store, self._rng
        workers = WorkerDirectory(store, rng)
        ends.push_async_callback(workers.aclose)
        await workers.start()
        registrar = WorkerRegistrar(store, self._process_id, rng)
        ends.push_async_callback(registrar.aclose)
        await registrar.start()
        views = RepairViews(
            JobStore(store, rng), ClaimStore(store, rng), lifecycles, settings, workers
        )
        repair = LedgerRepair(
            services, scrubs, CopyLimits(), MissingWriters(self._config.session_timeout_s)
        )
        worker = RepairWorker(services, views, repair, self._process_id)
        ends.push_async_callback(worker.aclose)
        await worker.start()
        if self._roles.probes_from:
            probes = PeerProbes(
                self._process_id,
                self._roles.probes_from,
                services.pool,
                services.directory,
                registrar.report,
                self._log,
            )
            probing = asyncio.get_running_loop().create_task(probes.run())
            ends.push_async_callback(cancel_and_wait, probing)

    async def _start_auditor(
        self,
        ends: AsyncExitStack,
        services: ClientServices,
        lifecycles: Lifecycles,
        settings: RepairSettingsView,
        scrubs: Scrubs,
    ) -> None:
        store, rng = services.store, self._rng

        parts = AuditorParts(
            store,
            services.ledgers,
            CookieStore(store),
            services.directory,
            lifecycles,
            LifecycleStore(store, rng),
            settings,
            JobStore(store, rng),
            StatusStore(store, rng),
            scrubs,
            services.pool,
            self._wall_clock_ms,
        )
        election = AuditorElection(store, self._process_id, rng)
        candidacy = _Candidacy(
            election, lambda: Auditor(parts, self._process_id, rng).run(), self._log
        )
        ends.push_async_callback(candidacy.aclose)
        await candidacy.start()


class _Candidacy:
    """Audits while this process is elected."""

    def __init__(
        self, election: AuditorElection, audit: Callable[[], Awaitable[None]], log: ServerLog
    ) -> None:
        self._log = log
        self._election = election
        self._audit = audit
        self._auditing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Become a candidate."""
        self._election.on_change(self._follow)
        await self._election.start()

    async def aclose(self) -> None:
        """Stop auditing, and being a candidate."""
        self._is_closed = True
        if self._auditing is not None:
            await cancel_and_wait(self._auditing)
        await self._election.aclose()

    def _follow(self) -> None:
        if self._is_closed:
            return
        is_auditing = self._auditing is not None and not self._auditing.done()
        if self._election.is_auditor and not is_auditing:
            self._log.info("auditor elected")
            self._auditing = asyncio.get_running_loop().create_task(self._keep_auditing())
            # The process may be elected again before a cancelled audit has ended.
            self._auditing.add_done_callback(lambda _: self._follow())
        elif not self._election.is_auditor and self._auditing is not None:
            self._log.info("auditor not elected any more")
            self._auditing.cancel()

    async def _keep_auditing(self) -> None:
        while True:
            try:
                await self._audit()
            except Exception as error:  # noqa: BLE001 - a defect must not end repair for good
                self._log.failure("audit failed", error, again_s=AUDIT_AGAIN_S)
            await asyncio.sleep(AUDIT_AGAIN_S)
