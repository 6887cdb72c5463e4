"""Decisions about one transactional id, for each state and error code."""

from dataclasses import replace

import pytest

from broker_layer.errors import LeftConnectionError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.transactions.machine import (
    PARTITIONS_PER_TRANSACTION_MAX,
    Decision,
    InitDecision,
    RequestRefused,
    Store,
    TransactionMachine,
    Unchanged,
)
from broker_layer.transactions.values import (
    Claim,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
NOW = 1_000_000
CLAIM = Claim("t", 7, 3)
IDLE = [
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
]
PREPARED = [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]


def known(
    state: TransactionState,
    *,
    epoch: int = 3,
    last_epoch: int = -1,
    previous: int = -1,
    timeout_ms: int = 1000,
) -> TransactionMachine:
    has_partitions = state is TransactionState.ONGOING or state.is_prepared
    return TransactionMachine(
        Transaction(
            transactional_id="t",
            producer_id=7,
            producer_epoch=epoch,
            previous_producer_id=previous,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=state,
            partitions=(A0, B0) if has_partitions else (),
            started_ms=NOW - 500,
            changed_ms=NOW - 100,
        )
    )


def init(
    machine: TransactionMachine,
    producer_id: int | None = None,
    epoch: int = 0,
    *,
    fresh: int | None = None,
) -> InitDecision:
    claim = None if producer_id is None else ProducerIdentity(producer_id, epoch)
    return machine.init_producer_id(claim, "t", 2000, NOW, fresh)


def stored(decision: Decision | InitDecision) -> Transaction:
    assert isinstance(decision, Store), decision
    return decision.transaction


def follow(machine: TransactionMachine, decision: Decision | InitDecision) -> Transaction:
    machine.storing(stored(decision))
    machine.stored()
    assert machine.transaction is not None
    return machine.transaction


# Partitions


@pytest.mark.parametrize("state", IDLE)
def test_the_first_partition_opens_a_transaction(state: TransactionState) -> None:
    transaction = stored(known(state).add_partitions(CLAIM, [B0, A0, B0], NOW))
    assert transaction.state is TransactionState.ONGOING
    assert transaction.partitions == (A0, B0)
    assert transaction.started_ms == NOW


def test_partitions_are_added_to_an_open_transaction() -> None:
    machine = known(TransactionState.ONGOING)
    transaction = stored(machine.add_partitions(CLAIM, [A1], NOW))
    assert transaction.partitions == (A0, A1, B0)
    assert (transaction.started_ms, transaction.changed_ms) == (NOW - 500, NOW)


@pytest.mark.parametrize("added", [[], [A0], [B0, A0]])
def test_known_partitions_are_not_stored_again(added: list[TopicPartition]) -> None:
    assert known(TransactionState.ONGOING).add_partitions(CLAIM, added, NOW) == Unchanged()


@pytest.mark.parametrize("state", PREPARED)
def test_a_transaction_that_is_being_ended_gets_no_partitions(state: TransactionState) -> None:
    refused = RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert known(state).add_partitions(CLAIM, [A0], NOW) == refused


def test_a_transaction_does_not_grow_beyond_its_limit() -> None:
    many = [TopicPartition("c", number) for number in range(PARTITIONS_PER_TRANSACTION_MAX - 1)]
    refused = RequestRefused(ErrorCode.POLICY_VIOLATION)
    machine = known(TransactionState.ONGOING)
    assert machine.add_partitions(CLAIM, many, NOW) == refused
    largest = stored(machine.add_partitions(CLAIM, many[1:], NOW))
    assert len(largest.partitions) == PARTITIONS_PER_TRANSACTION_MAX


@pytest.mark.parametrize("state", list(TransactionState)[:-1])
def test_a_claim_of_another_producer_is_refused(state: TransactionState) -> None:
    unknown = RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    fenced = RequestRefused(ErrorCode.PRODUCER_FENCED)
    for claim, refused in [
        (Claim("t", 8, 3), unknown),
        (Claim("t", 7, 2), fenced),
        (Claim("t", 7, 4), fenced),
    ]:
        machine = known(state)
        assert machine.add_partitions(claim, [A0], NOW) == refused
        assert machine.end(claim, committed=True, now_ms=NOW) == refused
        assert machine.verify(claim, [A0, A1]) == {A0: refused.code, A1: refused.code}


def test_an_uninitialised_id_is_unknown() -> None:
    machine, unknown = TransactionMachine(), RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert machine.add_partitions(CLAIM, [A0], NOW) == unknown
    assert machine.end(CLAIM, committed=True, now_ms=NOW) == unknown
    assert machine.verify(CLAIM, [A0]) == {A0: unknown.code}


# The end


@pytest.mark.parametrize(
    ("state", "committed", "expected"),
    [
        (TransactionState.EMPTY, True, RequestRefused(ErrorCode.INVALID_TXN_STATE)),
        (TransactionState.EMPTY, False, RequestRefused(ErrorCode.INVALID_TXN_STATE)),
        (TransactionState.PREPARE_COMMIT, True, RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)),
        (TransactionState.PREPARE_COMMIT, False, RequestRefused(ErrorCode.INVALID_TXN_STATE)),
        (TransactionState.PREPARE_ABORT, True, RequestRefused(ErrorCode.INVALID_TXN_STATE)),
        (TransactionState.PREPARE_ABORT, False, RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)),
        (TransactionState.COMPLETE_COMMIT, True, Unchanged()),
        (TransactionState.COMPLETE_COMMIT, False, RequestRefused(ErrorCode.INVALID_TXN_STATE)),
        (TransactionState.COMPLETE_ABORT, True, RequestRefused(ErrorCode.INVALID_TXN_STATE)),
        (TransactionState.COMPLETE_ABORT, False, Unchanged()),
    ],
)
def test_the_end_in_each_state(
    state: TransactionState, committed: bool, expected: Decision
) -> None:
    assert known(state).end(CLAIM, committed=committed, now_ms=NOW) == expected


