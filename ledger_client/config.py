"""Limits and delays of the client, with their defaults.

Leaves their use to the modules that name them. Every value has its unit in its name.

Invariant: every number is finite, and at least 1, or as an amount of time or a rate above 0; those
in MAY_BE_ZERO may be 0, and those in HIGHEST have an upper bound.
"""

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Final

from bookie.wire.batch import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX
from ledger_client.protocol.acks import BATCH_COST_BYTES
from ledger_client.protocol.append_options import UNANSWERED_BYTES_MAX
from metadata.ledgers.ledger_ids import BLOCK_IDS
from metadata.store.interface import OPERATION_TIMEOUT_S, SESSION_TIMEOUT_S

MAY_BE_ZERO: Final = frozenset(
    {
        "quarantine_s",
        "spare_after_s",
        "speculative_delay_min_s",
        "suspect_after_min_s",
        "suspicions_per_minute_max",
    }
)
"""Numbers that may be 0, which then means at once, or never."""
HIGHEST: Final[Mapping[str, int]] = {
    "batch_entries_max": BATCH_ENTRIES_MAX,
    "ledger_ids_at_once": BLOCK_IDS,
}


@dataclass(frozen=True, slots=True)
class NumberBounds:
    """Bounds of one number."""

    kind: type
    """`int` or `float`."""
    is_zero_allowed: bool
    highest: int | None
    is_optional: bool

    @property
    def text(self) -> str:
        """What is allowed, for messages and the reference."""
        low = "at least 1" if self.kind is int else "above 0"
        if self.is_zero_allowed:
            low = "at least 0"
        text = low if self.highest is None else f"1 to {self.highest:,}"
        return f"{text}, or None" if self.is_optional else text

    def check(self, name: str, value: object) -> None:
        """Raise ValueError for a value that is no such number."""
        if value is None and self.is_optional:
            return
        kinds = (int,) if self.kind is int else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if is_number and isinstance(value, int | float) and math.isfinite(value):
            is_low = value < 0 or (value == 0 and not self.is_zero_allowed)
            if not is_low and (self.highest is None or value <= self.highest):
                return
        what = "an int" if self.kind is int else "a number"
        raise ValueError(f"{name} is {value!r}: give {what}, {self.text}")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Configuration of one client. Immutable. Raises ValueError for a value out of bounds, and for
    limits that contradict each other.
    """

    # Appending
    entry_bytes_max: int = ENTRY_BYTES_MAX
    """Maximum size of one entry, in bytes; a larger one is refused (EntryTooLargeError)."""
    batch_bytes_max: int = 1024 * 1024
    """Maximum payload of one batch, in bytes; only a single larger entry exceeds it."""
    batch_entries_max: int = BATCH_ENTRIES_MAX
    """Maximum number of entries in one batch."""
    window_bytes_max: int = 64 * 1024 * 1024
    """Maximum number of unconfirmed bytes of one writer; at the limit `append` waits. No batch is
    larger, except one entry.
    """
    window_entries_max: int = 200_000
    """Maximum number of unconfirmed entries of one writer; at the limit `append` waits."""
    unanswered_bytes_max: int = UNANSWERED_BYTES_MAX
    """Maximum number of bytes, confirmed or not, that one bookie has not answered; above it the
    bookie is treated as failed (rule 4.6). Everything that one writer's window admits must fit:
    otherwise the resend after an ensemble change would fail the new bookies. All writers of a
    client share it.
    """
    append_deadline_s: float = 30.0
    """Maximum time until an entry is confirmed; later the writer ends (rule 6.1)."""
    add_timeout_s: float = 5.0
    """Maximum time for one bookie to store one batch; in a recovery or a copy, since its last
    answer to such a batch.
    """
    lac_delay_s: float = 0.05
    """Time for which a writer is idle before it sends its LAC (rule 8.4)."""

    # Ensembles
    delay_ensemble_change: bool = False
    """Replace a failed bookie only once entries would miss their ack quorum (rule 5.4)."""
    run_degraded: bool = True
    """Without a spare, continue while entries still reach their ack quorum (rule 5.5): they have
    that many copies until the ledger is closed and repair adds the others. If False, the writer
    ends and closes its ledger.
    """
    fixed_membership: bool = False
    """Never change an ensemble: entries wait for its members, as in a replica set of fixed
    membership. Only for comparison (`quire bench compare`), not for use.
    """
    spare_after_s: float = 60.0
    """In-sync mode: time to wait for a member that left before a spare takes its place and the
    complete ledger is copied to the spare. At most 10 s while appends are refused because too few
    members are in sync.
    """
    replica_lag_messages_max: int | None = None
    """In-sync mode: a member also leaves once it lacks this many pushed entries. Kafka abandoned
    this rule (KIP-16) because a burst makes good members leave. Only for comparison.
    """
    copy_bytes_per_s: float | None = 32.0 * 1024 * 1024
    """In-sync mode: maximum rate at which one client copies to members that catch up, for all its
    ledgers together; None for no limit.
    """
    copies_at_once: int = 16
    """In-sync mode: maximum number of ledgers of one client that copy a fragment at the same time,
    with up to 10 MiB of memory each. The ledgers take turns, after each fragment.
    """
    suspect_after_min_s: float = 0.2
    """Minimum silence after which a bookie is suspected, while others answer (rule 5.7)."""
    suspect_after_max_s: float = 2.0
    """Maximum silence after which a bookie is suspected."""
    suspect_after_multiple: float = 8.0
    """Silence that leads to a suspicion, as a multiple of the recent tail latency."""
    suspicions_per_minute_max: int = 6
    """Maximum number of suspicions of one client per minute; 0 for none at all."""
    quarantine_s: float = 60.0
    """Time for which new ensembles avoid a bookie that failed."""

    # Reading
    read_timeout_s: float = 5.0
    """Maximum time for one bookie to answer one read."""
    read_bytes_max: int = 4 * 1024 * 1024
    """Maximum size of the answer to one read, in bytes."""
    read_ahead_count: int = 3
    """Number of requests that a read of a range keeps under way."""
    speculative_delay_min_s: float = 0.02
    """Minimum time before a read asks a second replica too (rule 8.2)."""
    speculative_delay_max_s: float = 1.0
    """Maximum time before a read asks a second replica too."""
    long_poll_s: float = 10.0
    """Time for which a bookie holds the request of a tail without news."""

    # Calls, connections, metadata
    slice_max_s: float = 0.005
    """Maximum time that one iteration of the event loop spends on calls that concern many ledgers,
    such as the news that a bookie departed. One call more than that may be made.
    """
    metadata_changes_at_once: int = 64
    """Maximum number of ledgers of one client that change their metadata at the same time: members
    that leave, join or are replaced, checks of fences, and closes.
    """
    metadata_reads_per_s: int = 200
    """Maximum number of ledgers of one client whose metadata its writers read per second after a
    change (rule 4.8).
    """
    metadata_reads_at_once: int = 32
    """Maximum number of such reads under way at the same time."""
    ledger_ids_at_once: int = BLOCK_IDS
    """Number of ledger ids that a client allocates at a time. Those that it does not use are lost,
    so a client that creates few ledgers takes few.
    """
    call_timeout_s: float = 30.0
    """Time limit of calls without a `timeout`; appends have `append_deadline_s`."""
    close_timeout_s: float = 10.0
    """Time for which `aclose` of a writer waits for its close to be stored."""
    connect_timeout_s: float = 2.0
    """Maximum time to connect to a bookie, with the hello and the login."""
    reconnect_delay_max_s: float = 1.0
    """Maximum pause between attempts to connect to one bookie."""
    metadata_timeout_s: float = OPERATION_TIMEOUT_S
    """Maximum time of one operation of the metadata service, the first connection too."""
    session_timeout_s: float = SESSION_TIMEOUT_S
    """Time without contact after which the metadata service ends the session."""

    def __post_init__(self) -> None:
        for each in fields(self):
            bounds = bounds_of(each)
            if bounds is not None:
                bounds.check(each.name, getattr(self, each.name))
        wanted = self.window_bytes_max + BATCH_COST_BYTES * self.window_entries_max
        if self.unanswered_bytes_max < wanted:
            raise ValueError(
                f"unanswered_bytes_max ({self.unanswered_bytes_max}) must be at least {wanted}: "
                f"window_bytes_max plus {BATCH_COST_BYTES} for each of window_entries_max, because "
                "each entry may be a separate batch. Raise it, or lower the window"
            )
        wanted = self.entry_bytes_max + BATCH_COST_BYTES
        if self.unanswered_bytes_max < wanted:
            raise ValueError(
                f"unanswered_bytes_max ({self.unanswered_bytes_max}) must be at least {wanted}: "
                f"entry_bytes_max plus {BATCH_COST_BYTES}, because one entry is admitted whatever "
                "the window. Raise it, or lower entry_bytes_max"
            )


def bounds_of(described: "Field[object]") -> NumberBounds | None:
    """Return the bounds of one field of `ClientConfig`; None if it is no number."""
    kinds: Mapping[object, type] = {int: int, float: float, int | None: int, float | None: float}
    kind = kinds.get(described.type)
    if kind is None:
        return None
    name = described.name
    is_optional = described.type not in (int, float)
    return NumberBounds(kind, name in MAY_BE_ZERO, HIGHEST.get(name), is_optional)
