"""Tests of the checker that allows "no such ledger" only for deleted ledgers."""

from collections.abc import Iterator

import pytest

from metadata.ids import LedgerId
from tests.simulation.checkers.bookie_answers import NegativesChecker
from tests.simulation.checkers.checker import Asked
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.support.metadata.samples import open_ledger

BOOKIE = "bookie-a"


@pytest.fixture
def model() -> Iterator[Model]:
    loop = SimulationLoop(1)
    yield Model(loop)
    loop.close()


def _read(ledger_id: int) -> Asked:
    asked = Asked("read", ledger_id, 0, 0, flag=False)
    asked.delivered_at_s = 9.0
    return asked


@pytest.mark.parametrize("entry_id", [None, 0])
def test_a_ledger_that_exists_is_not_denied(model: Model, entry_id: int | None) -> None:
    model.held[BOOKIE, 7] = {0: 5.0}
    model.ledger(7).metadata = open_ledger(LedgerId(7))
    NegativesChecker(model).on_negative(BOOKIE, _read(7), entry_id)
    assert [violation.checker for violation in model.violations] == ["negatives"]


def test_a_deleted_ledger_may_be_unknown_but_not_cut(model: Model) -> None:
    model.held[BOOKIE, 7] = {0: 5.0}
    model.ledger(7).metadata = None
    checker = NegativesChecker(model)
    checker.on_negative(BOOKIE, _read(7), None)
    assert model.violations == []
    checker.on_negative(BOOKIE, _read(7), 0)
    assert len(model.violations) == 1
