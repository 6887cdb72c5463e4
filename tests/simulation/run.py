"""Run of one seed: faults with safety checked at every step, then healing and liveness.

Leaves the campaign over many seeds, and its output, to `tests.simulation.command`.

Invariant: the same seed, mode and code give the same history, for any hash seed of the process.
Source: assurance design, "Deterministic simulation".
"""

import asyncio
import gc
import logging
import sys
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from unittest.mock import patch

from bookie.wire import frames
from tests.simulation.aimed_faults import DrawnMemoryError, failing_builds
from tests.simulation.chains.chain_clients import add_chain_clients, check_chains
from tests.simulation.checkers.availability import watched_ends
from tests.simulation.checkers.client_promises import watched_admissions, watched_confirmations
from tests.simulation.checkers.hosts import watched_choices
from tests.simulation.checkers.liveness import check_liveness, check_readable, wait_for_work
from tests.simulation.checkers.replicas import check_replicated, read_replicas
from tests.simulation.checkers.stored_metadata import watched_recoveries
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Faults
from tests.simulation.holding_open import add_holder
from tests.simulation.loop import LivelockError, SimulationLoop
from tests.simulation.model import Model
from tests.simulation.observing import described
from tests.simulation.plan import Plan, make_plan
from tests.simulation.repair import check_removal, check_repaired, start_repair
from tests.simulation.workloads import add_clients

START_S_MAX: Final = 600.0
"""A start may fail and repeat many times before the metadata service answers in time."""
LOOK_EVERY_S: Final = 0.5
UNTIL_S: Final = 100_000.0
MESSAGES_MAX: Final = 20_000
"""Number of messages after which a run goes to its healing."""
SMALL_BODY_BYTES: Final = 64
"""Small sizes of pooled buffers, so that simulated frames also use paths for large frames."""
SMALL_BODY_WASTE_MAX: Final = 1_000.0
"""The sizes differ: a buffer that was lent once is lent again for any frame that fits."""


@dataclass(frozen=True, slots=True)
class Result:
    """Results of one seed."""

    seed: int
    violations: tuple[str, ...]
    messages: int
    """Number of frames between clients and bookies."""
    metadata_messages: int
    """Number of requests to the metadata service, its answers and its watch events."""
    simulated_s: float
    entries: int
    ledgers: int
    trace_hash: str
    faults: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    """See `tests.simulation.checkers.availability`."""
    trace: tuple[str, ...] = ()


def run_seed(seed: int, *, beyond_budget: bool = False, trace: bool = False) -> Result:
    """Run one seed to its end."""
    plan = make_plan(seed, beyond_budget=beyond_budget)
    with undisturbed():
        loop = SimulationLoop(seed)
        model = Model(loop, trace=trace)
        model.note("plan", repr(plan))
        run = _Run(loop, model, seed, beyond_budget=beyond_budget)
        with _pooled_bodies(plan), watched_confirmations(model), watched_admissions(model):
            run_to_end(loop, model, run.main(), UNTIL_S, trace=trace)
        result = _result(run, model, seed, loop.now_s)
        forget(loop)
    return result


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run without log lines, and without garbage collections, whose times would be part of the
    history.
    """
    disabled_logs, gc_was_on = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)
    gc.disable()
    gc.collect()  # otherwise the previous run would be frozen too, and never freed
    gc.freeze()
    yield
    if gc_was_on:
        gc.enable()
    logging.disable(disabled_logs)


def run_to_end(
    loop: SimulationLoop,
    model: Model,
    main: Coroutine[None, None, None],
    until_s: float,
    *,
    trace: bool,
) -> None:
    """Run `main`, and report its failure and those of other tasks; with `trace`, raise it."""
    try:
        loop.run_until_complete(asyncio.wait_for(main, until_s))
    except LivelockError as error:
        model.report("livelock", str(error))
    except TimeoutError:
        model.report("livelock", f"not at its end after {until_s} s")
    except Exception as error:
        model.report("simulation", described(error))
        if trace:
            raise
    for failure in loop.failures:
        if not isinstance(failure, DrawnMemoryError):
            model.report("unhandled", described(failure))


@contextmanager
def _pooled_bodies(plan: Plan) -> Iterator[None]:
    """If the plan says so, let the bookies' pools lend small buffers too."""
    if not plan.pools_small_bodies:
        yield
        return
    with (
        patch.object(frames, "POOLED_BYTES_MIN", SMALL_BODY_BYTES),
        patch.object(frames, "ROUNDED_TO_BYTES", SMALL_BODY_BYTES),
        patch.object(frames, "WASTE_SHARE_MAX", SMALL_BODY_WASTE_MAX),
    ):
        yield


