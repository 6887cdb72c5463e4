"""Incarnations of a producer: its next epoch, its claims, and ids whose epochs run out."""

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.transactions.machine import (
    ProducerIdNeeded,
    RequestRefused,
    TransactionMachine,
)
from broker_layer.transactions.values import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    Claim,
    TransactionState,
)
from tests.unit.broker_layer.transactions.test_machine import (
    A0,
    B0,
    IDLE,
    NOW,
    PREPARED,
    follow,
    init,
    known,
    stored,
)


def test_a_new_id_gets_a_producer_id_and_epoch_0() -> None:
    machine = TransactionMachine()
    assert init(machine) == ProducerIdNeeded()
    transaction = follow(machine, init(machine, fresh=42))
    assert (transaction.producer_id, transaction.producer_epoch) == (42, 0)
    assert transaction.state is TransactionState.EMPTY
    assert transaction.timeout_ms == 2000


def test_a_removed_id_gets_a_new_producer_id_for_any_claim() -> None:
    transaction = stored(init(TransactionMachine(), 7, 3, fresh=42))
    assert (transaction.producer_id, transaction.producer_epoch) == (42, 0)


@pytest.mark.parametrize("state", IDLE)
def test_an_idle_id_gets_the_next_epoch(state: TransactionState) -> None:
    transaction = stored(init(known(state)))
    assert (transaction.producer_id, transaction.producer_epoch) == (7, 4)
    assert transaction.last_epoch == -1
    assert transaction.state is TransactionState.EMPTY
    assert transaction.timeout_ms == 2000
    assert (transaction.started_ms, transaction.changed_ms) == (-1, NOW)


@pytest.mark.parametrize("state", IDLE)
def test_the_holder_of_the_current_epoch_gets_the_next(state: TransactionState) -> None:
    transaction = stored(init(known(state), 7, 3))
    assert (transaction.producer_epoch, transaction.last_epoch) == (4, 3)


@pytest.mark.parametrize("state", IDLE)
def test_a_repeated_request_gets_the_same_epoch(state: TransactionState) -> None:
    transaction = stored(init(known(state, last_epoch=2), 7, 2))
    assert (transaction.producer_epoch, transaction.last_epoch) == (3, 2)


