"""Tests that clients end their work after the healing, unless they wait for damaged data."""

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from ledger_client import LedgerClient
from metadata.ids import LedgerId
from tests.simulation import workloads
from tests.simulation.checkers.liveness import _may_wait_without_end
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel
from tests.simulation.run import run_seed
from tests.support.sample_ledgers import IN_SYNC, closed_ledger

if TYPE_CHECKING:
    from tests.simulation.nodes import ClientNode

pytestmark = pytest.mark.long

LONE_COPY_SEED = 705623079
"""By its plan: a recovery closes an in-sync ledger on one bookie, whose disk is wiped later. A
client reads the ledger without a deadline.
"""
FEW_BOOKIES_SEED = 423
"""By its plan: two of three bookies are damaged, an in-sync ledger needs all three, and its writer
has no deadline.
"""
REPLACED_LEADER_SEED = 700005
"""By its plan: a client reads a new ledger through a server whose leader was replaced."""
SOUND_SEED = 8
"""By its plans: a client reads again; beyond the budget, no fault loses an entry by chance."""


def test_a_read_of_lost_copies_is_no_alarm() -> None:
    assert run_seed(LONE_COPY_SEED).violations == ()


def test_an_append_without_enough_bookies_is_no_alarm() -> None:
    assert run_seed(FEW_BOOKIES_SEED).violations == ()


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("has_many", [False, True])
def test_beyond_the_budget_an_append_to_lost_members_is_no_alarm(
    *, is_lost: bool, has_many: bool
) -> None:
    """A client may wait if the only in-sync member of a ledger that it writes lost its entries."""
    client = cast("ClientNode", SimpleNamespace(host="holder", reads=None, writes=None))
    ledger = LedgerModel(LedgerId(7), closed_ledger("a", "abc", quorum=IN_SYNC))
    client.writes = None if has_many else ledger
    cluster = SimpleNamespace(
        plan=SimpleNamespace(beyond_budget=True, bookie_count=3),
        damaged={},
        model=SimpleNamespace(ledgers={7: ledger}),
        live_ledgers={7: "holder"} if has_many else {},
        is_sound=lambda bookie_id: not is_lost or bookie_id != "a",
    )
    assert _may_wait_without_end(cast("Cluster", cluster), client) is is_lost


def test_a_ledger_that_a_replaced_leader_does_not_know_is_no_alarm() -> None:
    assert run_seed(REPLACED_LEADER_SEED).violations == ()


@pytest.mark.parametrize("beyond_budget", [False, True])
def test_a_read_of_sound_copies_that_hangs_is_noticed(
    monkeypatch: pytest.MonkeyPatch, *, beyond_budget: bool
) -> None:
    async def hang(cluster: Cluster, _: LedgerClient, ledger: LedgerModel) -> int:
        await asyncio.get_running_loop().create_future()
        raise AssertionError(cluster, ledger)

    monkeypatch.setattr(workloads, "read_all", hang)
    (violation,) = run_seed(SOUND_SEED, beyond_budget=beyond_budget).violations
    assert "['rereader-0'] did not end within 1000.0 s of healing" in violation
