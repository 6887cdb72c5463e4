"""Topics over ledgers, served over the Kafka protocol.

Leaves replication and durability of records to `ledger_client`. `TopicLog` is the log of one
partition. Brokers serve it; other programs can use it in their own process.
"""

from broker_layer.errors import TopicError
from broker_layer.log.topic_log import TopicLog

__all__ = ["TopicError", "TopicLog"]
