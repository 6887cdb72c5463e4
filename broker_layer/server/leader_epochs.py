"""Check of a client's leader epoch (KIP-320).

Leaves the answer to the services of Fetch and offsets.
"""

from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.server.ports import PartitionLog

NO_EPOCH: Final = -1


def check_leader_epoch(log: PartitionLog, believed: int) -> None:
    """Check that a client knows the current leader epoch; NO_EPOCH means that it knows none.

    Raises TopicError: FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a newer one.
    """
    if believed in (NO_EPOCH, log.leader_epoch):
        return
    text = (
        f"the leader epoch is {log.leader_epoch}, not {believed}: refresh the metadata, and retry"
    )
    if believed < log.leader_epoch:
        raise TopicError(ErrorCode.FENCED_LEADER_EPOCH, text)
    raise TopicError(ErrorCode.UNKNOWN_LEADER_EPOCH, text)
