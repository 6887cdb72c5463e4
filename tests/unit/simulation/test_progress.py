"""Tests of the choice of bookies that the liveness check may kill."""

import pytest

from ledger_client import Quorum
from tests.simulation.checkers.progress import gets_on_without
from tests.simulation.run import run_seed

pytestmark = pytest.mark.long

SHRUNK_SEED = 6760
"""By its plan: the check kills the only in-sync member of a ledger that had lost another."""


def test_a_ledger_continues_without_a_member_when_enough_others_are_in_sync() -> None:
    pair = Quorum.in_sync(2, 1, replica_lag_time_max=1.0)
    assert gets_on_without(pair, ("a", "b"), "a")
    assert not gets_on_without(pair, ("a",), "a")
    assert gets_on_without(pair, ("a",), "b"), "it is catching up: nothing rests on it"
    trio = Quorum.in_sync(3, 2, replica_lag_time_max=1.0)
    assert gets_on_without(trio, ("a", "b", "c"), "a")
    assert not gets_on_without(trio, ("a", "b"), "a")


def test_a_spare_replaces_a_member_when_all_must_be_in_sync() -> None:
    pair = Quorum.in_sync(2, 2, replica_lag_time_max=1.0)
    assert gets_on_without(pair, ("a", "b"), "a")
    assert not gets_on_without(pair, ("a",), "a"), "no member is left to copy from"


def test_in_quorum_mode_no_bookie_is_in_sync() -> None:
    assert gets_on_without(Quorum(3, 3, 2), (), "a")


def test_the_death_of_the_only_member_in_sync_is_no_alarm() -> None:
    assert run_seed(SHRUNK_SEED).violations == ()
