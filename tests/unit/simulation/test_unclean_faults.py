"""Test of a run in which a ledger is closed uncleanly during the faults."""

import pytest

from tests.simulation.plan import make_plan
from tests.simulation.run import run_seed

pytestmark = pytest.mark.long

GIVEN_UP_SEED = 26
"""By its plan: an operator does not reach the last members of a ledger that is being written."""


def test_a_ledger_that_is_closed_uncleanly_during_faults_is_no_alarm() -> None:
    assert "unclean_close" in make_plan(GIVEN_UP_SEED).fault_every_s
    result = run_seed(GIVEN_UP_SEED, trace=True)
    assert result.violations == ()
    assert any("unclean:" in line and "given_up=(Fragment" in line for line in result.trace)
