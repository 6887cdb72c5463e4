"""Kind and help text of every metric of a broker, by the name of its field.

Leaves reading the values to `broker_layer.server.metrics`.

Invariant: every field of `BrokerCounters` has an item here; a test compares them.
"""

from typing import Final

from quire.server.metrics import counter, gauge

PREFIX: Final = "quire_broker"

PLAIN: Final = {
    "connections_now": gauge("Connections of clients and other brokers that are open."),
    "connections_accepted": counter("Connections accepted."),
    "connections_refused": counter("Connections refused, at the limit or while closing."),
    "connections_refused_of_address": counter(
        "Connections refused because their address has too many, or makes them too fast."
    ),
    "peers_dropped": counter(
        "Connections closed because the client was too slow or sent bad frames."
    ),
    "bytes_received": counter("Bytes received on all connections."),
    "requests_failed": counter("Requests that failed unexpectedly; the log has a traceback."),
    "bad_frames": counter("Frames that could not be read; each closed its connection."),
    "reading_paused": counter("Number of times that reading from a connection was paused."),
    "connections_idle_closed": counter("Connections closed because nothing arrived for too long."),
    "throttled": counter("Number of times that a quota delayed a client."),
    "bytes_sent": counter("Bytes sent on all connections."),
    "produce_bytes": counter("Bytes of the record batches that producers sent and logs accepted."),
    "produce_batches": counter("Record batches that producers sent and logs accepted."),
    "produce_records": counter("Records in the batches that producers sent and logs accepted."),
    "fetch_bytes": counter("Bytes of record batches in the answers to Fetch requests."),
    "fetches_waiting_now": gauge("Fetch requests that wait for more records."),
    "fetch_sessions_now": gauge("Fetch sessions that are kept for clients (KIP-227)."),
}
"""`quire_broker_<name>`."""

LABELLED: Final = {
    "requests_by_api": "Requests received, by the kind of the request.",
    "throttles_by_quota": "Requests after which a client was paused, by the key of the quota.",
    "refused_logins_by_mechanism": "Logins refused: a wrong password, an unknown user or mechanism;"
    " by the mechanism, `none` without one that is enabled.",
    "errors_by_code": "Errors of partitions in answers to Produce and Fetch, by Kafka's code.",
}
"""`quire_broker_requests`, `quire_broker_throttles`, `quire_broker_logins_refused` and
`quire_broker_errors`.
"""

LATENCIES: Final = {
    "produce_latency": "Seconds from the arrival of a Produce request to its answer.",
    "fetch_latency": "Seconds from the arrival of a Fetch request to its answer.",
}
"""Histograms: `quire_broker_<name>_seconds`."""

PARTITION: Final = {
    "high_watermark": "Offset after the newest committed record of a partition.",
    "log_end_offset": "Offset after the newest accepted record of a partition.",
    "log_start_offset": "Offset of the oldest record of a partition.",
}
"""`quire_broker_partition_<name>`, for partitions that this broker leads; -1 if not served."""
