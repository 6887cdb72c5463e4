"""Names the internal topics, and says which of their partitions keeps the state of a key.

Leaves the hash to `java_hash.py`, and who leads that partition to `cluster_view.py`.

Invariant: the answer for a key never changes, as the number of partitions is fixed when the topic
is made.
"""

from typing import Final

from broker_layer.java_hash import partition_of_key

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)

coordinator_partition = partition_of_key
"""Takes a group or transactional id, and the number of partitions."""
