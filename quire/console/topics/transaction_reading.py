"""Transactions that are open for long, and their end by an operator.

Leaves the states to the coordinators. An operator ends a transaction as an administrator's client
does: with a new epoch for its transactional id, which refuses the old producer and aborts what it
left open.

Source: KIP-664, KIP-588.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from broker_layer.peer import PeerAddress
from quire.console.topics.access import KeyType, coordinator_of
from quire.operate.brokers import BrokerAccess, NoBrokerError, require

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
SHOWN_MAX: Final = 200
PARTITIONS_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One transaction that is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    started_ms: int
    timeout_ms: int
    partitions: Sequence[str]

    @property
    def may_abort(self) -> bool:
        """Whether its outcome is not decided yet."""
        return self.state == "Ongoing"


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Transactions that are open for longer than asked, the oldest first."""

    rows: Sequence[OpenTransaction]
    left_out: int
    """Number of those that are not shown."""
    silent: Sequence[int]
    """Ids of brokers that did not answer."""


async def read_open(brokers: BrokerAccess, longer_than_ms: int) -> OpenTransactions:
    """Return the transactions of all brokers that answer. Raises NoBrokerError if none does."""
    request = ListTransactionsRequest(
        state_filters=list(OPEN_STATES),
        producer_id_filters=[],
        duration_filter=longer_than_ms or -1,
    )
    answers = await asyncio.gather(*(_listed(brokers, each, request) for each in brokers.addresses))
    silent = [
        address.broker_id
        for address, answer in zip(brokers.addresses, answers, strict=True)
        if answer is None
    ]
    if len(silent) == len(answers):
        raise NoBrokerError("no broker responds", try_next="check the brokers' logs, then retry")
    room, left_out, found = SHOWN_MAX, 0, list[OpenTransaction]()
    for address, ids in zip(brokers.addresses, answers, strict=True):
        shown = (ids or [])[:room]
        room -= len(shown)
        left_out += len(ids or []) - len(shown)
        if shown:
            found += await _described(brokers, address, shown)
    return OpenTransactions(sorted(found, key=lambda each: each.started_ms), left_out, silent)


async def read_one(brokers: BrokerAccess, transactional_id: str) -> OpenTransaction | None:
    """Return the state of a transactional id; None if it has none. Raises NoBrokerError."""
    coordinator = await coordinator_of(brokers, transactional_id, KeyType.TRANSACTION)
    found = await _described(brokers, coordinator, [transactional_id])
    return found[0] if found else None


async def abort(brokers: BrokerAccess, found: OpenTransaction) -> None:
    """Refuse the producer of a transaction from now on, and abort the transaction. Raises
    TopicRefusedError, NoBrokerError.
    """
    coordinator = await coordinator_of(brokers, found.transactional_id, KeyType.TRANSACTION)
    request = InitProducerIdRequest(
        transactional_id=found.transactional_id,
        transaction_timeout_ms=found.timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    answer = await brokers.ask_one(coordinator, request, InitProducerIdResponse)
    if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return  # it ends now: the coordinator writes the markers
    require(answer.error_code)


async def _listed(
    brokers: BrokerAccess, address: PeerAddress, request: ListTransactionsRequest
) -> list[str] | None:
    try:
        answer = await brokers.ask_one(address, request, ListTransactionsResponse)
    except NoBrokerError:
        return None
    if answer.error_code != ErrorCode.NONE:
        return None
    return [each.transactional_id for each in answer.transaction_states]


async def _described(
    brokers: BrokerAccess, address: PeerAddress, ids: Sequence[str]
) -> list[OpenTransaction]:
    request = DescribeTransactionsRequest(transactional_ids=list(ids))
    answer = await brokers.ask_one(address, request, DescribeTransactionsResponse)
    return [
        OpenTransaction(
            each.transactional_id,
            each.transaction_state,
            each.producer_id,
            each.producer_epoch,
            each.transaction_start_time_ms,
            each.transaction_timeout_ms,
            [f"{topic.topic}-{number}" for topic in each.topics for number in topic.partitions][
                :PARTITIONS_SHOWN_MAX
            ],
        )
        for each in answer.transaction_states
        if each.error_code == ErrorCode.NONE
    ]
