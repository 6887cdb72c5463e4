"""Tests that the check of all replicas waits for registrations, and reports missing ones."""

import pytest

from metadata.store.ephemeral import EphemeralKeeper
from tests.simulation import run
from tests.simulation.checkers.replicas import read_replicas
from tests.simulation.cluster import Cluster
from tests.simulation.plan import make_plan
from tests.simulation.run import run_seed

LATE_SEED = 277736044
"""By its plan: the metadata service stalls while a bookie renews its registration, and the work
ends before the bookie's call does.
"""
QUIET_SEED = 21
"""By its plan: no bookie is damaged and no session expires, so that only the end of the run shows
a missing registration.
"""


def test_a_bookie_may_register_again_some_seconds_after_the_healing() -> None:
    assert run_seed(LATE_SEED).violations == ()


def test_a_bookie_that_never_registers_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    keep, read = EphemeralKeeper._keep, read_replicas

    async def keep_once(keeper: EphemeralKeeper) -> None:
        if not keeper._path.startswith("/bookies/"):
            await keep(keeper)

    async def read_after_an_expiry(cluster: Cluster, excused: list[str]) -> int:
        session = cluster.bookies[1].store
        assert session is not None
        session.expire()
        return await read(cluster, excused)

    plan = make_plan(QUIET_SEED)
    assert plan.damage_max == 0  # a damaged bookie need not register
    assert "expire_session" not in plan.fault_every_s
    monkeypatch.setattr(EphemeralKeeper, "_keep", keep_once)
    monkeypatch.setattr(run, "read_replicas", read_after_an_expiry)
    (violation,) = run_seed(QUIET_SEED).violations
    assert "['bookie-1'] did not register within 60.0 s" in violation
