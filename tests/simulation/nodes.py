"""Bookies and clients as simulated processes, built by the same constructors as in `main`.

Leaves the cluster to `tests.simulation.cluster`, and faults to `tests.simulation.faults`.

Invariants: a bookie's platter outlives its processes. One process at a time uses a platter. A
killed process runs no more code, and its unsynced data may be lost when the power fails.
Source: assurance design; `bookie/main.py`.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override  # `typing` has it from 3.12 on

from bookie.bookie_process import BookieAddresses, BookieProcess
from bookie.errors import BookieError
from bookie.identity.identity import format_directories
from bookie.options import BookieOptions
from ledger_client import LedgerClient, LedgerError
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import BookieId
from metadata.paths import bookie_path
from metadata.registry.cluster import ensure_cluster
from metadata.store.ephemeral import unpack_held
from tests.simulation.clocks import draw_clock
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.network import HOST
from tests.simulation.observing import described
from tests.simulation.store import NodeStore

if TYPE_CHECKING:
    from tests.simulation.availability.decision import FaultTime
    from tests.simulation.cluster import Cluster
    from tests.simulation.model import LedgerModel

RESTART_S: Final = 2.0
PORT: Final = 3181
ADMIN_PORT: Final = 8080


class Node:
    """One machine with at most one process on it."""

    def __init__(self, cluster: "Cluster", host: str) -> None:
        self.cluster = cluster
        self.host = host
        self.clock = draw_clock(cluster.plan.seed, host)
        self.node: int | None = None
        self.store: NodeStore | None = None
        self.starts = 0
        self.boots = 0
        self.is_paused = False
        self.is_wanted = True
        self.is_on_purpose = False
        self.last_error: BaseException | None = None
        """Exception of the last process that ended without being killed."""
        self._pause: FaultTime | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the process lives."""
        return self.node is not None

    def wall_clock_ms(self) -> int:
        """Return the machine's time of day."""
        return self.clock.wall_clock_ms(self.cluster.loop.now_s)

    def start(self) -> None:
        """Start the process, unless it lives or is not wanted."""
        if self.is_running or not self.is_wanted:
            return
        self.starts += 1
        self.cluster.network.power_on(self.host)
        token = HOST.set(self.host)
        try:
            node, task = self.cluster.loop.spawn(self._main(), self.clock)
        finally:
            HOST.reset(token)
        self.node = node
        task.add_done_callback(lambda ended: self._note_end(node, ended))

    def kill(self, *, power_off: bool) -> None:
        """End the process at once."""
        if self.node is None:
            return
        node, self.node = self.node, None
        self._end_pause()
        self.boots += power_off
        self.cluster.loop.kill(node)
        self.cluster.network.kill(node, self.host, power_off=power_off)
        if self.store is not None:
            self.store.leave_behind(self.cluster.rng.random() * self.cluster.plan.session_timeout_s)
            self.store = None
        self.after_death(power_off=power_off)

    def pause(self) -> None:
        """Pause the process."""
        if self.node is not None and not self.is_paused:
            self.is_paused = True
            self._pause = self.cluster.network.faults.begin(self.host)
            self.cluster.loop.pause(self.node)

    def pause_within(self, steps: int) -> None:
        """Pause the process after some more steps, in the middle of what it does then."""
        if self.node is not None and not self.is_paused:
            self.cluster.loop.call_after_steps(self.node, steps, self.pause)

    def resume(self) -> None:
        """Resume the process, or prevent a pause that has not begun."""
        if self.node is not None:
            if self.is_paused:
                self._end_pause()
            self.cluster.loop.resume(self.node)

    def _end_pause(self) -> None:
        self.is_paused = False
        self.cluster.network.faults.end(self._pause)

    @property
    def is_done(self) -> bool:
        """Return whether the machine has no work left."""
        return False

    def after_death(self, *, power_off: bool) -> None:
        """Apply the effects of the process's end, or of a power cut, to the machine."""

    def draw(self) -> random.Random:
        """Return the seed of the next process's random numbers."""
        return random.Random(f"{self.host} {self.cluster.plan.seed} {self.starts}")

    async def _main(self) -> None:
        raise NotImplementedError

    def _note_end(self, node: int, task: "asyncio.Task[None]") -> None:
        if self.node != node:
            return
        self.node = None
        self.store = None
        self._end_pause()
        self.last_error = error = None if task.cancelled() else task.exception()
        self.cluster.model.note("ended", f"{self.host}: {error!r}")
        self.cluster.network.kill(node, self.host, power_off=False)  # its sockets close with it
        if error is not None and not isinstance(error, BookieError | MetadataError | LedgerError):
            self.cluster.model.report("crash", f"{self.host} ended with {described(error)}")
        self.after_end(error)
        if self.is_wanted and not self.is_on_purpose and not self.is_done:
            self.cluster.loop.call_later(RESTART_S, self.start, context=self.cluster.context)

    def after_end(self, error: BaseException | None) -> None:
        """Apply the effects of an end of the process by itself to the machine."""


