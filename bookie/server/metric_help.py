"""Kind and help text of every metric of a bookie, by the name of its field.

Leaves reading the values to `bookie.server.metrics`.

Invariant: every field of `StorageStatistics` and every plain field of `ServerCounters` has an item
here; a test compares them.
"""

from typing import Final

from quire.server.metrics import counter, gauge

PREFIX: Final = "quire_bookie"


SERVER: Final = {
    "connections_now": gauge("Client connections that are open."),
    "connections_accepted": counter("Client connections accepted."),
    "connections_refused": counter("Client connections refused, at the limit or while closing."),
    "connections_refused_of_address": counter(
        "Client connections refused because their address has too many."
    ),
    "peers_dropped": counter(
        "Connections closed because the client was too slow or sent bad frames."
    ),
    "bytes_received": counter("Bytes received from clients."),
    "requests_failed": counter("Requests that failed unexpectedly; the log has a traceback."),
    "bad_frames": counter("Frames that could not be read; each closed its connection."),
    "reading_paused": counter("Number of times that reading from a connection was paused."),
    "hellos_refused": counter("Hellos refused: wrong bookie, version or credentials, or no login."),
    "logins_refused": counter("Logins refused: a wrong password, an unknown user or mechanism."),
    "refused_by_roles": counter("Requests refused because the client lacks a role on the ledger."),
    "requests": counter("Requests received, adds included."),
    "bad_requests": counter("Requests refused because they are not valid."),
    "ack_frames": counter("Frames of answers to adds; one frame carries many answers."),
    "reads_from_memory": counter("Reads answered from the recent entries in memory."),
    "reads_from_disk": counter("Reads answered through the index and the log."),
    "long_polls_now": gauge("Long polls that are waiting."),
    "long_polls_woken": counter("Long polls answered because the LAC advanced."),
    "long_polls_expired": counter("Long polls answered because their time ended."),
}
"""`quire_bookie_<name>`."""

STORAGE: Final = {
    "entries_added": counter("Entries stored."),
    "bytes_added": counter("Bytes of batches stored."),
    "batches_added": counter("Batches stored."),
    "entries_read": counter("Entries returned by reads."),
    "bytes_read": counter("Bytes returned by reads."),
    "syncs": counter("Groups written to the log and synced."),
    "log_bytes_written": counter("Bytes written to the log, headers included."),
    "queue_bytes": gauge("Bytes accepted and not yet durable."),
    "ledgers": gauge("Ledgers that are stored or fenced here."),
    "segments": gauge("Segment files of the log."),
    "segment_bytes": gauge("Bytes of all segment files."),
    "live_bytes": gauge("Approximate bytes of segment files that the index names."),
    "runs_in_memory": gauge("Index entries in memory that no checkpoint has stored yet."),
    "records_since_checkpoint": gauge("Records indexed since the last checkpoint began."),
    "checkpoints": counter("Checkpoints finished."),
    "checkpoint_mark": gauge("LSN up to which the last checkpoint covers the log."),
    "log_end": gauge("LSN below which everything is durable."),
    "recent_bytes": gauge("Bytes of recent entries in memory for tailing readers."),
    "damaged_segments": gauge("Segment files with damage: kept until nothing in them is live."),
    "damaged_segment_bytes": gauge("Sizes of these files, in bytes."),
    "damaged_ranges": gauge("Stored ranges that are damaged and not repaired yet."),
    "damaged_entries": gauge("Stored entries in these ranges."),
    "checked_entries": counter("Entries that the scrub has read and found good."),
    "checked_bytes": counter("Bytes of batches that the scrub has read and found good."),
    "cleaned_segments": counter("Segments removed or rewritten by cleaning."),
    "cleaned_bytes": counter("Bytes freed by cleaning."),
    "cleaning_written_bytes": counter("Bytes that cleaning wrote into new segments."),
    "cleaning_backlog_bytes": gauge("Garbage in segments that are due to be cleaned."),
    "disk_total_bytes": gauge("Bytes of the file system."),
    "disk_free_bytes": gauge("Free bytes of the file system."),
    "index_bytes": gauge("Bytes that the index's store uses."),
    "index_map_bytes": gauge("Bytes that the index's map may use before it is doubled."),
    "is_writable": gauge("1 while ordinary adds are accepted, else 0."),
    "is_limbo": gauge("The same as quire_bookie_limbo."),
}
"""`quire_bookie_storage_<name>`."""

LATENCIES: Final = {
    "add": "Seconds from the arrival of a batch to its answer.",
    "read": "Seconds from the arrival of a read to its answer, without long polls.",
    "sync": "Seconds to write and sync one group of records in the log.",
    "checkpoint": "Duration of one checkpoint of the index, in seconds.",
}
"""Histograms: `quire_bookie_<name>_latency_seconds` for add and read, else
`quire_bookie_storage_<name>_latency_seconds`.
"""

POSITION: Final = {
    "age_seconds": "Seconds since the log's end was recorded in the metadata; 0 while it is.",
    "unrecorded_bytes": "Bytes of log written since the last record.",
}
"""`quire_bookie_position_<name>`."""

SCRUB: Final = {
    "running": "1 while a scrub is under way, else 0.",
    "ended_seconds": "Time of the end of the last complete scrub, in seconds since 1970; 0 before.",
}
"""`quire_bookie_scrub_<name>`."""
