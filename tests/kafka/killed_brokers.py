"""Three brokers of Quire for scenarios that kill brokers, for any broker under test.

Leaves starting, killing and restarting them to `quire.local_cluster`.
"""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Final, Self

from quire.local_cluster import LocalCluster
from tests.kafka.endpoint import Endpoint

BROKERS: Final = 3
START_TIMEOUT_S: Final = 240


class KilledBrokers:
    """Cluster for blocking callers: a loop in a thread runs it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._cluster = LocalCluster(broker=BROKERS)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._cluster.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._cluster.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)
        self._loop.close()

    @property
    def endpoint(self) -> Endpoint:
        """Endpoint of the brokers."""
        return Endpoint(",".join(each.address for each in self._cluster.brokers))

    @property
    def logs(self) -> str:
        """Ends of the brokers' logs."""
        return "\n".join(each.log_tail() for each in self._cluster.brokers)

    def kill_and_restart(self, number: int) -> None:
        """End one broker with kill -9 and start it again; return when it serves."""
        broker = self._cluster.brokers[number]
        broker.kill()
        self._run(broker.restart())

    def _run(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_TIMEOUT_S)