class BookieNode(Node):
    """Machine of one bookie."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        super().__init__(cluster, f"bookie-{number}")
        self.number = number
        self.machine = f"machine-{number // cluster.plan.bookies_per_host}"
        self.platter = Platter()
        self.disk_faults = DiskFaults(
            delay_s_max=cluster.plan.disk_delay_s, preallocates=cluster.plan.preallocates
        )
        self.bookie_id: str | None = None
        self.addresses: BookieAddresses | None = None
        self.wipes = 0
        self.process: BookieProcess | None = None
        self.stopping = asyncio.Event()

    @property
    def has_recorded_all(self) -> bool:
        """Return whether the position that the process recorded covers everything durable."""
        keeper = None if self.process is None else self.process._keeper
        return self.is_serving and keeper is not None and keeper.age_s == 0.0

    @property
    def is_serving(self) -> bool:
        """Return whether the process has started to serve."""
        return self.is_running and self.addresses is not None

    @property
    def is_registered(self) -> bool:
        """Return whether the process serves, and its session holds the bookie's registration."""
        if self.store is None or self.bookie_id is None or not self.is_serving:
            return False
        path = bookie_path(BookieId(self.bookie_id))
        try:
            held = unpack_held(path, self.cluster.metadata.tree.get(path).value)
        except NodeNotFoundError:
            return False
        return held.session_id == self.store.session_id

    async def stop(self) -> None:
        """Request an orderly stop of the process, and start it again at once."""
        self.begin_stop()
        while self.is_running:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.1)

    def begin_stop(self) -> None:
        """Request an orderly stop of the process."""
        self.stopping.set()
        self.cluster.bookie_states.look()

    def start_after(self, after_s: float) -> None:
        """Start the killed process again after a delay."""
        self.is_on_purpose = True
        self.cluster.loop.call_later(after_s, self._start_again, context=self.cluster.context)

    def _start_again(self) -> None:
        self.is_on_purpose = False
        self.start()

    @override
    async def _main(self) -> None:
        cluster, rng = self.cluster, self.draw()
        self.stopping = asyncio.Event()
        self.addresses = None
        if not self.platter.is_formatted:  # the result of an interrupted formatting is discarded
            self.platter = Platter()
        platter = self.platter
        disk = CrashableDisk(platter, rng, self.disk_faults)
        disk.boot_id = f"{self.host} {self.boots}"
        disk.on_failed = lambda: cluster.network.faults.add(self.host)
        disk.on_index_stored = lambda store: cluster.checkers.on_index_stored(self.host, store)
        await disk.lock()
        try:
            self.store = store = NodeStore(
                cluster.metadata,
                cluster.store_faults,
                session_timeout_s=cluster.plan.session_timeout_s,
            )
            try:
                if not platter.is_formatted:
                    create = partial(ensure_cluster, rng=rng)
                    self.bookie_id = await format_directories(
                        disk, store, "bookie", rng, self.wall_clock_ms, create
                    )
                    platter.is_formatted = True
                await self._serve(disk, store, rng)
            finally:
                await store.aclose()
        finally:
            await disk.close()

    async def _serve(self, disk: CrashableDisk, store: NodeStore, rng: random.Random) -> None:
        cluster = self.cluster
        self.process = process = BookieProcess(
            options_of(cluster.plan.options, self.host, self.machine),
            disk,
            store,
            rng,
            build="simulation",
            wall_clock_ms=self.wall_clock_ms,
        )
        try:
            self.bookie_id, self.addresses = await process.start()
            cluster.bookie_states.look()
            await first_of(process.wait_for_failure(), self.stopping)
        finally:
            await process.stop()

    @override
    def after_death(self, *, power_off: bool) -> None:
        """Lose unsynced data if the power is off; the page cache outlives the process."""
        self.addresses = None
        self.cluster.bookie_states.look()
        if power_off:
            self.platter.crash(self.cluster.rng)
        else:
            self.platter.kill(self.cluster.rng)

    @override
    def after_end(self, error: BaseException | None) -> None:
        """Sometimes end the machine with the process, or after it."""
        self.disk_faults.index_commit_fails = False
        self.after_death(power_off=self.cluster.rng.random() < 0.3)


class ClientNode(Node):
    """Machine with one client on it, which does one kind of work until the run is over."""

    def __init__(
        self,
        cluster: "Cluster",
        name: str,
        work: "Work",
    ) -> None:
        super().__init__(cluster, name)
        self._work = work
        self.reads: LedgerModel | None = None
        """Ledger that it reads now."""
        self.writes: LedgerModel | None = None
        """Ledger that it writes now."""

    @property
    @override
    def is_done(self) -> bool:
        """Return whether the run is over."""
        return self.cluster.is_over

    @override
    def after_death(self, *, power_off: bool) -> None:
        """Leave its ledgers to clients that recover them."""
        live = self.cluster.live_ledgers
        for ledger_id in [each for each, host in live.items() if host == self.host]:
            del live[ledger_id]

    @override
    async def _main(self) -> None:
        cluster, rng = self.cluster, self.draw()
        self.reads, self.writes = None, None
        self.store = store = NodeStore(
            cluster.metadata, cluster.store_faults, session_timeout_s=cluster.plan.session_timeout_s
        )
        client = LedgerClient.from_parts(
            store, rng=rng, wall_clock_ms=self.wall_clock_ms, config=cluster.plan.config
        )
        try:
            # a process that cannot start is not needed any more: see `_note_end`
            async with client:
                await self._work(self, client, random.Random(f"work {rng.random()}"))
        finally:
            await client.aclose()
            await store.aclose()


Work = Callable[[ClientNode, LedgerClient, random.Random], Coroutine[None, None, None]]


def options_of(options: BookieOptions, host: str, machine: str) -> BookieOptions:
    """Return the start options of the bookie at a host's address; several may share a machine."""
    fields = {name: getattr(options, name) for name in options.__dataclass_fields__}
    placed = {"host": host, "admin_host": host, "data_dir": host}
    placed["location"] = f"/sim/sim/{machine}"
    return BookieOptions(**{**fields, **placed, "port": PORT, "admin_port": ADMIN_PORT})


async def first_of(failure: Coroutine[None, None, None], stopping: asyncio.Event) -> None:
    """Return when the event is set, or raise an earlier exception of the coroutine."""
    task = asyncio.ensure_future(failure)
    task.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    if task.done():
        task.result()
    task.cancel()