@pytest.mark.parametrize("state", [*IDLE, TransactionState.ONGOING])
@pytest.mark.parametrize("claim", [(7, -1), (7, 2), (7, 4), (8, 3), (6, EPOCH_EXHAUSTED)])
def test_a_claim_that_is_not_current_is_fenced(
    state: TransactionState, claim: tuple[int, int]
) -> None:
    assert init(known(state), *claim) == RequestRefused(ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("claim", [None, (7, 3)])
def test_an_open_transaction_is_first_aborted_in_a_separate_epoch(
    claim: tuple[int, int] | None,
) -> None:
    machine = known(TransactionState.ONGOING)
    transaction = follow(machine, init(machine, *(claim or ())))
    assert transaction.state is TransactionState.PREPARE_ABORT
    assert (transaction.producer_epoch, transaction.last_epoch) == (4, -1)
    assert transaction.partitions == (A0, B0)
    assert init(machine) == RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    machine.marker_stored(A0)
    machine.marker_stored(B0)
    follow(machine, machine.complete(NOW))
    assert stored(init(machine)).producer_epoch == 5


@pytest.mark.parametrize("state", PREPARED)
def test_init_is_refused_while_a_transaction_is_being_ended(state: TransactionState) -> None:
    assert init(known(state)) == RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert init(known(state), 7, 3) == RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert init(known(state), 9, 3) == RequestRefused(ErrorCode.PRODUCER_FENCED)


def test_exhausted_epochs_need_a_new_producer_id() -> None:
    machine = known(TransactionState.EMPTY, epoch=EPOCH_EXHAUSTED)
    assert init(machine) == ProducerIdNeeded()
    transaction = stored(init(machine, fresh=8))
    assert (transaction.producer_id, transaction.producer_epoch) == (8, 0)
    assert (transaction.previous_producer_id, transaction.last_epoch) == (7, -1)


def test_the_holder_of_the_last_epoch_may_retry_for_its_new_producer_id() -> None:
    machine = known(TransactionState.EMPTY, epoch=EPOCH_EXHAUSTED)
    assert init(machine, 7, EPOCH_EXHAUSTED) == ProducerIdNeeded()
    follow(machine, init(machine, 7, EPOCH_EXHAUSTED, fresh=8))
    again = stored(init(machine, 7, EPOCH_EXHAUSTED))
    assert (again.producer_id, again.producer_epoch) == (8, 0)
    assert init(machine, 7, EPOCH_EXHAUSTED - 1) == RequestRefused(ErrorCode.PRODUCER_FENCED)


def test_the_old_producer_id_is_fenced_once_the_new_one_is_used() -> None:
    machine = known(TransactionState.EMPTY, epoch=EPOCH_EXHAUSTED)
    follow(machine, init(machine, 7, EPOCH_EXHAUSTED, fresh=8))
    claim, fenced = Claim("t", 8, 0), RequestRefused(ErrorCode.PRODUCER_FENCED)
    follow(machine, machine.add_partitions(claim, [A0], NOW))
    assert init(machine, 7, EPOCH_EXHAUSTED) == fenced
    follow(machine, machine.end(claim, committed=True, now_ms=NOW))
    machine.marker_stored(A0)
    follow(machine, machine.complete(NOW))
    assert init(machine, 7, EPOCH_EXHAUSTED) == fenced


def test_a_fenced_producer_may_not_retry_for_its_epoch() -> None:
    machine = known(TransactionState.ONGOING, last_epoch=2)
    assert follow(machine, init(machine)).last_epoch == -1
    machine.marker_stored(A0)
    machine.marker_stored(B0)
    follow(machine, machine.complete(NOW))
    assert init(machine, 7, 2) == RequestRefused(ErrorCode.PRODUCER_FENCED)


def test_only_the_last_epoch_of_the_former_producer_id_may_retry() -> None:
    machine = known(TransactionState.EMPTY, epoch=EPOCH_EXHAUSTED)
    follow(machine, init(machine, 7, EPOCH_EXHAUSTED, fresh=8))
    fenced = RequestRefused(ErrorCode.PRODUCER_FENCED)
    assert init(machine, 9, EPOCH_EXHAUSTED) == fenced, "it never had this id"
    follow(machine, init(machine, 8, 0))
    assert stored(init(machine, 8, 0)).producer_epoch == 1, "a retry"
    assert init(machine, 7, 0) == fenced, "this epoch is of the new id"


def test_the_former_producer_id_is_fenced_when_the_epochs_of_its_successor_run_out() -> None:
    machine = known(TransactionState.EMPTY, epoch=EPOCH_EXHAUSTED, previous=6)
    fenced = RequestRefused(ErrorCode.PRODUCER_FENCED)
    assert init(machine, 6, EPOCH_EXHAUSTED) == fenced
    assert init(machine, 6, EPOCH_EXHAUSTED, fresh=8) == fenced
    assert init(machine, 7, EPOCH_EXHAUSTED) == ProducerIdNeeded()


def test_an_old_epoch_is_fenced_even_when_epochs_are_exhausted() -> None:
    machine = known(TransactionState.EMPTY, epoch=EPOCH_EXHAUSTED, last_epoch=-1)
    assert init(machine, 7, 5) == RequestRefused(ErrorCode.PRODUCER_FENCED)


def test_the_last_producer_is_fenced_by_an_epoch_that_is_never_assigned() -> None:
    machine = known(TransactionState.ONGOING, epoch=EPOCH_EXHAUSTED)
    assert follow(machine, init(machine)).producer_epoch == EPOCH_MAX
    machine.marker_stored(A0)
    machine.marker_stored(B0)
    follow(machine, machine.complete(NOW))
    assert init(machine, 7, EPOCH_EXHAUSTED) == RequestRefused(ErrorCode.PRODUCER_FENCED)
    transaction = stored(init(machine, fresh=8))
    assert (transaction.producer_id, transaction.producer_epoch) == (8, 0)


def test_the_epoch_that_fences_the_last_producer_opens_no_transaction() -> None:
    machine = known(TransactionState.ONGOING, epoch=EPOCH_EXHAUSTED)
    assert follow(machine, init(machine)).producer_epoch == EPOCH_MAX
    for partition in (A0, B0):
        machine.marker_stored(partition)
    follow(machine, machine.complete(NOW))
    fenced = RequestRefused(ErrorCode.PRODUCER_FENCED)
    assert machine.add_partitions(Claim("t", 7, EPOCH_MAX), [A0], NOW) == fenced
    assert machine.end(Claim("t", 7, EPOCH_MAX), committed=True, now_ms=NOW) == fenced