def forget(loop: SimulationLoop) -> None:
    """Discard the run, and ignore what its coroutines do when they are closed."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # coroutines that never started
            loop.close_tasks()
            loop.close()
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _result(run: "_Run", model: Model, seed: int, now_s: float) -> Result:
    return Result(
        seed=seed,
        violations=tuple(str(violation) for violation in model.violations),
        messages=model.message_count,
        metadata_messages=run.metadata_message_count,
        simulated_s=now_s,
        entries=model.confirmed_count,
        ledgers=len(model.ledgers),
        trace_hash=model.trace_hash,
        faults=run.fault_counts | run.lost_watches,
        errors=dict(model.error_counts),
        rejected=run.rejected,
        trace=tuple(model.trace or ()),
    )


class _Run:
    def __init__(
        self, loop: SimulationLoop, model: Model, seed: int, *, beyond_budget: bool
    ) -> None:
        self._loop = loop
        self._model = model
        self._plan = make_plan(seed, beyond_budget=beyond_budget)
        self.fault_counts: dict[str, int] = {}
        self._cluster: Cluster | None = None

    @property
    def metadata_message_count(self) -> int:
        """Return the number of messages to and from the metadata service."""
        return 0 if self._cluster is None else self._cluster.store_faults.message_count

    @property
    def rejected(self) -> dict[str, int]:
        """Return for how many writers the checker of availability would have rejected an error."""
        return {} if self._cluster is None else self._cluster.availability.rejected

    @property
    def lost_watches(self) -> dict[str, int]:
        """Return how often a watch event was lost with its connection, as a kind of fault."""
        count = 0 if self._cluster is None else self._cluster.store_faults.lost_watch_count
        return {"lost_watch": count} if count else {}

    async def main(self) -> None:
        cluster = self._cluster = Cluster(self._loop, self._plan, self._model)
        with (
            watched_choices(cluster.choices),
            watched_ends(cluster.availability),
            watched_recoveries(cluster.writer_nodes),
            failing_builds(cluster),
        ):
            await self._run(cluster)

    async def _run(self, cluster: Cluster) -> None:
        for bookie in cluster.bookies:
            bookie.start()
        bookies = cluster.bookies
        if not await cluster.wait_until(lambda: all(b.is_serving for b in bookies), START_S_MAX):
            self._model.report("liveness", "the bookies did not start")
            return
        add_clients(cluster)
        add_chain_clients(cluster)
        add_holder(cluster)
        for client in cluster.clients:
            client.start()
        await start_repair(cluster)
        faults = Faults(cluster)
        self.fault_counts = faults.counts
        faults.start(cluster.plan.fault_every_s)
        await self._suffer()
        self._model.note("phase", "healing")
        await faults.heal()
        if self._model.violations:
            return
        cluster.store_faults.odds = type(cluster.store_faults.odds)()
        cluster.network.odds = type(cluster.network.odds)()
        cluster.availability.healed_at = self._loop.now_s
        await wait_for_work(cluster)
        if self._model.violations:
            return
        await check_liveness(
            cluster, faults.damaged_hosts, is_demanded=not self._plan.beyond_budget
        )
        if not self._model.violations:
            await check_repaired(cluster)
        if not self._model.violations:
            await check_replicated(cluster)
        for node in cluster.repairers:
            node.kill(power_off=False)
        if not self._model.violations:
            await check_chains(cluster)
        if not self._model.violations:
            await read_replicas(cluster, faults.damaged_hosts)
        if not self._model.violations:
            await check_removal(cluster, partial(check_readable, cluster))

    async def _suffer(self) -> None:
        """Wait for the faults until there are enough of them or an invariant is violated."""
        until_s = self._loop.now_s + self._plan.duration_s
        while self._loop.now_s < until_s:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._model.violations or self._model.message_count > MESSAGES_MAX:
                return
