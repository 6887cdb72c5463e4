"""Writer of markers to the partitions that this broker leads.

Leaves order and checks in a log to `broker_layer.log.topic_log`, and the offsets that a transaction
commits to the group coordinator.

Invariants: a marker is passed to its log before `write` returns; earlier verifications are void
from then on. A marker that is still being appended is not appended a second time.

Source: KIP-98, "Complete the transaction".
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import (
    ControlKind,
    RecordBatchHeader,
    build_control_batch,
    read_header,
)
from broker_layer.transactions.values import Marker, TopicPartition
from broker_layer.transactions.verification_guards import VerificationGuards


class MarkedLog(Protocol):
    """A partition's log, as far as markers need it (`broker_layer.log.topic_log.TopicLog`)."""

    def append(
        self, header: RecordBatchHeader, data: bytearray, *, coordinator_epoch: int | None
    ) -> Awaitable[object]:
        """Append a batch; the result is available when it is committed. Raises TopicError."""


class GroupMarkers(Protocol):
    """The group coordinator, as far as markers need it."""

    def write_markers(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,  # noqa: FBT001 - positional, as in the coordinator
    ) -> Awaitable[None]:
        """Commit or drop the offsets of a transaction, durably. Raises TopicError."""


@dataclass(eq=False, repr=False)
class LocalMarkerWriter:
    """Writes all markers for the partitions that one broker leads."""

    _log_of: Callable[[str, int], MarkedLog]
    _groups: GroupMarkers
    _guards: VerificationGuards
    _wall_clock_ms: Callable[[], int]
    _under_way: dict[tuple[TopicPartition, Marker], "asyncio.Future[ErrorCode]"] = field(
        default_factory=dict, init=False
    )

    def write(self, partition: TopicPartition, marker: Marker) -> Awaitable[ErrorCode]:
        """Append a marker before this returns; see `ports.LocalMarkers`."""
        key = partition, marker
        outcome = self._under_way.get(key)
        if outcome is None:
            self._guards.marker_written(partition, marker.producer_id)
            outcome = asyncio.ensure_future(_code_of(self._appended(partition, marker)))
            self._under_way[key] = outcome
            outcome.add_done_callback(lambda _: self._under_way.pop(key))
        return asyncio.shield(outcome)

    def _appended(
        self, partition: TopicPartition, marker: Marker
    ) -> Awaitable[object] | TopicError:
        try:
            if partition.topic == CONSUMER_OFFSETS:
                return self._groups.write_markers(
                    partition.partition,
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.committed,
                )
            log = self._log_of(partition.topic, partition.partition)
            batch = self._batch(marker)
            return log.append(read_header(batch), batch, coordinator_epoch=marker.coordinator_epoch)
        except TopicError as error:
            return error

    def _batch(self, marker: Marker) -> bytearray:
        return build_control_batch(
            ControlKind.COMMIT if marker.committed else ControlKind.ABORT,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            self._wall_clock_ms(),
        )


async def _code_of(appended: Awaitable[object] | TopicError) -> ErrorCode:
    if isinstance(appended, TopicError):
        return appended.code
    try:
        await appended
    except TopicError as error:
        return error.code
    return ErrorCode.NONE
