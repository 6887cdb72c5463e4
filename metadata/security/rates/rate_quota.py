"""Quotas of one key: the limit of each client, and what it has used.

Leaves precedence to `quota_rules`, and pauses to the connections.

Invariants: a change of the quotas holds from the next request on; without any quota of the key
nothing is looked up or kept; at most LIMITS_KEPT_MAX limits are kept.

Source: KIP-546.
"""

from collections.abc import Hashable
from typing import Final

from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey
from metadata.security.rates.quota_rules import Limit, find_limit
from metadata.security.rates.rate_buckets import BURST_S, THROTTLE_S_MAX, RateBuckets

LIMITS_KEPT_MAX: Final = 10_000
"""Maximum number of clients whose limit is kept between requests; then all are looked up again."""


class RateQuota:
    """The quotas of one key, for the clients of one server."""

    __slots__ = ("_buckets", "_default", "_key", "_limits", "_quotas", "_unit", "is_limited")

    def __init__(
        self,
        quotas: QuotaSet,
        key: QuotaKey,
        default: float = 0.0,
        unit: float = 1.0,
        burst_s: float = BURST_S,
        throttle_s_max: float = THROTTLE_S_MAX,
    ) -> None:
        """`default` is the limit of a client id that has no quota, 0 for none; `unit` is what one
        unit of a quota permits in a second.
        """
        self._quotas = quotas
        self._key = key
        self._default = default
        self._unit = unit
        self._buckets = RateBuckets(burst_s, throttle_s_max=throttle_s_max)
        self._limits: dict[tuple[str, str], Limit | None] = {}
        self.is_limited = False
        """Whether any client has a limit."""
        quotas.on_change(self._note_change)
        self._note_change()

    def record(self, user: str, client_id: str, count: float, now_s: float) -> float:
        """Record what a client has used; return for how many seconds it must not be read."""
        limit = self._limit_of(user, client_id)
        if limit is None:
            return 0.0
        return self._buckets.record(limit.bucket, count, limit.value * self._unit, now_s)

    def pause_s(self, user: str, client_id: str, more: float, now_s: float) -> float:
        """Return what `record` would return if a client had used `more`; record nothing."""
        limit = self._limit_of(user, client_id)
        if limit is None:
            return 0.0
        return self._buckets.pause_s(limit.bucket, more, limit.value * self._unit, now_s)

    def bucket_of(self, user: str, client_id: str) -> Hashable:
        """Return what a client's use is counted under; None if it has no limit."""
        limit = self._limit_of(user, client_id)
        return None if limit is None else limit.bucket

    def limit_per_s(self, user: str, client_id: str) -> float | None:
        """Return what a client may use in a second; None if it has no limit."""
        limit = self._limit_of(user, client_id) if self.is_limited else None
        return None if limit is None else limit.value * self._unit

    def _limit_of(self, user: str, client_id: str) -> Limit | None:
        client = user, client_id
        limits = self._limits
        if client not in limits:
            if len(limits) >= LIMITS_KEPT_MAX:
                limits.clear()
            limit = find_limit(self._quotas, self._key, user, client_id)
            if limit is None and self._default:
                limit = Limit(self._default, (None, client_id))
            limits[client] = limit
        return limits[client]

    def _note_change(self) -> None:
        self._limits.clear()
        self.is_limited = bool(self._default) or self._quotas.limits(self._key)
