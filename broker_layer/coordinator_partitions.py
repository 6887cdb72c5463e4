"""Names of the internal topics.

Leaves the partition of a key to `java_hash.py`, and that partition's leader to `cluster_view.py`.

Invariant: the number of partitions of an internal topic is fixed when the topic is created, so the
partition of a key never changes.
"""

from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)
