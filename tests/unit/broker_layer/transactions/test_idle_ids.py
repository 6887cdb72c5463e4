"""Transactional ids without a transaction: their tombstones, and repeated initialisations."""

from dataclasses import replace

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.transactions.machine import RequestRefused
from broker_layer.transactions.values import TransactionState
from tests.unit.broker_layer.transactions.test_machine import A0, IDLE, NOW, init, known


@pytest.mark.parametrize("state", IDLE)
def test_the_tombstone_of_an_id_keeps_nothing_of_its_transactions(state: TransactionState) -> None:
    idle = known(state).transaction
    assert idle is not None
    dead = replace(idle, partitions=(A0,)).expired(NOW)
    assert (dead.state, dead.partitions, dead.changed_ms) == (TransactionState.DEAD, (), NOW)


def test_an_init_without_an_epoch_before_is_not_a_repetition() -> None:
    """No last epoch and a claim of no epoch are equal numbers."""
    assert init(known(TransactionState.EMPTY), 7, -1) == RequestRefused(ErrorCode.PRODUCER_FENCED)
