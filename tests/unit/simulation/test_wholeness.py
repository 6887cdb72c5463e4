"""Tests that in-sync ledgers are complete, and without marks, some time after the healing."""

from tests.simulation.run import run_seed

STRAY_MARK_SEED = 277735999
"""By its plan: a copy fails while the metadata service stalls, its mark stays, and a spare takes
the place of its target.
"""


def test_a_mark_of_a_bookie_that_is_no_member_does_not_stay() -> None:
    assert run_seed(STRAY_MARK_SEED).violations == ()
