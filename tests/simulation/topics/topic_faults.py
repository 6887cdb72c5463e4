"""Faults of brokers, bookies and users of topics: each kind occurs at a separate rate.

Leaves drawing the rates to `topic_plan`.

Invariants: every fault ends, at the latest at `heal`. No synced data of a bookie is lost.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Final

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from metadata.errors import MetadataError
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.topic_store import TopicStore
from tests.simulation.nodes import BookieNode, Node
from tests.simulation.repairing.drains import Drains
from tests.simulation.repairing.repairs import RepairDeaths
from tests.simulation.topics.broker_nodes import BrokerNode, KafkaNode
from tests.simulation.topics.topic_cluster import TopicCluster

Fault = Callable[[], Coroutine[None, None, None]]
DOWN_S: Final = (0.1, 1.0, 5.0)
STALL_S: Final = (0.5, 2.0, 6.0, 10.0)


class TopicFaults:
    """The faults of one run, from `start` to `heal`."""

    def __init__(self, cluster: TopicCluster) -> None:
        self.counts: dict[str, int] = {}
        self._cluster = cluster
        self._rng = random.Random(f"topic faults {cluster.topics_plan.seed}")
        self._tasks: list[asyncio.Task[None]] = []
        self._cuts: list[tuple[str, str]] = []
        self._drains = Drains(cluster)
        self._kinds: dict[str, Fault] = {
            "kill_broker": self._kill_broker,
            "restart_broker": self._restart_broker,
            "pause_broker": self._pause_broker,
            "isolate_broker": self._isolate_broker,
            "maroon_broker": self._maroon_broker,
            "expire_broker": self._expire_broker,
            "suspend_broker": self._suspend_broker,
            "cut_client": self._cut_client,
            "break_connection": self._break_connection,
            "kill_user": self._kill_user,
            "pause_user": self._pause_user,
            "kill_bookie": self._kill_bookie,
            "pause_bookie": self._pause_bookie,
            "isolate_bookie": self._isolate_bookie,
            "stall_store": self._stall_store,
            "elect": self._elect,
            "move_coordinator": self._move_coordinator,
            "restart_all": self._restart_all,
            "kill_repair": RepairDeaths(cluster).kill,
            "drain_bookie": self._drains.change,
        }

    def start(self) -> None:
        """Start the faults."""
        for kind, every_s in self._cluster.topics_plan.fault_every_s.items():
            self._tasks.append(asyncio.create_task(self._repeat(kind, every_s)))

    async def heal(self) -> None:
        """End all faults, and start every machine again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        cluster = self._cluster
        cluster.store_faults.stalled_until_s = 0.0
        for source, target in self._cuts:
            cluster.network.heal(source, target)
        self._cuts.clear()
        await self._drains.heal()
        nodes: list[Node] = [
            *cluster.bookies,
            *cluster.brokers,
            *cluster.users,
            *cluster.repairers,
        ]
        for node in nodes:
            node.resume()
            if node.store is not None:
                node.store.resume()
            node.is_wanted, node.is_on_purpose = True, False
            node.start()

    async def _repeat(self, kind: str, every_s: float) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(1.0 / every_s))
            self._note(kind)
            await self._kinds[kind]()

    def _note(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._cluster.model.note("fault", kind)

    # -- brokers

    @property
    def brokers(self) -> list[BrokerNode]:
        """The machines of brokers."""
        return self._cluster.brokers

    def _broker(self) -> BrokerNode:
        """Return a broker; one that leads many partitions is more likely."""
        running = [each for each in self._cluster.brokers if each.is_serving]
        if not running:
            return self._rng.choice(self._cluster.brokers)
        return self._rng.choices(running, [1 + each.led_count for each in running])[0]

    async def _kill_broker(self) -> None:
        self._kill(self._broker())

    def _kill(self, node: Node) -> None:
        if node.is_running:
            node.kill(power_off=self._rng.random() < 0.5)
            self._come_back(node, self._rng.choice(DOWN_S) * self._rng.random())

    def _come_back(self, node: Node, after_s: float) -> None:
        node.is_on_purpose = True
        loop = self._cluster.loop
        loop.call_later(after_s, self._start_again, node, context=self._cluster.context)

    def _start_again(self, node: Node) -> None:
        node.is_on_purpose = False
        node.start()

    async def _restart_broker(self) -> None:
        self._broker().stopping.set()

    async def _restart_all(self) -> None:
        for broker in self._cluster.brokers:
            self._kill(broker)

    async def _pause_broker(self) -> None:
        """Pause a process, sometimes for longer than its session lasts."""
        broker = self._broker()
        broker.pause()
        if broker.store is not None:
            broker.store.suspend()
        await asyncio.sleep(self._rng.choice(STALL_S) * self._rng.random())
        broker.resume()
        if broker.store is not None:
            broker.store.resume()

    async def _expire_broker(self) -> None:
        store = self._broker().store
        if store is not None:
            store.expire()

    async def _suspend_broker(self) -> None:
        await self._suspend(self._broker(), self._rng.choice(STALL_S) * self._rng.random())

    async def _suspend(self, broker: BrokerNode, seconds: float) -> None:
        store = broker.store
        if store is not None:
            store.suspend()
            await asyncio.sleep(seconds)
            store.resume()

    def cut_off_midway(self, broker: BrokerNode) -> None:
        """Kill a broker's process, which calls this, or cut it off from all bookies for a while."""
        self._note("cut_off_midway")
        if self._rng.random() < 0.5:
            self._begin(self._kill_now(broker))
            return
        pairs = _both_ways(broker.host, [each.host for each in self._cluster.bookies])
        self._begin(self._cut_pairs(pairs, self._rng.choice(STALL_S) * self._rng.random()))

    def suspend_midway(self, broker: BrokerNode, seconds: float) -> None:
        """Cut a broker off from the metadata service; its process calls this."""
        self._note("suspend_midway")
        self._begin(self._suspend(broker, seconds))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Start a fault outside of the process that runs now."""

        def start() -> None:
            self._tasks.append(asyncio.create_task(work))

        self._cluster.loop.call_soon(start, context=self._cluster.context)

    async def _kill_now(self, broker: BrokerNode) -> None:
        self._kill(broker)

    async def _maroon_broker(self) -> None:
        """Cut a broker off from the others and the metadata service; users and bookies can reach
        it.
        """
        broker = self._broker()
        hosts = [each.host for each in self._cluster.brokers if each is not broker]
        store = broker.store
        if store is not None:
            store.suspend()
        seconds = self._rng.choice(STALL_S) * (0.5 + self._rng.random())
        await self._cut_pairs(_both_ways(broker.host, hosts), seconds)
        if store is not None and broker.store is store:
            store.resume()

    async def _isolate_broker(self) -> None:
        """Cut a broker off from all hosts or from all bookies, in one direction or both."""
        broker = self._broker()
        hosts = [each.host for each in self._cluster.bookies]
        if self._rng.random() < 0.5:
            hosts += [each.host for each in (*self._cluster.brokers, *self._cluster.users)]
        pairs = _both_ways(broker.host, [each for each in hosts if each != broker.host])
        way = self._rng.choice((0, 1, None))
        chosen = pairs if way is None else pairs[way::2]
        await self._cut_pairs(chosen, self._rng.choice(STALL_S) * self._rng.random())

    async def _elect(self) -> None:
        """Make another broker lead a partition, as a controller does."""
        await self._move(*self._rng.choice(self._cluster.partitions()))

    async def _move_coordinator(self) -> None:
        """Make another broker coordinate groups."""
        count = self._cluster.topics_plan.state_partitions
        await self._move(CONSUMER_OFFSETS, self._rng.randrange(count))

    async def _move(self, topic: str, partition: int) -> None:
        cluster = self._cluster
        leader = self._rng.randrange(len(cluster.brokers))
        store = MemoryMetadataStore(cluster.metadata)
        try:
            topics = TopicStore(store, random.Random(self._rng.random()))
            await topics.change(topic, lambda record: record.with_leaders({partition: leader}))
        except MetadataError as error:
            cluster.model.note("elect", str(error))
        finally:
            await store.aclose()

    # -- bookies

    def _bookie(self) -> BookieNode:
        return self._rng.choice(self._cluster.bookies)

    async def _kill_bookie(self) -> None:
        self._kill(self._bookie())

    async def _pause_bookie(self) -> None:
        bookie = self._bookie()
        bookie.pause()
        await asyncio.sleep(self._rng.choice(STALL_S) * self._rng.random())
        bookie.resume()

    async def _isolate_bookie(self) -> None:
        host = self._bookie().host
        brokers = [each.host for each in self._cluster.brokers]
        seconds = self._rng.choice(STALL_S) * self._rng.random()
        await self._cut_pairs(_both_ways(host, brokers), seconds)

    async def _stall_store(self) -> None:
        seconds = self._rng.choice(STALL_S) * self._rng.random()
        faults = self._cluster.store_faults
        faults.stalled_until_s = max(faults.stalled_until_s, self._cluster.loop.now_s + seconds)

    # -- users, and the network

    def _user(self) -> KafkaNode:
        return self._rng.choice(self._cluster.users)

    async def _kill_user(self) -> None:
        self._kill(self._user())

    async def _pause_user(self) -> None:
        user = self._user()
        user.pause()
        await asyncio.sleep(self._rng.choice(STALL_S) * self._rng.random())
        user.resume()

    async def _cut_client(self) -> None:
        pairs = _both_ways(self._user().host, [self._broker().host])
        way = self._rng.choice((0, 1, None))
        chosen = pairs if way is None else pairs[way::2]
        await self._cut_pairs(chosen, self._rng.choice(STALL_S) * self._rng.random())

    async def _break_connection(self) -> None:
        connections = self._cluster.network.connections()
        if connections:
            self._cluster.network.break_connection(self._rng.choice(connections))

    async def _cut_pairs(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        for source, target in pairs:
            self._cluster.network.cut(source, target)
        self._cuts += pairs
        await asyncio.sleep(seconds)
        for source, target in pairs:
            self._cuts.remove((source, target))
            self._cluster.network.heal(source, target)


def _both_ways(host: str, others: list[str]) -> list[tuple[str, str]]:
    return [pair for other in others for pair in ((host, other), (other, host))]