@pytest.mark.parametrize(
    ("committed", "prepared", "complete"),
    [
        (True, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
        (False, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
    ],
)
def test_a_transaction_ends_by_a_decision_and_all_its_markers(
    committed: bool, prepared: TransactionState, complete: TransactionState
) -> None:
    machine = known(TransactionState.ONGOING)
    decided = follow(machine, machine.end(CLAIM, committed=committed, now_ms=NOW))
    assert decided.state is prepared
    assert (decided.producer_epoch, decided.changed_ms) == (3, NOW)
    assert decided.marker(9) == (7, 3, committed, 9)
    assert list(machine.unmarked) == [A0, B0]
    machine.marker_stored(B0)
    assert machine.complete(NOW) == Unchanged()
    machine.marker_stored(B0)
    machine.marker_stored(A0)
    completed = follow(machine, machine.complete(NOW + 1))
    assert completed.state is complete
    assert (completed.partitions, completed.changed_ms) == ((), NOW + 1)
    assert machine.complete(NOW) == Unchanged()


def test_a_loaded_decision_needs_all_markers_again() -> None:
    assert list(known(TransactionState.PREPARE_COMMIT).unmarked) == [A0, B0]
    assert not known(TransactionState.ONGOING).unmarked


def test_no_decision_is_made_while_another_is_being_stored() -> None:
    machine = known(TransactionState.ONGOING)
    machine.storing(stored(machine.add_partitions(CLAIM, [A1], NOW)))
    concurrent = RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert machine.add_partitions(CLAIM, [A1], NOW) == concurrent
    assert machine.end(CLAIM, committed=True, now_ms=NOW) == concurrent
    assert init(machine) == concurrent
    assert machine.time_out(NOW + 10_000) == Unchanged()
    assert machine.expire(NOW + 10_000, 1) == Unchanged()
    assert machine.complete(NOW) == Unchanged()
    assert machine.verify(CLAIM, [A1]) == {A1: ErrorCode.TRANSACTION_ABORTABLE}
    assert machine.newest is machine.pending
    machine.stored()
    assert machine.newest is machine.transaction
    assert machine.verify(CLAIM, [A1]) == {A1: ErrorCode.NONE}


def test_an_idle_id_does_not_expire_while_its_next_transaction_is_being_stored() -> None:
    machine = known(TransactionState.EMPTY)
    machine.storing(stored(machine.add_partitions(CLAIM, [A0], NOW)))
    assert machine.expire(NOW + 10_000, 1) == Unchanged()


def test_a_transaction_is_completed_once() -> None:
    machine = known(TransactionState.PREPARE_COMMIT)
    machine.marker_stored(A0)
    machine.marker_stored(B0)
    machine.storing(stored(machine.complete(NOW)))
    assert machine.complete(NOW) == Unchanged()
    assert TransactionMachine().complete(NOW) == Unchanged()


# Verification


def test_verification_distinguishes_partitions() -> None:
    assert known(TransactionState.ONGOING).verify(CLAIM, [A0, A1]) == {
        A0: ErrorCode.NONE,
        A1: ErrorCode.TRANSACTION_ABORTABLE,
    }


@pytest.mark.parametrize("state", IDLE)
def test_verification_without_a_transaction_fails(state: TransactionState) -> None:
    assert known(state).verify(CLAIM, [A0]) == {A0: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("state", PREPARED)
def test_a_transaction_that_is_being_ended_is_not_confirmed(state: TransactionState) -> None:
    assert known(state).verify(CLAIM, [A0]) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}


# Time


def test_an_open_transaction_times_out_and_its_producer_is_fenced() -> None:
    machine = known(TransactionState.ONGOING, timeout_ms=1000)
    assert machine.time_out(NOW + 500) == Unchanged()
    transaction = follow(machine, machine.time_out(NOW + 501))
    assert transaction.state is TransactionState.PREPARE_ABORT
    assert transaction.producer_epoch == 4
    fenced = RequestRefused(ErrorCode.PRODUCER_FENCED)
    assert machine.end(CLAIM, committed=True, now_ms=NOW) == fenced


@pytest.mark.parametrize("state", [*IDLE, *PREPARED])
def test_only_an_open_transaction_times_out(state: TransactionState) -> None:
    assert known(state).time_out(NOW + 10**9) == Unchanged()
    assert TransactionMachine().time_out(NOW) == Unchanged()


@pytest.mark.parametrize("state", IDLE)
def test_an_idle_id_expires(state: TransactionState) -> None:
    machine = known(state)
    assert machine.expire(NOW + 899, 1000) == Unchanged()
    assert stored(machine.expire(NOW + 900, 1000)).state is TransactionState.DEAD


@pytest.mark.parametrize("state", [TransactionState.ONGOING, *PREPARED])
def test_an_id_in_use_does_not_expire(state: TransactionState) -> None:
    assert known(state).expire(NOW + 10**12, 1) == Unchanged()
    assert TransactionMachine().expire(NOW, 1) == Unchanged()


def test_states_have_the_names_of_kafkas_tools() -> None:
    assert [state.title for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
    ]


def test_a_dead_id_is_unknown() -> None:
    live = known(TransactionState.EMPTY).transaction
    assert live is not None
    machine = TransactionMachine(replace(live, state=TransactionState.DEAD))
    unknown = RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert machine.end(CLAIM, committed=True, now_ms=NOW) == unknown


# Connections


def test_a_late_request_on_a_connection_that_was_left_changes_nothing() -> None:
    machine = known(TransactionState.ONGOING)
    old, new = CLAIM._replace(connection_id=4), CLAIM._replace(connection_id=5)
    follow(machine, machine.add_partitions(old, [A1], NOW))
    follow(machine, machine.end(new, committed=True, now_ms=NOW))  # repeated after a new connection
    for partition in (A0, A1, B0):
        machine.marker_stored(partition)
    follow(machine, machine.complete(NOW))
    for begun in (None, A0):
        if begun is not None:
            follow(machine, machine.add_partitions(new, [begun], NOW))
        before = machine.transaction
        with pytest.raises(LeftConnectionError, match="on a new one"):
            machine.end(old, committed=True, now_ms=NOW)
        with pytest.raises(LeftConnectionError, match="on a new one"):
            machine.add_partitions(old, [B0], NOW)
        assert (machine.transaction, machine.pending) == (before, None)
    assert isinstance(
        machine.end(CLAIM._replace(connection_id=6), committed=False, now_ms=0), Store
    )


def test_only_the_same_producer_leaves_a_connection() -> None:
    machine = known(TransactionState.EMPTY)
    follow(machine, machine.add_partitions(CLAIM._replace(connection_id=5), [A0], NOW))
    follow(machine, machine.time_out(NOW + 10_000))
    machine.marker_stored(A0)
    follow(machine, machine.complete(NOW))
    assert follow(machine, init(machine)).producer_epoch == CLAIM.epoch + 2
    other = CLAIM._replace(epoch=CLAIM.epoch + 2, connection_id=4)
    assert isinstance(machine.add_partitions(other, [A0], NOW), Store)
    unnumbered = other._replace(connection_id=0)
    assert isinstance(machine.add_partitions(unnumbered, [A0], NOW), Store)
