"""Test of a run with bursts: a recovery reads more than one chunk, and writes several spans."""

import pytest

from ledger_client.protocol.recovery_read import CHUNK_ENTRIES
from ledger_client.protocol.recovery_write import SPAN_BYTES_MAX
from tests.simulation import reach_plan
from tests.simulation import writing as bursts
from tests.simulation.plan import make_plan
from tests.simulation.run import run_seed

BURST_SEED = 11
"""By its plan: writers have bursts, and one is killed right after it."""


def test_bursts_exceed_what_a_recovery_handles_at_once() -> None:
    assert bursts.SMALL_COUNT[0] > CHUNK_ENTRIES
    least, most = bursts.LARGE_BYTES
    assert least < SPAN_BYTES_MAX < bursts.LARGE_COUNT[1] * most
    assert bursts.LARGE_COUNT[1] * most > reach_plan.BURST_READ_BYTES_MAX


@pytest.mark.long
def test_a_run_with_bursts_is_no_alarm() -> None:
    assert make_plan(BURST_SEED).reach.bursts
    assert run_seed(BURST_SEED).violations == ()
