"""Which requests of one connection wait for earlier ones: what each API reads, changes and adds.

Leaves waiting to `connections`, and the order of the batches of one partition to `produce` and the
logs.

Invariants: a request begins after the work of every earlier request of its connection that it could
see, and before the work of every later one that could change what it reads. Kafka serves one
request of a connection at a time, so no request waits for more here than it would there. Only
records are added: an earlier Fetch may return what a later Produce adds.

Source: Kafka's protocol guide, section "Network".
"""

from collections.abc import Mapping
from enum import Flag, auto
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Final, NamedTuple

from broker_layer.kafka.versions import BROKERS_ASK_FROM, ApiKey


class Part(Flag):
    """What requests read and change."""

    NONE = 0
    CLUSTER = auto()
    """Topics, their partitions, settings and leaders; users, rights and quotas."""
    RECORDS = auto()
    GROUPS = auto()
    """Groups, their members and their offsets."""
    TRANSACTIONS = auto()


class Work(NamedTuple):
    """What one API does with the parts."""

    reads: Part = Part.NONE
    changes: Part = Part.NONE
    """What it also reads."""
    adds: Part = Part.NONE
    """What it adds to in the order of arrival, without a look at what is there."""

    def waits_for(self, earlier: "Work") -> bool:
        """Return whether a request waits for the answer to an earlier one."""
        written = earlier.changes | earlier.adds
        sees = written & (self.reads | self.changes)
        disturbs = (earlier.reads & self.changes) | (earlier.changes & self.adds)
        return bool(sees | disturbs)


_SHOWS: Final = Work(Part.CLUSTER)
_ALTERS: Final = Work(changes=Part.CLUSTER)
_SHOWS_RECORDS: Final = Work(Part.CLUSTER | Part.RECORDS)
_SHOWS_GROUPS: Final = Work(Part.CLUSTER | Part.GROUPS)
_ALTERS_GROUPS: Final = Work(Part.CLUSTER, Part.GROUPS)
_SHOWS_TRANSACTIONS: Final = Work(Part.CLUSTER | Part.TRANSACTIONS)
_ALTERS_TRANSACTIONS: Final = Work(Part.CLUSTER, Part.TRANSACTIONS)
_ENDS_TRANSACTIONS: Final = Work(Part.CLUSTER, Part.TRANSACTIONS | Part.RECORDS | Part.GROUPS)

WORK: Final[Mapping[ApiKey, Work]] = MappingProxyType(
    {
        ApiKey.PRODUCE: Work(Part.CLUSTER | Part.TRANSACTIONS, adds=Part.RECORDS),
        ApiKey.FETCH: _SHOWS_RECORDS,
        ApiKey.LIST_OFFSETS: _SHOWS_RECORDS,
        ApiKey.METADATA: _SHOWS,
        ApiKey.OFFSET_COMMIT: _ALTERS_GROUPS,
        ApiKey.OFFSET_FETCH: _SHOWS_GROUPS,
        ApiKey.FIND_COORDINATOR: _SHOWS,
        ApiKey.JOIN_GROUP: _ALTERS_GROUPS,
        ApiKey.HEARTBEAT: _ALTERS_GROUPS,
        ApiKey.LEAVE_GROUP: _ALTERS_GROUPS,
        ApiKey.SYNC_GROUP: _ALTERS_GROUPS,
        ApiKey.DESCRIBE_GROUPS: _SHOWS_GROUPS,
        ApiKey.LIST_GROUPS: _SHOWS_GROUPS,
        ApiKey.SASL_HANDSHAKE: Work(),
        ApiKey.API_VERSIONS: Work(),
        ApiKey.CREATE_TOPICS: _ALTERS,
        ApiKey.DELETE_TOPICS: _ALTERS,
        ApiKey.DELETE_RECORDS: Work(Part.CLUSTER, Part.RECORDS),
        ApiKey.INIT_PRODUCER_ID: _ALTERS_TRANSACTIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _SHOWS_RECORDS,
        ApiKey.ADD_PARTITIONS_TO_TXN: _ALTERS_TRANSACTIONS,
        ApiKey.ADD_OFFSETS_TO_TXN: _ALTERS_TRANSACTIONS,
        ApiKey.END_TXN: _ENDS_TRANSACTIONS,
        ApiKey.WRITE_TXN_MARKERS: _ENDS_TRANSACTIONS,
        ApiKey.TXN_OFFSET_COMMIT: Work(Part.CLUSTER | Part.TRANSACTIONS, Part.GROUPS),
        ApiKey.DESCRIBE_ACLS: _SHOWS,
        ApiKey.CREATE_ACLS: _ALTERS,
        ApiKey.DELETE_ACLS: _ALTERS,
        ApiKey.DESCRIBE_CONFIGS: _SHOWS,
        ApiKey.ALTER_CONFIGS: _ALTERS,
        ApiKey.DESCRIBE_LOG_DIRS: _SHOWS_RECORDS,
        ApiKey.SASL_AUTHENTICATE: Work(),
        ApiKey.CREATE_PARTITIONS: _ALTERS,
        ApiKey.DELETE_GROUPS: _ALTERS_GROUPS,
        ApiKey.ELECT_LEADERS: _ALTERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTERS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _SHOWS,
        ApiKey.OFFSET_DELETE: _ALTERS_GROUPS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _SHOWS,
        ApiKey.ALTER_CLIENT_QUOTAS: _ALTERS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _SHOWS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTERS,
        ApiKey.DESCRIBE_CLUSTER: _SHOWS,
        ApiKey.DESCRIBE_PRODUCERS: _SHOWS_RECORDS,
        ApiKey.DESCRIBE_TRANSACTIONS: _SHOWS_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS: _SHOWS_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _ALTERS_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE: _SHOWS_GROUPS,
        ApiKey.LIST_CONFIG_RESOURCES: _SHOWS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _SHOWS,
    }
)
"""Work of each API. Metadata and FindCoordinator may have a topic made, but promise nothing of it:
the client asks until it is there. Logins keep their order themselves.
"""


class Place(NamedTuple):
    """One kind of requests in the order of a connection, as bits of sets of kinds."""

    bit: int
    waits_for: int
    """The kinds of earlier requests that it waits for."""


def _place(bit: int, work: Work) -> Place:
    earlier = (1 << key for key, other in WORK.items() if work.waits_for(other))
    return Place(bit, reduce(or_, earlier, 0))


_PLACES: Final[Mapping[int, Place]] = {key: _place(1 << key, work) for key, work in WORK.items()}
_VERIFICATION: Final = _place(0, _SHOWS_TRANSACTIONS)
"""Of AddPartitionsToTxn as brokers send it, at most for each batch that begins a transaction. No
request that brokers send on such a connection changes what it reads.
"""


def place_of(api_key: int, api_version: int) -> Place:
    """Return the place of a request that is served."""
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN and api_version >= BROKERS_ASK_FROM:
        return _VERIFICATION
    return _PLACES[api_key]
