"""Three brokers of Quire for scenarios that kill brokers, for any broker under test.

Leaves starting, killing and restarting them to `quire.local_cluster`.
"""

from typing import Final, Self

from quire.local_cluster import LocalCluster
from tests.kafka.endpoint import Endpoint
from tests.support.quire.in_thread import InThread

BROKERS: Final = 3


class KilledBrokers:
    """Cluster for blocking callers."""

    def __init__(self) -> None:
        self._cluster = LocalCluster(broker=BROKERS)
        self._in_thread = InThread(self._cluster)

    def __enter__(self) -> Self:
        self._in_thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._in_thread.__exit__()

    @property
    def endpoint(self) -> Endpoint:
        """Endpoint of the brokers."""
        return Endpoint(",".join(broker.address for broker in self._cluster.brokers))

    @property
    def logs(self) -> str:
        """Ends of the brokers' logs."""
        return "\n".join(broker.log_tail() for broker in self._cluster.brokers)

    def kill_and_restart(self, number: int) -> None:
        """End one broker with kill -9 and start it again; return when it serves."""
        broker = self._cluster.brokers[number]
        broker.kill()
        self._in_thread.run(broker.restart())
