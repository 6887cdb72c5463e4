"""Modules whose mutants are judged, and the tests that judge them.

Leaves judging to `session`. Modules of one target share a process, so its tests should be theirs.
The ZooKeeper store is left out: its tests need a real ZooKeeper.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DECISIONS_WANTED: Final = 90
"""Percentage of mutants of pure protocols and storage decisions that tests should kill."""
OTHERS_WANTED: Final = 80


@dataclass(frozen=True, slots=True)
class Target:
    """Modules of a folder, by name, and paths of tests, relative to `tests/`."""

    name: str
    wanted: int
    folder: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        """Paths of the modules."""
        return [f"{self.folder}/{name}.py" for name in self.modules]


SCENARIOS: Final = Path(__file__).parents[1] / "scenarios"
OF_LEDGERS: Final = (
    "append",
    "close",
    "in_sync",
    "in_sync_recovery",
    "read",
    "recovery",
    "recovery_close",
)
CLIENT: Final = "unit/ledger_client"
OF_COPYING: Final = tuple(
    f"{CLIENT}/test_{name}.py"
    for name in (
        "away_members",
        "copy_limits",
        "copying",
        "copying_conflicts",
        "copying_for_repair",
        "copying_on_bookies",
        "in_sync",
        "range_copy",
    )
)


def transcripts(*folders: str) -> tuple[str, ...]:
    """Return the tests of the transcripts in folders of `scenarios/`."""
    paths = [path for folder in folders for path in sorted((SCENARIOS / folder).glob("*.txt"))]
    test = "scenarios/test_scenarios.py::test_scenario"
    return tuple(f"{test}[{path.parent.name}/{path.stem}]" for path in paths)


TARGETS: Final = (
    Target(
        "ledger protocols",
        DECISIONS_WANTED,
        "ledger_client/protocol",
        (
            "acks",
            "append",
            "append_events",
            "cutting",
            "ensemble",
            "membership",
            "read",
            "recovery",
            "recovery_events",
            "recovery_read",
            "recovery_write",
            "suspicion",
        ),
        (*transcripts(*OF_LEDGERS), f"{CLIENT}/protocol"),
    ),
    Target(
        "copies",
        DECISIONS_WANTED,
        "ledger_client/protocol",
        ("copy",),
        (
            f"{CLIENT}/protocol/test_copy_protocol.py",
            f"{CLIENT}/protocol/test_copy_events.py",
            f"{CLIENT}/protocol/test_copy_piece.py",
            f"{CLIENT}/test_copying.py",
            f"{CLIENT}/test_copying_conflicts.py",
        ),
    ),
    Target(
        "ledger metadata",
        DECISIONS_WANTED,
        "metadata/ledgers",
        ("chain", "codec", "copies", "entry_ranges", "ledger_metadata"),
        (
            *transcripts("metadata", *OF_LEDGERS),
            "unit/metadata/ledgers/test_chain.py",
            "unit/metadata/ledgers/test_codec.py",
            "unit/metadata/ledgers/test_copies.py",
            "unit/metadata/ledgers/test_entry_ranges.py",
            "unit/metadata/ledgers/test_ledger_metadata.py",
        ),
    ),
    Target(
        "topic metadata",
        DECISIONS_WANTED,
        "metadata/topics",
        ("in_sync", "partition", "replica_numbers", "topic", "topic_names"),
        ("unit/metadata/topics", "contracts/test_memory_topics.py"),
    ),
    Target(
        "rolling of topics",
        DECISIONS_WANTED,
        "broker_layer/log",
        ("roll_protocol",),
        (*transcripts("rolling"), "unit/broker_layer/log/test_roll_protocol.py"),
    ),
    Target(
        "ledger states",
        DECISIONS_WANTED,
        "bookie/index",
        ("replica_state",),
        (*transcripts("bookie"), "unit/bookie/index/test_replica_state.py"),
    ),
    Target(
        "replay",
        DECISIONS_WANTED,
        "bookie/log",
        ("replay",),
        ("unit/bookie/log",),
    ),
    Target(
        "storage",
        DECISIONS_WANTED,
        "bookie/storage",
        ("admission", "cleaning", "horizon", "overlapping", "recent"),
        (*transcripts("bookie"), "unit/bookie/storage"),
    ),
    Target(
        "repair",
        DECISIONS_WANTED,
        "quire/repair",
        (
            "bad_entries",
            "departures",
            "ledger_index",
            "needs",
            "publishing",
            "spread",
            "standing",
        ),
        (
            *transcripts("departures", "repair"),
            "unit/quire/repair/test_bad_entries.py",
            "unit/quire/repair/test_departures.py",
            "unit/quire/repair/test_ledger_index.py",
            "unit/quire/repair/test_needs.py",
            "unit/quire/repair/test_repair_speed.py",
            "unit/quire/repair/test_publishing.py",
            "unit/quire/repair/test_retries.py",
            "unit/quire/repair/test_spread.py",
            "unit/quire/repair/test_standing.py",
        ),
    ),
    Target(
        "states of bookies",
        DECISIONS_WANTED,
        "metadata/repair",
        ("jobs", "lifecycle", "scrub", "settings", "status", "workers"),
        ("unit/metadata/repair",),
    ),
    Target(
        "writers",
        OTHERS_WANTED,
        "ledger_client/writing",
        (
            "admission",
            "bookie_news",
            "confirmations",
            "in_sync_members",
            "outbox",
            "pacing",
            "watchdog",
            "writer_watch",
        ),
        (f"{CLIENT}/writing", *OF_COPYING, f"{CLIENT}/test_client.py"),
    ),
    Target(
        "recovery",
        OTHERS_WANTED,
        "ledger_client/recovery",
        ("missing_writers", "recoverer", "unclean_recovery"),
        (f"{CLIENT}/recovery", *OF_COPYING),
    ),
    Target(
        "copying",
        OTHERS_WANTED,
        "ledger_client",
        ("copying",),
        (*OF_COPYING, f"{CLIENT}/writing"),
    ),
    Target(
        "readers",
        OTHERS_WANTED,
        "ledger_client/reading",
        ("followed_ledger", "range_reader", "tailing"),
        (f"{CLIENT}/reading", f"{CLIENT}/test_client.py"),
    ),
    Target(
        "metadata stores",
        OTHERS_WANTED,
        "metadata/store",
        (
            "batching",
            "child_values",
            "election",
            "ephemeral",
            "memory",
            "memory_tree",
            "number_blocks",
            "session_clock",
            "tree_deletion",
            "uri",
        ),
        ("unit/metadata", "contracts/test_memory_store.py"),
    ),
    Target(
        "stored ledgers",
        OTHERS_WANTED,
        "metadata/ledgers",
        ("chain_store", "deletion_feed", "ledger_ids", "ledger_store"),
        ("unit/metadata/ledgers", "contracts/test_memory_store.py"),
    ),
    Target(
        "stored topics",
        OTHERS_WANTED,
        "metadata/topics",
        ("in_sync_reports", "partition_store", "topic_store"),
        ("unit/metadata/topics", "contracts/test_memory_topics.py"),
    ),
    Target(
        "registrations of bookies",
        OTHERS_WANTED,
        "metadata/registry",
        ("cookies", "directory", "location", "positions", "registrar", "registration"),
        ("unit/metadata/registry",),
    ),
    Target(
        "registrations of brokers",
        OTHERS_WANTED,
        "metadata/brokers",
        ("broker_registration", "broker_registry"),
        ("unit/metadata/brokers",),
    ),
    Target(
        "state of partitions",
        OTHERS_WANTED,
        "broker_layer/log/state",
        (
            "epoch_table",
            "offset_index",
            "partition_state",
            "producer_state",
            "state_entry",
            "transaction_index",
        ),
        ("unit/broker_layer/log/state",),
    ),
    Target(
        "logins of clients",
        OTHERS_WANTED,
        "broker_layer/server",
        ("access",),
        (
            "unit/broker_layer/server/test_listener_access.py",
            "unit/broker_layer/server/test_served_logins.py",
            "unit/broker_layer/server/test_logins.py",
            "unit/broker_layer/server/test_logins_again.py",
            "unit/broker_layer/server/test_login_limits.py",
            "unit/broker_layer/server/test_login_revocations.py",
        ),
    ),
    Target(
        "sessions of clients that log in",
        OTHERS_WANTED,
        "quire/identity/sasl",
        ("sessions",),
        (
            "unit/quire/identity/sasl/test_authenticator.py",
            "unit/quire/identity/sasl/test_sessions.py",
        ),
    ),
    Target(
        "logins at bookies",
        OTHERS_WANTED,
        "bookie/server",
        ("client_logins", "greeting"),
        (
            "unit/bookie/server/test_client_logins.py",
            "unit/bookie/server/test_greeting.py",
            "unit/bookie/server/test_login_sessions.py",
        ),
    ),
    Target(
        "logins of the ledger client",
        OTHERS_WANTED,
        "ledger_client/bookies",
        ("bookie_login",),
        (f"{CLIENT}/bookies/test_bookie_login.py",),
    ),
    Target(
        "rights, quotas and users",
        OTHERS_WANTED,
        "metadata/security",
        (
            "acls",
            "client_principals",
            "grant_store",
            "ledger_grants",
            "ledger_roles",
            "quota_set",
            "quota_store",
            "quotas",
            "user_decoys",
            "user_store",
            "users",
        ),
        ("unit/metadata/security",),
    ),
    Target(
        "mechanisms of logins",
        OTHERS_WANTED,
        "quire/identity/sasl",
        (
            "credentials",
            "jwks",
            "mechanism",
            "oauthbearer",
            "plain",
            "scram",
            "tokens",
        ),
        ("unit/quire/identity/sasl",),
    ),
    Target(
        "principals and certificates",
        OTHERS_WANTED,
        "quire/identity",
        ("client_file", "principal", "secret_files"),
        ("unit/quire/identity",),
    ),
    Target(
        "rights at brokers",
        OTHERS_WANTED,
        "broker_layer/security",
        ("authorizer", "guards", "login_options", "quota_filters"),
        ("unit/broker_layer/security",),
    ),
    Target(
        "rights at gateways",
        OTHERS_WANTED,
        "quire/gateway/rights",
        ("chain_changes", "chain_rules", "decisions", "id_rules", "ledger_changes", "ledger_rules"),
        ("unit/quire/gateway/rights",),
    ),
    Target(
        "transactions",
        OTHERS_WANTED,
        "broker_layer/transactions",
        ("machine", "values"),
        ("unit/broker_layer/transactions",),
    ),
    Target(
        "classic groups",
        OTHERS_WANTED,
        "broker_layer/groups",
        ("classic_group",),
        ("unit/broker_layer/groups",),
    ),
    Target(
        "consumer groups",
        OTHERS_WANTED,
        "broker_layer/groups",
        ("consumer_group", "consumer_targets", "values"),
        ("unit/broker_layer/groups",),
    ),
)
