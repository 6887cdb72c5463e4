"""Tests of the checker that reports choices of bookies with avoidable shared hosts."""

from collections.abc import Iterator
from random import Random

import pytest

from ledger_client.bookies.placement_policy import SpreadPolicy
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.registry.registration import BookieRegistration
from tests.simulation.checkers.hosts import HostsChecker, watched_choices
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model

PAIR = QuorumSpec(2, 2, 2)
A1, A2, B1 = (BookieId(name) for name in ("a1", "a2", "b1"))
UP = {
    bookie: BookieRegistration(bookie, "10.0.0.1", 1, location=f"/sim/sim/{bookie[0]}")
    for bookie in (A1, A2, B1)
}


@pytest.fixture
def model() -> Iterator[Model]:
    loop = SimulationLoop(1)
    yield Model(loop)
    loop.close()


def test_an_avoidable_shared_host_is_reported(model: Model) -> None:
    checker = HostsChecker(model)
    checker.on_choice(PAIR, (None, None), (A1, B1), UP, {})
    checker.on_choice(PAIR, (A1, None), (A1, A2), UP, {B1: "quarantined"})
    assert model.violations == []
    checker.on_choice(PAIR, (A1, None), (A1, A2), UP, {})
    checker.on_choice(PAIR, (None, None), (A1, A2), UP, {})
    assert [violation.checker for violation in model.violations] == ["hosts"] * 2


def test_every_choice_of_a_policy_is_seen(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = HostsChecker(model)
    seen: list[tuple[BookieId, ...]] = []
    monkeypatch.setattr(checker, "on_choice", lambda *arguments: seen.append(arguments[2]))
    with watched_choices(checker):
        chosen = SpreadPolicy().new_ensemble(PAIR, UP, {}, Random(1))
        found = SpreadPolicy().replacements(PAIR, (A1, A2), frozenset({1}), UP, {}, Random(1))
    assert seen == [chosen, (A1, B1)]
    assert found == {1: B1}
    SpreadPolicy().new_ensemble(PAIR, UP, {}, Random(1))
    assert len(seen) == 2
