"""Faults of brokers, bookies and users of topics.

Each kind occurs at a separate rate. Some hit a coordinator in the middle of one piece of work,
where chance rarely does.

Invariants: every fault ends, at the latest at `heal`. No synced data of a bookie is lost.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, cast
from unittest.mock import patch

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.log import state_log
from broker_layer.log.ledger_list import LedgerList
from broker_layer.log.state_log import StateLog, load_state
from broker_layer.log.topic_configs import LogConfig
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import MetadataError
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.topic_store import TopicStore
from tests.simulation.faults import FaultsByRate
from tests.simulation.network import HOST
from tests.simulation.nodes import BookieNode, Node
from tests.simulation.repair import Drains, RepairDeaths
from tests.simulation.topics.broker_nodes import BrokerNode, KafkaNode
from tests.simulation.topics.topic_cluster import TopicCluster

DOWN_S: Final = (0.1, 1.0, 5.0)
STALL_S: Final = (0.5, 2.0, 6.0, 10.0)


class TopicFaults(FaultsByRate):
    """The faults of brokers, of their bookies and of their users."""

    _cluster: TopicCluster

    def __init__(self, cluster: TopicCluster) -> None:
        rng = random.Random(f"topic faults {cluster.topics_plan.seed}")
        super().__init__(cluster, rng, STALL_S)
        self._drains = Drains(cluster)
        self._kinds = {
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
            "pause_all_bookies": self._pause_all_bookies,
            "isolate_bookie": self._isolate_bookie,
            "stall_store": self._stall_store,
            "elect": self._elect,
            "move_coordinator": self._move_coordinator,
            "restart_all": self._restart_all,
            "kill_repair": RepairDeaths(cluster).kill,
            "drain_bookie": self._drains.change,
        }

    async def heal(self) -> None:
        """End all faults, and start every machine again."""
        await self._end()
        cluster = self._cluster
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

    # -- brokers

    @property
    def brokers(self) -> list[BrokerNode]:
        """The machines of brokers."""
        return self._cluster.brokers

    def _broker(self) -> BrokerNode:
        """Return a broker; one that leads many partitions is more likely."""
        running = [broker for broker in self._cluster.brokers if broker.is_serving]
        if not running:
            return self._rng.choice(self._cluster.brokers)
        return self._rng.choices(running, [1 + node.led_count for node in running])[0]

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
        await asyncio.sleep(self._stall())
        broker.resume()
        if broker.store is not None:
            broker.store.resume()

    async def _expire_broker(self) -> None:
        store = self._broker().store
        if store is not None:
            store.expire()

    async def _suspend_broker(self) -> None:
        await self._suspend(self._broker(), self._stall())

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
        pairs = _both_ways(broker.host, [bookie.host for bookie in self._cluster.bookies])
        self._begin(self._cut_pairs(pairs, self._stall()))

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
        hosts = [node.host for node in self._cluster.brokers if node is not broker]
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
        hosts = [bookie.host for bookie in self._cluster.bookies]
        if self._rng.random() < 0.5:
            hosts += [user.host for user in (*self._cluster.brokers, *self._cluster.users)]
        pairs = _both_ways(broker.host, [host for host in hosts if host != broker.host])
        way = self._rng.choice((0, 1, None))
        chosen = pairs if way is None else pairs[way::2]
        await self._cut_pairs(chosen, self._stall())

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
        await self._pause(self._bookie())

    async def _pause_all_bookies(self) -> None:
        """Pause one bookie after the other, for longer than sessions and answers to producers."""
        bookies = self._cluster.bookies
        for bookie in bookies:
            bookie.pause()
            await asyncio.sleep(self._rng.random())
        await asyncio.sleep(self._rng.uniform(1.2, 1.8) * max(STALL_S))
        for bookie in bookies:
            bookie.resume()

    async def _isolate_bookie(self) -> None:
        host = self._bookie().host
        brokers = [broker.host for broker in self._cluster.brokers]
        seconds = self._stall()
        await self._cut_pairs(_both_ways(host, brokers), seconds)

    async def _stall_store(self) -> None:
        seconds = self._stall()
        faults = self._cluster.store_faults
        faults.stalled_until_s = max(faults.stalled_until_s, self._cluster.loop.now_s + seconds)

    # -- users, and the network

    def _user(self) -> KafkaNode:
        return self._rng.choice(self._cluster.users)

    async def _kill_user(self) -> None:
        self._kill(self._user())

    async def _pause_user(self) -> None:
        await self._pause(self._user())

    async def _cut_client(self) -> None:
        pairs = _both_ways(self._user().host, [self._broker().host])
        way = self._rng.choice((0, 1, None))
        chosen = pairs if way is None else pairs[way::2]
        await self._cut_pairs(chosen, self._stall())


def _both_ways(host: str, others: list[str]) -> list[tuple[str, str]]:
    return [pair for other in others for pair in ((host, other), (other, host))]


AFTER_LAPSE_S: Final = 4.0
"""Maximum time for which a load goes on after its session has lapsed."""


class MidwayFaults:
    """Faults that hit a coordinator in the middle of one piece of work, where chance rarely does.

    - In the middle of the snapshot with which a coordinator begins a ledger, its broker dies, or
    no bookie takes its adds any more. - While a coordinator loads a partition, the session of its
    broker lapses; then it serves.

    Invariant: from `heal` on, there are no such faults.
    """

    def __init__(self, seed: int, share: float) -> None:
        self._rng = random.Random(f"midway faults {seed}")
        self._share = share
        self._faults: TopicFaults | None = None

    def begin(self, faults: TopicFaults) -> None:
        """Begin to hit coordinators, by means of other faults."""
        self._faults = faults

    def heal(self) -> None:
        """End these faults."""
        self._faults = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follow what coordinators write and load."""
        fill, load = StateLog._fill, load_state

        async def begin_ledger(log: StateLog, writer: LedgerWriter) -> None:
            if self._is_due():
                writer = cast("LedgerWriter", _TornWriter(writer, self._rng, self._cut_off))
            await fill(log, writer)

        async def load_slowly(
            ledgers: LedgerList, each: Callable[[bytes], None], config: LogConfig
        ) -> bool:
            is_whole = await load(ledgers, each, config)
            if self._is_due():
                await self._lapse()
            return is_whole

        with (
            patch.object(StateLog, "_fill", begin_ledger),
            patch.object(state_log, "load_state", load_slowly),
        ):
            yield

    def _is_due(self) -> bool:
        return self._faults is not None and self._rng.random() < self._share

    async def _cut_off(self) -> None:
        """Kill the broker that runs now, or cut it off from all bookies."""
        if self._faults is not None:
            self._faults.cut_off_midway(_broker_of(self._faults))
            await asyncio.sleep(0)  # the process may be dead now

    async def _lapse(self) -> None:
        """Let the session of the broker that runs now lapse, and go on later."""
        assert self._faults is not None
        faults, broker = self._faults, _broker_of(self._faults)
        session_s = broker.topics.topics_plan.base.session_timeout_s
        faults.suspend_midway(broker, 2 * session_s + AFTER_LAPSE_S)
        await asyncio.sleep(session_s + AFTER_LAPSE_S * self._rng.random())


def _broker_of(faults: TopicFaults) -> BrokerNode:
    """Return the broker whose process runs now."""
    return next(broker for broker in faults.brokers if broker.host == HOST.get())


class _TornWriter:
    """Writer that writes the first entries, and then is hit by a fault."""

    def __init__(
        self, writer: LedgerWriter, rng: random.Random, hit: Callable[[], Awaitable[None]]
    ) -> None:
        self._writer = writer
        self._rng = rng
        self._hit = hit

    async def append_many(self, entries: Iterable[bytes]) -> object:
        """See `LedgerWriter.append_many`."""
        given = list(entries)
        first = self._rng.randint(1, len(given))
        await self._writer.append_many(given[:first])
        await self._hit()
        return await self._writer.append_many(given[first:])
