"""One broker of a local cluster, a process with its own port.

Leaves hurting it to `quire.local.local_server`, and the broker to `quire broker run`.

Invariant: a restarted broker has its old id and its old ports, so that clients find it again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from quire.local.local_server import LocalServer

READY_TIMEOUT_S: Final = 60.0
HOST: Final = "127.0.0.1"
SESSION_TIMEOUT_S: Final = 6.0
"""Time after which a killed broker's partitions are led by other brokers, or by itself if
restarted."""
STATE_PARTITIONS: Final = 4
"""Number of partitions of each internal topic, which is enough for a laptop."""
DEFAULT_REPLICATION_FACTOR_MAX: Final = 3


class LocalBroker(LocalServer):
    """A broker and its id; its address is for `bootstrap.servers`."""

    def __init__(
        self,
        broker_id: int,
        log_path: Path,
        metadata_uri: str,
        ports: Mapping[str, int],
        bookie_count: int,
        other_options: Mapping[str, str],
    ) -> None:
        """`ports` has the port of each listener under its security protocol, the one for other
        brokers first. `other_options` are options of `quire broker run`, which override those of a
        local cluster.
        """
        self.id = broker_id
        name = f"broker-{broker_id}"
        factor = max(1, min(DEFAULT_REPLICATION_FACTOR_MAX, bookie_count))
        flags = {
            "broker-id": str(broker_id),
            "metadata": metadata_uri,
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        }
        options = {
            "rack": name,
            "session_timeout_s": str(SESSION_TIMEOUT_S),
            "offsets_topic_partitions": str(STATE_PARTITIONS),
            "transaction_topic_partitions": str(STATE_PARTITIONS),
            "default_replication_factor": str(factor),
            "group_initial_rebalance_delay_ms": "0",
            **{key.replace("-", "_"): value for key, value in other_options.items()},
        }
        super().__init__(
            ("broker", "run"), name, flags, options, log_path, ready_timeout_s=READY_TIMEOUT_S
        )
