"""Limits and delays of transactions, with their defaults.

Leaves their use to the modules that read them.
"""

from dataclasses import dataclass
from typing import Final

MARKERS_MAX: Final = 1_000
"""Maximum number of markers in one request: all are appended before another request is served."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings of one broker's coordination of transactions. Immutable."""

    timeout_ms_max: int = 15 * 60 * 1000
    """Maximum timeout that a producer may request (transaction.max.timeout.ms)."""
    id_idle_ms_max: int = 7 * 24 * 3600 * 1000
    """Time after which an unused transactional id is removed (transactional.id.expiration.ms)."""
    ids_per_partition_max: int = 1_000_000
    """Maximum number of transactional ids in one state partition; further ones are refused."""
    timeout_check_period_s: float = 1.0
    expiry_check_period_s: float = 3600.0

    marker_timeout_s: float = 30.0
    """Time to wait for a leader's answer that it stored markers."""
    marker_store_wait_s: float = 2.0
    """Time that a leader waits for the commit of a marker before it answers REQUEST_TIMED_OUT."""
    markers_per_request_max: int = MARKERS_MAX
    marker_pause_first_s: float = 0.02
    marker_pause_max_s: float = 1.0
    absent_topic_patience_s: float = 10.0
    """Time that a topic must be missing from the view of the cluster before its record is read: the
    view of a new coordinator may be older than the topic."""

    verification_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if self.marker_store_wait_s >= self.marker_timeout_s:
            raise ValueError("marker_store_wait_s must be below marker_timeout_s")
