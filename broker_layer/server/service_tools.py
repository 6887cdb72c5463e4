"""Tools that the services of requests share: hints of leaders, checks of epochs, reports, traces.

Leaves building them to `broker_services`, the knowledge of leaders to `control.cluster_view`, and
where spans go to `quire.tracing`.

Source: KIP-320 (leader epochs), KIP-951 (leaders in errors).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.primitives import NO_EPOCH, CurrentLeader, NodeEndpoint
from broker_layer.security.authorizer import Authorizer, Rights
from broker_layer.server.exchange import Deadlines, Exchange, RequestTasks
from broker_layer.server.ports import ClusterNames, PartitionLog
from broker_layer.server.quotas import ClientQuotas
from broker_layer.server.server_limits import BrokerCounters, BrokerLimits
from ledger_client.errors import EntryLostError, LedgerError
from quire.server.server_log import ServerLog
from quire.tracing.spans import AttributeValue, SpanKind, record

HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
TOPIC: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
PARTITIONS: Final = "quire.partitions"


class LeaderHints:
    """Lookup of leaders for errors of clients that use the wrong broker.

    Invariant: a broker is described as in Metadata, including its rack. Java's consumer treats one
    broker with two descriptions as two brokers, and sends each Fetch of a session twice, without
    need.
    """

    def __init__(self, broker_id: int, names: ClusterNames) -> None:
        self._broker_id = broker_id
        self._names = names

    def leader_of(self, topic: str, partition: int, error: ErrorCode) -> CurrentLeader | None:
        """Return the leader, if the error can mean that another broker leads."""
        if error not in HINTED:
            return None
        known = self._names.leader_of(topic, partition)
        if known is None or known[0] < 0:
            return None
        if known[0] == self._broker_id and error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return None  # this broker will lead the partition, and does not yet
        return CurrentLeader(*known)

    def endpoints(
        self, leaders: Iterable[CurrentLeader | None], listener: str
    ) -> list[NodeEndpoint]:
        """Return the addresses of leaders for clients of a listener."""
        endpoints: dict[int, NodeEndpoint] = {}
        for leader in leaders:
            if leader is None or leader.leader_id in endpoints:
                continue
            address = self._names.address_of(leader.leader_id, listener)
            if address is not None:
                rack = self._names.rack_of(leader.leader_id)
                endpoints[leader.leader_id] = NodeEndpoint(leader.leader_id, *address, rack)
        return list(endpoints.values())


class UnreadableRecords:
    """Report, for the operator, of records that one broker could not read.

    `quire.server.server_log` limits the number of lines, however often clients retry.
    """

    def __init__(self, log: ServerLog) -> None:
        self._log = log

    def note(self, topic: str, partition: int, error: TopicError) -> None:
        """Write a line if the error means missing records; `why` names their ledger."""
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            return
        values: dict[str, object] = {"topic": topic, "partition": partition, "why": error.text}
        if isinstance(error.__cause__, LedgerError):
            trim = f"quire topic trim {topic} --partition {partition} --ledger ID --yes"
            is_lost = isinstance(error.__cause__, EntryLostError)
            start = "start the bookies of the ledger (quire ledger show); if they are lost: "
            values["try_next"] = trim if is_lost else start + trim
        self._log.warning("records cannot be read", **values)


@dataclass(frozen=True, slots=True)
class ServiceTools:
    """Limits, counters, tasks and timers of one broker, for one event loop."""

    limits: BrokerLimits
    counters: BrokerCounters
    tasks: RequestTasks
    deadlines: Deadlines
    hints: LeaderHints
    now: Callable[[], float]
    authorizer: Authorizer | None
    quotas: ClientQuotas

    def rights_of(self, exchange: Exchange) -> Rights | None:
        """Return what the client of a request may do; None, without an authorizer, for all."""
        if self.authorizer is None:
            return None
        requester = exchange.requester
        return self.authorizer.rights_of(
            requester.principal, requester.client_host, requester.listener, exchange.api_key
        )


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


def record_request(
    name: str, duration_s: float, partitions: Sequence[tuple[str, int, ErrorCode]]
) -> None:
    """Record a request that is answered now, with the topic, number and error of its partitions.
    The first one has attributes of its own, named by OpenTelemetry's conventions for messaging.
    """
    attributes: dict[str, AttributeValue] = {
        SYSTEM: "kafka",
        OPERATION: name.lower(),
        PARTITIONS: len(partitions),
    }
    if partitions:
        topic, partition, _ = partitions[0]
        attributes |= {TOPIC: topic, PARTITION: str(partition)}
    error = next((code.name for _, _, code in partitions if code), "")
    record(name, SpanKind.SERVER, duration_s, attributes, error=error)
