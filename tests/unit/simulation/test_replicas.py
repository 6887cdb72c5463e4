"""Tests that the check of all replicas waits for registrations, and reports missing ones."""

import pytest

from metadata.store.ephemeral import EphemeralKeeper
from tests.simulation.run import run_seed

LATE_SEED = 277736044
"""By its plan: the metadata service stalls while a bookie renews its registration, and the work
ends before the bookie's call does.
"""


def test_a_bookie_may_register_again_some_seconds_after_the_healing() -> None:
    assert run_seed(LATE_SEED).violations == ()


def test_a_bookie_that_never_registers_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = EphemeralKeeper._keep

    async def keep_once(keeper: EphemeralKeeper) -> None:
        if not keeper._path.startswith("/bookies/"):
            await keep(keeper)

    monkeypatch.setattr(EphemeralKeeper, "_keep", keep_once)
    (violation,) = run_seed(LATE_SEED).violations
    assert "'bookie-3'] did not register within 60.0 s" in violation
