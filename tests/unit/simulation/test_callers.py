"""Tests of the checker of several callers on one writer, and of a run that has them."""

from collections.abc import Iterator

import pytest

from ledger_client import LedgerError
from metadata.ids import LedgerId
from tests.simulation.checkers.client_promises import CallersChecker
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.simulation.plan import make_plan
from tests.simulation.run import run_seed

SHARED_SEED = 14
"""By its plan: several tasks append to one writer."""


@pytest.fixture
def model() -> Iterator[Model]:
    loop = SimulationLoop(1)
    yield Model(loop)
    loop.close()


@pytest.fixture
def calls(model: Model) -> CallersChecker:
    return CallersChecker(model, model.ledger(7))


def admit(model: Model, first: int, *payloads: bytes) -> None:
    on_admitted = model.ledger(7).on_admitted
    assert on_admitted is not None
    on_admitted(first, payloads)


def test_calls_in_order_are_no_alarm_and_their_payloads_are_known(
    model: Model, calls: CallersChecker
) -> None:
    many, one, late = calls.begin([b"a", b"b"]), calls.begin([b"c"]), calls.begin([b"d"])
    admit(model, 0, b"a", b"b")
    admit(model, 2, b"c")
    calls.cancel(late)
    calls.succeed(many, [0, 1])
    calls.succeed(one, [2])
    assert model.violations == []
    assert model.ledger(7).payloads == {0: b"a", 1: b"b", 2: b"c"}


def test_an_id_after_the_cancellation_is_reported(model: Model, calls: CallersChecker) -> None:
    calls.cancel(calls.begin([b"a"]))
    admit(model, 0, b"a")
    assert "after call 0 had ended" in str(model.violations[0])


def test_a_second_id_is_reported(model: Model, calls: CallersChecker) -> None:
    calls.begin([b"a"])
    admit(model, 0, b"a")
    admit(model, 1, b"a")
    assert "got id 1 twice" in str(model.violations[0])


def test_a_caller_that_passes_the_line_is_reported(model: Model, calls: CallersChecker) -> None:
    calls.begin([b"a"])
    calls.begin([b"b"])
    admit(model, 0, b"b")
    admit(model, 1, b"a")
    assert "got id 1 after call 1" in str(model.violations[0])


def test_ids_of_another_caller_are_reported(model: Model, calls: CallersChecker) -> None:
    call = calls.begin([b"a"])
    admit(model, 0, b"a")
    calls.succeed(call, [1])
    assert "received the ids [1], and its entries got [0]" in str(model.violations[0])


@pytest.mark.usefixtures("calls")
def test_bytes_that_no_caller_gave_are_reported(model: Model) -> None:
    admit(model, 0, b"a")
    assert "no caller gave" in str(model.violations[0])


def test_an_error_that_denies_an_id_is_reported(model: Model, calls: CallersChecker) -> None:
    call = calls.begin([b"a"])
    admit(model, 0, b"a")
    calls.fail(call, LedgerError("no room", ledger_id=LedgerId(7), outcome="not_written"))
    assert "was not written, and got [0]" in str(model.violations[0])


@pytest.mark.long
def test_a_run_with_several_callers_is_no_alarm() -> None:
    assert make_plan(SHARED_SEED).reach.callers
    assert run_seed(SHARED_SEED).violations == ()
