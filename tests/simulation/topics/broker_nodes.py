"""Brokers, and the clients of topics, as simulated processes.

The constructors called here are those that the broker's `main` calls.

Source: assurance design; `broker_layer/main.py`.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from typing_extensions import override  # `typing` has it from 3.12 on

from broker_layer.broker_process import BrokerAddresses, BrokerEnvironment, BrokerProcess
from broker_layer.log.topic_log import TopicLog
from broker_layer.options import BrokerOptions
from ledger_client import LedgerClient
from quire.server.errors import CannotListenError
from tests.simulation.clocks import on_clock
from tests.simulation.nodes import ADMIN_PORT, Node, first_of
from tests.simulation.observing import described
from tests.simulation.store import NodeStore
from tests.simulation.topics.kafka_client import KAFKA_PORT, KafkaClient

if TYPE_CHECKING:
    from tests.simulation.topics.topic_cluster import TopicCluster

DRAIN_S = 1.0


class SharedStore(NodeStore):
    """Session of a broker, which its ledger client does not close after a failed start.

    A real client would open another session for its next attempt.
    """

    is_over = False

    @override
    async def aclose(self) -> None:
        if self.is_over:
            await super().aclose()


class BrokerNode(Node):
    """Machine of one broker."""

    def __init__(self, cluster: "TopicCluster", number: int) -> None:
        super().__init__(cluster, f"broker-{number}")
        self.number = number
        self.topics = cluster
        self.serving: BrokerAddresses | None = None
        self.process: BrokerProcess | None = None
        self.stopping = asyncio.Event()

    @property
    def is_serving(self) -> bool:
        """Return whether the process has started to serve."""
        return self.is_running and self.serving is not None

    @property
    def may_be_replaced(self) -> bool:
        """Return whether the process's session has lapsed, by its own clock."""
        if self.process is None:
            return False
        with on_clock(self.clock):
            return self.process._cluster.view.lease.has_lapsed

    @property
    def led_count(self) -> int:
        """Return how many partitions the process leads, including those of coordinators."""
        return 0 if self.process is None else self.process._leading.manager.led_count

    def logs(self) -> list[TopicLog]:
        """Return the logs that the process leads now."""
        if self.process is None or not self.is_running:
            return []
        return self.process._leading.manager.logs()

    def epoch_led(self, place: tuple[str, int]) -> int:
        """Return the epoch in which the process leads a partition now, -1 if it does not."""
        led = [log for log in self.logs() if (log.topic, log.key.partition) == place]
        return max((log.leader_epoch for log in led), default=-1)

    @override
    async def _main(self) -> None:
        cluster, rng = self.topics, self.draw()
        self.stopping = asyncio.Event()
        self.serving = None
        self.store = store = SharedStore(
            cluster.metadata, cluster.store_faults, session_timeout_s=cluster.plan.session_timeout_s
        )
        client = LedgerClient.from_parts(
            store,
            rng=random.Random(f"ledgers {rng.random()}"),
            wall_clock_ms=self.wall_clock_ms,
            config=cluster.plan.config,
        )
        self.process = process = BrokerProcess(
            BrokerEnvironment(
                self._options(),
                store,
                client,
                rng,
                self.wall_clock_ms,
                cluster.loop.time,
                "simulation",
            )
        )
        try:
            self.serving = await process.start()
            await first_of(process.wait_for_failure(), self.stopping)
        except CannotListenError as error:
            cluster.model.note("broker", f"{self.host} ends: {error}")
        finally:
            await process.stop()
            store.is_over = True
            await client.aclose()
            await store.aclose()

    def _options(self) -> BrokerOptions:
        plan = self.topics.topics_plan
        return BrokerOptions(
            broker_id=self.number,
            metadata="memory",
            listeners=f"PLAINTEXT://{self.host}:{KAFKA_PORT}",
            admin_host=self.host,
            admin_port=ADMIN_PORT,
            session_timeout_s=plan.base.session_timeout_s,
            offsets_topic_partitions=plan.state_partitions,
            transaction_topic_partitions=plan.state_partitions,
            default_replication_factor=plan.replicas,
            auto_create_topics=False,
            drain_timeout_s=DRAIN_S,
        )

    @override
    def after_death(self, *, power_off: bool) -> None:
        """Mark the broker as not serving."""
        self.serving = self.process = None

    @override
    def after_end(self, error: BaseException | None) -> None:
        """Mark the broker as not serving."""
        self.serving = self.process = None


class KafkaNode(Node):
    """Machine with one user of topics on it, which works until the run is over."""

    def __init__(self, cluster: "TopicCluster", name: str, work: "Work") -> None:
        super().__init__(cluster, name)
        self.topics = cluster
        self._work = work

    @property
    @override
    def is_done(self) -> bool:
        """Return whether the run is over."""
        return self.topics.is_over

    @property
    def topic(self) -> str:
        """Return the topic that offsets are committed for."""
        return self.topics.topic_names[0]

    @property
    def incarnation(self) -> str:
        """Return a name of this process, different from that of the previous one."""
        return f"{self.host}.{self.starts}"

    @override
    async def _main(self) -> None:
        rng = self.draw()
        client = KafkaClient(self.topics, self.incarnation, random.Random(f"client {rng.random()}"))
        try:
            await self._work(self, client, rng)
        except Exception as error:
            self.topics.model.report("client", f"{self.host} failed: {described(error)}")
            raise
        finally:
            client.close()


Work = Callable[[KafkaNode, KafkaClient, random.Random], Coroutine[None, None, None]]
