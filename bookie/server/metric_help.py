"""Kind and help text of every metric of a bookie, by the name of its field.

Leaves reading the values to `bookie.server.metrics`.

Invariant: every field of `StorageStatistics` and every plain field of `ServerCounters` has an item
here; a test compares them.
"""

from enum import Enum
from typing import Final, NamedTuple

PREFIX: Final = "quire_bookie"


class Kind(Enum):
    """Kind of a metric. A counter only grows from the start of the process."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Described(NamedTuple):
    """Kind and help text of one metric."""

    kind: Kind
    text: str


def _counter(text: str) -> Described:
    return Described(Kind.COUNTER, text)


def _gauge(text: str) -> Described:
    return Described(Kind.GAUGE, text)


SERVER: Final = {
    "connections_now": _gauge("Client connections that are open."),
    "connections_accepted": _counter("Client connections accepted."),
    "connections_refused": _counter("Client connections refused, at the limit or while closing."),
    "hellos_refused": _counter("Hellos refused: wrong bookie, version or credentials."),
    "peers_dropped": _counter(
        "Connections closed because the client was too slow or sent bad frames."
    ),
    "bytes_received": _counter("Bytes received from clients."),
    "requests": _counter("Requests received, adds included."),
    "requests_failed": _counter("Requests that failed unexpectedly; the log has a traceback."),
    "bad_frames": _counter("Frames that could not be read; each closed its connection."),
    "bad_requests": _counter("Requests refused because they are not valid."),
    "ack_frames": _counter("Frames of answers to adds; one frame carries many answers."),
    "reads_from_memory": _counter("Reads answered from the recent entries in memory."),
    "reads_from_disk": _counter("Reads answered through the index and the log."),
    "long_polls_now": _gauge("Long polls that are waiting."),
    "long_polls_woken": _counter("Long polls answered because the LAC advanced."),
    "long_polls_expired": _counter("Long polls answered because their time ended."),
    "reading_paused": _counter("Number of times that reading from a connection was paused."),
}
"""`quire_bookie_<name>`."""

STORAGE: Final = {
    "entries_added": _counter("Entries stored."),
    "bytes_added": _counter("Bytes of batches stored."),
    "batches_added": _counter("Batches stored."),
    "entries_read": _counter("Entries returned by reads."),
    "bytes_read": _counter("Bytes returned by reads."),
    "syncs": _counter("Groups written to the log and synced."),
    "log_bytes_written": _counter("Bytes written to the log, headers included."),
    "queue_bytes": _gauge("Bytes accepted and not yet durable."),
    "ledgers": _gauge("Ledgers that are stored or fenced here."),
    "segments": _gauge("Segment files of the log."),
    "segment_bytes": _gauge("Bytes of all segment files."),
    "live_bytes": _gauge("Approximate bytes of segment files that the index names."),
    "runs_in_memory": _gauge("Index entries in memory that no checkpoint has stored yet."),
    "records_since_checkpoint": _gauge("Records indexed since the last checkpoint began."),
    "checkpoints": _counter("Checkpoints finished."),
    "checkpoint_mark": _gauge("LSN up to which the last checkpoint covers the log."),
    "log_end": _gauge("LSN below which everything is durable."),
    "recent_bytes": _gauge("Bytes of recent entries in memory for tailing readers."),
    "damaged_ranges": _gauge("Stored ranges found damaged since the start."),
    "cleaned_segments": _counter("Segments removed or rewritten by cleaning."),
    "cleaned_bytes": _counter("Bytes freed by cleaning."),
    "cleaning_written_bytes": _counter("Bytes that cleaning wrote into new segments."),
    "cleaning_backlog_bytes": _gauge("Garbage in segments that are due to be cleaned."),
    "disk_total_bytes": _gauge("Bytes of the file system."),
    "disk_free_bytes": _gauge("Free bytes of the file system."),
    "index_bytes": _gauge("Bytes that the index's store uses."),
    "index_map_bytes": _gauge("Bytes that the index's map may use before it is doubled."),
    "is_writable": _gauge("1 while ordinary adds are accepted, else 0."),
    "is_limbo": _gauge("The same as quire_bookie_limbo."),
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
