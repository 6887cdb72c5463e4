"""Limits and delays of the client, with their defaults.

Leaves their use to the modules that name them, and how options are declared to `quire.options`.
Every value has its unit in its name.
"""

from dataclasses import dataclass

from bookie.wire.batch import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX
from ledger_client.protocol.acks import BATCH_COST_BYTES
from ledger_client.protocol.append_options import UNANSWERED_BYTES_MAX
from metadata.ledgers.ledger_ids import BLOCK_IDS
from metadata.store.interface import OPERATION_TIMEOUT_S, SESSION_TIMEOUT_S
from quire.options import check_values, option, switch


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Configuration of one client. Immutable. Raises ValueError for a value out of bounds, and for
    limits that contradict each other.
    """

    # Appending
    entry_bytes_max: int = option(
        ENTRY_BYTES_MAX,
        "Maximum size of one entry, in bytes; a larger one is refused (EntryTooLargeError).",
        low=1,
    )
    batch_bytes_max: int = option(
        1024 * 1024,
        "Maximum payload of one batch, in bytes; only a single larger entry exceeds it.",
        low=1,
    )
    batch_entries_max: int = option(
        BATCH_ENTRIES_MAX, "Maximum number of entries in one batch.", low=1, high=BATCH_ENTRIES_MAX
    )
    window_bytes_max: int = option(
        64 * 1024 * 1024,
        "Maximum number of unconfirmed bytes of one writer; at the limit `append` waits. No "
        "batch is larger, except one entry.",
        low=1,
    )
    window_entries_max: int = option(
        200_000,
        "Maximum number of unconfirmed entries of one writer; at the limit `append` waits.",
        low=1,
    )
    unanswered_bytes_max: int = option(
        UNANSWERED_BYTES_MAX,
        "Maximum number of bytes, confirmed or not, that one bookie has not answered; above "
        "it the bookie is treated as failed (rule 4.6). Everything that one writer's window "
        "admits must fit: otherwise the resend after an ensemble change would fail the new "
        "bookies. All writers of a client share it.",
        low=1,
    )
    append_deadline_s: float = option(
        30.0, "Maximum time until an entry is confirmed; later the writer ends (rule 6.1).", above=0
    )
    add_timeout_s: float = option(
        5.0,
        "Maximum time for one bookie to store one batch; in a recovery or a copy, since its "
        "last answer to such a batch.",
        above=0,
    )
    lac_delay_s: float = option(
        0.05, "Time for which a writer is idle before it sends its LAC (rule 8.4).", above=0
    )

    # Ensembles
    delay_ensemble_change: bool = switch(
        "Replace a failed bookie only once entries would miss their ack quorum (rule 5.4)."
    )
    run_degraded: bool = switch(
        "Without a spare, continue while entries still reach their ack quorum (rule 5.5): "
        "they have that many copies until the ledger is closed and repair adds the others. If "
        "False, the writer ends and closes its ledger.",
        is_on=True,
    )
    fixed_membership: bool = switch(
        "Never change an ensemble: entries wait for its members, as in a replica set of fixed "
        "membership. Only for comparison (`quire bench compare`), not for use."
    )
    spare_after_s: float = option(
        60.0,
        "In-sync mode: time to wait for a member that left before a spare takes its place and "
        "the complete ledger is copied to the spare. At most 10 s while appends are refused "
        "because too few members are in sync.",
        low=0,
    )
    replica_lag_messages_max: int | None = option(
        None,
        "In-sync mode: a member also leaves once it lacks this many pushed entries. Kafka "
        "abandoned this rule (KIP-16) because a burst makes good members leave. Only for "
        "comparison.",
        low=1,
    )
    copy_bytes_per_s: float | None = option(
        32.0 * 1024 * 1024,
        "In-sync mode: maximum rate at which one client copies to members that catch up, for "
        "all its ledgers together; None for no limit.",
        above=0,
    )
    copies_at_once: int = option(
        16,
        "In-sync mode: maximum number of ledgers of one client that copy a fragment at the "
        "same time, with up to 10 MiB of memory each. The ledgers take turns, after each "
        "fragment.",
        low=1,
    )
    suspect_after_min_s: float = option(
        0.2,
        "Minimum silence after which a bookie is suspected, while others answer (rule 5.7).",
        low=0,
    )
    suspect_after_max_s: float = option(
        2.0, "Maximum silence after which a bookie is suspected.", above=0
    )
    suspect_after_multiple: float = option(
        8.0, "Silence that leads to a suspicion, as a multiple of the recent tail latency.", above=0
    )
    suspicions_per_minute_max: int = option(
        6, "Maximum number of suspicions of one client per minute; 0 for none at all.", low=0
    )
    quarantine_s: float = option(
        60.0, "Time for which new ensembles avoid a bookie that failed.", low=0
    )

    # Reading
    read_timeout_s: float = option(5.0, "Maximum time for one bookie to answer one read.", above=0)
    read_bytes_max: int = option(
        4 * 1024 * 1024, "Maximum size of the answer to one read, in bytes.", low=1
    )
    read_ahead_count: int = option(
        3, "Number of requests that a read of a range keeps under way.", low=1
    )
    speculative_delay_min_s: float = option(
        0.02, "Minimum time before a read asks a second replica too (rule 8.2).", low=0
    )
    speculative_delay_max_s: float = option(
        1.0, "Maximum time before a read asks a second replica too.", above=0
    )
    long_poll_s: float = option(
        10.0, "Time for which a bookie holds the request of a tail without news.", above=0
    )

    # Calls, connections, metadata
    slice_max_s: float = option(
        0.005,
        "Maximum time that one iteration of the event loop spends on calls that concern many "
        "ledgers, such as the news that a bookie departed. One call more than that may be "
        "made.",
        above=0,
    )
    metadata_changes_at_once: int = option(
        64,
        "Maximum number of ledgers of one client that change their metadata at the same time: "
        "members that leave, join or are replaced, checks of fences, and closes.",
        low=1,
    )
    metadata_reads_per_s: int = option(
        200,
        "Maximum number of ledgers of one client whose metadata its writers read per second "
        "after a change (rule 4.8).",
        low=1,
    )
    metadata_reads_at_once: int = option(
        32, "Maximum number of such reads under way at the same time.", low=1
    )
    ledger_ids_at_once: int = option(
        BLOCK_IDS,
        "Number of ledger ids that a client allocates at a time. Those that it does not use "
        "are lost, so a client that creates few ledgers takes few.",
        low=1,
        high=BLOCK_IDS,
    )
    call_timeout_s: float = option(
        30.0, "Time limit of calls without a `timeout`; appends have `append_deadline_s`.", above=0
    )
    close_timeout_s: float = option(
        10.0, "Time for which `aclose` of a writer waits for its close to be stored.", above=0
    )
    connect_timeout_s: float = option(
        2.0, "Maximum time to connect to a bookie, with the hello and the login.", above=0
    )
    reconnect_delay_max_s: float = option(
        1.0, "Maximum pause between attempts to connect to one bookie.", above=0
    )
    metadata_timeout_s: float = option(
        OPERATION_TIMEOUT_S,
        "Maximum time of one operation of the metadata service, the first connection too.",
        above=0,
    )
    session_timeout_s: float = option(
        SESSION_TIMEOUT_S,
        "Time without contact after which the metadata service ends the session.",
        above=0,
    )

    def __post_init__(self) -> None:
        check_values(self)
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
                f"entry_bytes_max plus {BATCH_COST_BYTES}, because an entry of this size is sent "
                "even if the window is smaller. Raise it, or lower entry_bytes_max"
            )
