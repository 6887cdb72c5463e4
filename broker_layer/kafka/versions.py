"""The APIs that brokers serve: their versions, and the first flexible version of each.

Leaves messages to `kafka.messages`, and the codecs of Produce and Fetch to their modules.

Invariants: the codecs of this package read and answer every version listed here. Produce is
advertised from version 0 because older librdkafka compresses only then (KAFKA-18659); requests in
versions below `PRODUCE_VERSION_MIN` are answered with an error. SaslHandshake is advertised from
version 0 because older librdkafka logs in only then, with version 1; a request in version 0,
after which tokens come without headers, is answered with an error. Not served: telemetry and share
groups.

Source: KIP-35, KIP-482, KIP-511, KIP-896.
"""

from enum import IntEnum
from typing import Final, NamedTuple

PRODUCE_VERSION_MIN: Final = 3
"""The first version of Produce with record batches of magic 2."""
HANDSHAKE_VERSION_MIN: Final = 1
"""The first version of SaslHandshake after which tokens come in SaslAuthenticate."""
BROKERS_ASK_FROM: Final = 4
"""First version of AddPartitionsToTxn that brokers send (KIP-890)."""
FETCH_TOPIC_ID_VERSION: Final = 13
"""The first version of Fetch that names topics by their ids."""


class ApiKey(IntEnum):
    """The numbers of the served APIs, under Kafka's names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75

    @property
    def shown(self) -> str:
        """Kafka's name of the API, for example `OffsetCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class VersionRange(NamedTuple):
    """The served versions of an API, both ends included."""

    min: int
    max: int
    flexible_from: int
    """The first flexible version, which need not be served."""

    def serves(self, version: int) -> bool:
        """Return whether `version` is served."""
        return self.min <= version <= self.max


NEVER: Final = 32767
"""`flexible_from` of an API without flexible versions: above every version."""

SERVED: Final[dict[ApiKey, VersionRange]] = {
    ApiKey.PRODUCE: VersionRange(0, 11, 9),
    ApiKey.FETCH: VersionRange(4, 16, 12),
    ApiKey.LIST_OFFSETS: VersionRange(1, 8, 6),
    ApiKey.METADATA: VersionRange(0, 12, 9),
    ApiKey.OFFSET_COMMIT: VersionRange(2, 9, 8),
    ApiKey.OFFSET_FETCH: VersionRange(1, 9, 6),
    ApiKey.FIND_COORDINATOR: VersionRange(0, 5, 3),
    ApiKey.JOIN_GROUP: VersionRange(0, 9, 6),
    ApiKey.HEARTBEAT: VersionRange(0, 4, 4),
    ApiKey.LEAVE_GROUP: VersionRange(0, 5, 4),
    ApiKey.SYNC_GROUP: VersionRange(0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: VersionRange(0, 5, 5),
    ApiKey.LIST_GROUPS: VersionRange(0, 5, 3),
    ApiKey.SASL_HANDSHAKE: VersionRange(0, 1, NEVER),
    ApiKey.API_VERSIONS: VersionRange(0, 4, 3),
    ApiKey.CREATE_TOPICS: VersionRange(2, 7, 5),
    ApiKey.DELETE_TOPICS: VersionRange(1, 6, 4),
    ApiKey.DELETE_RECORDS: VersionRange(0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: VersionRange(0, 4, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: VersionRange(2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: VersionRange(0, 4, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: VersionRange(0, 3, 3),
    ApiKey.END_TXN: VersionRange(0, 3, 3),
    ApiKey.WRITE_TXN_MARKERS: VersionRange(1, 1, 1),
    ApiKey.TXN_OFFSET_COMMIT: VersionRange(0, 3, 3),
    ApiKey.DESCRIBE_ACLS: VersionRange(1, 3, 2),
    ApiKey.CREATE_ACLS: VersionRange(1, 3, 2),
    ApiKey.DELETE_ACLS: VersionRange(1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: VersionRange(1, 4, 4),
    ApiKey.ALTER_CONFIGS: VersionRange(0, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: VersionRange(1, 4, 2),
    ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2, 2),
    ApiKey.CREATE_PARTITIONS: VersionRange(0, 3, 2),
    ApiKey.DELETE_GROUPS: VersionRange(0, 2, 2),
    ApiKey.ELECT_LEADERS: VersionRange(0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0, 0),
    ApiKey.OFFSET_DELETE: VersionRange(0, 0, NEVER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: VersionRange(0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: VersionRange(0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: VersionRange(0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: VersionRange(0, 0, 0),
    ApiKey.DESCRIBE_CLUSTER: VersionRange(0, 1, 0),
    ApiKey.DESCRIBE_PRODUCERS: VersionRange(0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: VersionRange(0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: VersionRange(0, 1, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: VersionRange(0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: VersionRange(0, 1, 0),
    ApiKey.LIST_CONFIG_RESOURCES: VersionRange(0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: VersionRange(0, 0, 0),
}
"""The versions that a broker reads and answers."""

ADVERTISED: Final[dict[ApiKey, VersionRange]] = {
    **SERVED,
    ApiKey.ADD_PARTITIONS_TO_TXN: SERVED[ApiKey.ADD_PARTITIONS_TO_TXN]._replace(max=3),
}
"""The versions that clients see: version 4 of AddPartitionsToTxn is only for brokers."""
