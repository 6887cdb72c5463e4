"""Quotas of a bookie's clients: bytes that a user appends and reads in a second.

Leaves which quota holds for a user, and what it has used, to `metadata.security.rates`, following
the quotas to `metadata.security.quota_store`, and pauses to `bookie.server.connection`.

Invariants: an add costs its frame once that has arrived, also one of a recovery, which its client
marks itself; an answer costs its frame if it has entries; a fence costs nothing. Repair and super
users have no quota. A pause is at most PAUSE_S_MAX. Without any quota of a key nothing is counted.

Source: docs/security.md, "Quotas"; KIP-219.
"""

from collections.abc import Callable, Sequence
from typing import Final

from bookie.server.server_limits import ServerCounters
from bookie.wire.frames import Frame, FrameKind
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey
from metadata.security.rates.rate_quota import RateQuota
from quire.identity.principal import Principal

PAUSE_S_MAX: Final = 1.0
"""Maximum pause of a connection, in seconds; what is above it is paid after the next requests.
Clients take a bookie that is silent for longer (2 s, or 5 s for one request) for a failed one.
"""

ANSWER_S: Final = 0.1
"""A client with a quota of reads gets the bytes of this many seconds in one answer, so that several
connections of one user keep the rate.
"""

_ADD: Final = FrameKind.ADD
_NO_CLIENT_ID: Final = ""


class BookieQuotas:
    """The quotas of all clients of one bookie."""

    def __init__(
        self,
        quotas: QuotaSet,
        exempt: Sequence[str],
        counters: ServerCounters,
        now: Callable[[], float],
    ) -> None:
        """`exempt` has the principals of super users."""
        self.exempt = frozenset(exempt)
        self.appends = RateQuota(quotas, QuotaKey.APPEND_BYTE_RATE, throttle_s_max=PAUSE_S_MAX)
        self.reads = RateQuota(quotas, QuotaKey.READ_BYTE_RATE, throttle_s_max=PAUSE_S_MAX)
        self._counters = counters
        self._now = now

    def record_append(self, user: str, byte_count: int) -> float:
        """Record adds that arrived; return for how many seconds the connection must not be read."""
        return self._record(QuotaKey.APPEND_BYTE_RATE, self.appends, user, byte_count)

    def record_read(self, user: str, byte_count: int) -> float:
        """Record an answer with entries; return for how many seconds the connection must not be
        read.
        """
        return self._record(QuotaKey.READ_BYTE_RATE, self.reads, user, byte_count)

    def _record(self, key: QuotaKey, quota: RateQuota, user: str, byte_count: int) -> float:
        delay_s = quota.record(user, _NO_CLIENT_ID, byte_count, self._now())
        if delay_s:
            self._counters.note_throttle(key)
        return delay_s


class ClientQuota:
    """Quotas of the client of one connection."""

    __slots__ = ("_pause", "_quotas", "_user", "is_paused")

    def __init__(self, quotas: BookieQuotas, pause: Callable[[float], None]) -> None:
        """`pause` pauses the connection for seconds."""
        self._quotas = quotas
        self._pause = pause
        self._user: str | None = None
        """Whose quotas hold; None: none does."""
        self.is_paused = False
        """Whether the connection is paused because of a quota; the connection sets it."""

    def greet(self, who: Principal, *, is_repair: bool) -> None:
        """Note who the client is."""
        is_exempt = is_repair or who.text in self._quotas.exempt
        self._user = None if is_exempt else who.name

    def note_frames(self, frames: Sequence[Frame]) -> None:
        """Record the adds among frames that arrived together."""
        byte_count = sum(len(frame.body) for frame in frames if frame.kind is _ADD)
        if byte_count and self._user is not None:
            self._pause_for(self._quotas.record_append(self._user, byte_count))

    @property
    def limits_reads(self) -> bool:
        """Whether a quota of reads holds for the client."""
        return self._reads_per_s is not None

    def note_read(self, byte_count: int) -> None:
        """Record an answer with entries."""
        if self._user is not None:
            self._pause_for(self._quotas.record_read(self._user, byte_count))

    def answer_bytes_max(self, bytes_max: int) -> int:
        """Return how large an answer may be: what the client may read in ANSWER_S, so that short
        pauses pay for it; it has one batch in any case.
        """
        per_s = self._reads_per_s
        return bytes_max if per_s is None else max(1, min(bytes_max, int(per_s * ANSWER_S)))

    @property
    def _reads_per_s(self) -> float | None:
        reads = self._quotas.reads
        if self._user is None or not reads.is_limited:
            return None
        return reads.limit_per_s(self._user, _NO_CLIENT_ID)

    def _pause_for(self, delay_s: float) -> None:
        if delay_s:
            self._pause(delay_s)
