"""Topics over ledgers, spoken to in the Kafka protocol.

It leaves replication and durability of every record to `ledger_client`. `TopicLog` is one
partition's log, as a broker serves it and as other programs may use it in their own process.
"""

from broker_layer.errors import TopicError
from broker_layer.log.topic_log import TopicLog

__all__ = ["TopicError", "TopicLog"]
