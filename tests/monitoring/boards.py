"""Panels of the five dashboards.

Leaves their JSON to `grafana`. Metrics are those of docs/reference/metrics.md; a test compares.
"""

from typing import Final

from tests.monitoring.grafana import STAT, Board, Panel
from tests.monitoring.queries import INSTANCE, OF_INSTANCE, cluster, each, latency, p99, rate

SAFETY: Final = Board(
    "quire-safety",
    "Quire: safety",
    (
        Panel(
            "Ledgers at their last copy",
            "Ledgers with at most one good copy: one more loss loses data.",
            "short",
            (
                (
                    "max by (cluster) "
                    '(quire_cluster_repair_ledgers{cluster=~"$cluster", class="0"})',
                    "{{cluster}}",
                ),
            ),
            STAT,
        ),
        Panel(
            "Ledgers with lost entries",
            "Ledgers with entries that no bookie holds.",
            "short",
            ((cluster("repair_lost_ledgers"), "{{cluster}}"),),
            STAT,
        ),
        Panel(
            "Problems",
            "Problems that the last check of the cluster found; the console lists them.",
            "short",
            ((cluster("findings"), "{{cluster}}"),),
            STAT,
        ),
        Panel(
            "Bookies by state",
            "Active bookies are up, read-only or down; others are in the state of their lifecycle.",
            "short",
            ((cluster("bookies", "state"), "{{state}}"),),
        ),
        Panel(
            "Ledgers by certain copies",
            "Certain copies, on bookies that are up, of the entries that have the fewest.",
            "short",
            ((cluster("ledgers_by_copies", "copies"), "{{copies}} copies"),),
        ),
        Panel(
            "Ledgers by state",
            "Open ledgers have a writer, or wait for a recovery.",
            "short",
            ((cluster("ledgers", "state"), "{{state}}"),),
        ),
        Panel(
            "Auditor and controller",
            "1 while a process finds ledgers that lack copies; 1 while a broker replaces leaders.",
            "short",
            ((cluster("auditor"), "auditor"), (cluster("controller"), "controller")),
        ),
        Panel(
            "Metadata answer",
            "Time of one read of the metadata service at the last check.",
            "s",
            ((cluster("metadata_answer_seconds"), "{{cluster}}"),),
        ),
        Panel(
            "Age of the check",
            "Time since the last check of all ledgers, and how long it took.",
            "s",
            (
                (cluster("check_age_seconds"), "age"),
                (cluster("check_duration_seconds"), "duration"),
            ),
        ),
    ),
)
BOOKIES: Final = Board(
    "quire-bookies",
    "Quire: bookies",
    (
        Panel(
            "Entries added",
            "Entries stored per second.",
            "ops",
            ((rate("quire_bookie_storage_entries_added_total"), INSTANCE),),
        ),
        Panel(
            "Bytes added",
            "Bytes of batches stored per second.",
            "Bps",
            ((rate("quire_bookie_storage_bytes_added_total"), INSTANCE),),
        ),
        latency(
            "Add latency",
            "From the arrival of a batch to its answer: it is on the disk then.",
            "quire_bookie_add_latency_seconds",
        ),
        Panel(
            "Syncs",
            "Groups of batches written and synced per second; one sync serves a group.",
            "ops",
            ((rate("quire_bookie_storage_syncs_total"), INSTANCE),),
        ),
        Panel(
            "Queue",
            "Bytes accepted and not on the disk yet.",
            "bytes",
            ((each("quire_bookie_storage_queue_bytes"), INSTANCE),),
        ),
        Panel(
            "Disk used",
            "Share of the file system that is used.",
            "percentunit",
            (
                (
                    f"1 - {each('quire_bookie_storage_disk_free_bytes')}"
                    f" / {each('quire_bookie_storage_disk_total_bytes')}",
                    INSTANCE,
                ),
            ),
        ),
        latency(
            "Read latency",
            "From the arrival of a read to its answer, without long polls.",
            "quire_bookie_read_latency_seconds",
        ),
        Panel(
            "Reads",
            "Reads answered from memory, and through the index and the log.",
            "ops",
            (
                (rate("quire_bookie_reads_from_memory_total"), f"{INSTANCE} memory"),
                (rate("quire_bookie_reads_from_disk_total"), f"{INSTANCE} disk"),
            ),
        ),
        Panel(
            "Writable",
            "1 while a bookie takes ordinary adds.",
            "short",
            ((each("quire_bookie_storage_is_writable"), INSTANCE),),
        ),
        Panel(
            "Event loop",
            "99 % of the timers are called within this time; a busy processor makes it grow.",
            "s",
            ((p99("quire_bookie_loop_lag_seconds"), INSTANCE),),
        ),
        Panel(
            "Memory",
            "Resident memory of each process.",
            "bytes",
            ((each("process_resident_memory_bytes"), INSTANCE),),
        ),
        Panel(
            "Processor",
            "Processor time per second: 1 is one processor.",
            "short",
            ((rate("process_cpu_seconds_total"), INSTANCE),),
        ),
    ),
)
LEDGERS: Final = Board(
    "quire-ledgers",
    "Quire: ledgers and clients",
    (
        Panel(
            "Adds by status",
            "Batches answered per second: other statuses than ok are refusals.",
            "ops",
            ((rate("quire_bookie_adds_total", "status"), "{{status}}"),),
        ),
        Panel(
            "Ledgers on each bookie",
            "Ledgers that are stored or fenced.",
            "short",
            ((each("quire_bookie_storage_ledgers"), INSTANCE),),
        ),
        Panel(
            "Connections",
            "Open connections of clients.",
            "short",
            ((each("quire_bookie_connections_now"), INSTANCE),),
        ),
        Panel(
            "Long polls",
            "Readers that wait for a higher last add confirmed.",
            "short",
            ((each("quire_bookie_long_polls_now"), INSTANCE),),
        ),
        Panel(
            "Bytes read",
            "Bytes returned by reads per second.",
            "Bps",
            ((rate("quire_bookie_storage_bytes_read_total"), INSTANCE),),
        ),
        Panel(
            "Reading paused",
            "Pauses per second of reading from clients that send faster than the disk writes.",
            "ops",
            ((rate("quire_bookie_reading_paused_total"), INSTANCE),),
        ),
        Panel(
            "Refused",
            "Requests per second that were refused: wrong hellos, logins, roles, bad requests.",
            "ops",
            (
                (rate("quire_bookie_hellos_refused_total"), f"{INSTANCE} hellos"),
                (rate("quire_bookie_logins_refused_total"), f"{INSTANCE} logins"),
                (rate("quire_bookie_refused_by_roles_total"), f"{INSTANCE} roles"),
                (rate("quire_bookie_bad_requests_total"), f"{INSTANCE} bad"),
            ),
        ),
        Panel(
            "Dropped clients",
            "Connections closed per second because the client was too slow or sent bad frames.",
            "ops",
            ((rate("quire_bookie_peers_dropped_total"), INSTANCE),),
        ),
        Panel(
            "Quotas",
            "Pauses per second because of quotas.",
            "ops",
            ((rate("quire_bookie_throttles_total"), INSTANCE),),
        ),
    ),
)
TOPICS: Final = Board(
    "quire-topics",
    "Quire: topics and groups",
    (
        Panel(
            "Partitions not served",
            "Partitions that a broker should serve and does not.",
            "short",
            ((each("quire_broker_partitions_not_served"), INSTANCE),),
            STAT,
        ),
        Panel(
            "Partitions that lack replicas",
            "Served partitions with fewer copies of some records than they are to have.",
            "short",
            ((each("quire_broker_partitions_under_replicated"), INSTANCE),),
            STAT,
        ),
        Panel(
            "Brokers", "Brokers that are up.", "short", ((cluster("brokers"), "{{cluster}}"),), STAT
        ),
        Panel(
            "Produced",
            "Bytes of record batches that producers sent, per second.",
            "Bps",
            ((rate("quire_broker_produce_bytes_total"), INSTANCE),),
        ),
        Panel(
            "Fetched",
            "Bytes of record batches in answers to Fetch, per second.",
            "Bps",
            ((rate("quire_broker_fetch_bytes_total"), INSTANCE),),
        ),
        Panel(
            "Records",
            "Records that producers sent, per second.",
            "ops",
            ((rate("quire_broker_produce_records_total"), INSTANCE),),
        ),
        latency(
            "Produce latency",
            "From the arrival of a Produce request to its answer.",
            "quire_broker_produce_latency_seconds",
        ),
        latency(
            "Fetch latency",
            "From the arrival of a Fetch request to its answer; it includes the wait for records.",
            "quire_broker_fetch_latency_seconds",
        ),
        Panel(
            "Requests",
            "Requests per second, by kind.",
            "ops",
            ((rate("quire_broker_requests_total", "api"), "{{api}}"),),
        ),
        Panel(
            "Errors",
            "Errors of partitions in answers per second, by Kafka's code.",
            "ops",
            ((rate("quire_broker_errors_total", "code"), "{{code}}"),),
        ),
        Panel(
            "End of each partition",
            "Offset after the newest committed record.",
            "short",
            ((f"quire_broker_partition_high_watermark{OF_INSTANCE}", "{{topic}}-{{partition}}"),),
        ),
        Panel(
            "Partitions led",
            "Partitions that each broker leads.",
            "short",
            ((each("quire_broker_partitions"), INSTANCE),),
        ),
        Panel(
            "Connections",
            "Open connections of clients and other brokers.",
            "short",
            ((each("quire_broker_connections_now"), INSTANCE),),
        ),
    ),
)
REPAIR: Final = Board(
    "quire-repair",
    "Quire: repair",
    (
        Panel(
            "Ledgers to repair",
            "By class: 0 has at most one good copy, and is repaired first.",
            "short",
            ((cluster("repair_ledgers", "class"), "class {{class}}"),),
        ),
        Panel(
            "Bytes left",
            "Bytes that are to be copied.",
            "bytes",
            ((cluster("repair_left_bytes"), "{{cluster}}"),),
        ),
        Panel(
            "Copied",
            "Bytes copied per second in the last minute, by all workers.",
            "Bps",
            ((cluster("repair_bytes_per_second"), "{{cluster}}"),),
        ),
        Panel(
            "Blocked",
            "Ledgers that cannot be repaired now: quire repair list --blocked says why.",
            "short",
            ((cluster("repair_blocked_ledgers"), "{{cluster}}"),),
        ),
        Panel(
            "Under way",
            "Ledgers that are repaired now, and published jobs.",
            "short",
            ((cluster("repair_claims"), "repaired now"), (cluster("repair_jobs"), "published")),
        ),
        Panel(
            "Workers",
            "Processes that repair, and whether repair is paused.",
            "short",
            ((cluster("repair_workers"), "workers"), (cluster("repair_paused"), "paused")),
        ),
        Panel(
            "Age of the summary",
            "The auditor writes its summary each minute at least.",
            "s",
            ((cluster("repair_status_age_seconds"), "{{cluster}}"),),
        ),
        Panel(
            "Damaged entries",
            "Stored entries that are damaged and not repaired yet.",
            "short",
            ((each("quire_bookie_storage_damaged_entries"), INSTANCE),),
        ),
        Panel(
            "Scrub",
            "Bytes per second that the scrub has read and found good.",
            "Bps",
            ((rate("quire_bookie_storage_checked_bytes_total"), INSTANCE),),
        ),
    ),
)
BOARDS: Final = (SAFETY, BOOKIES, LEDGERS, TOPICS, REPAIR)
