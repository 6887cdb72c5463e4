"""Faults of a simulated cluster: each kind occurs at a rate drawn from the seed.

Leaves drawing the rates to `tests.simulation.plan`.

Invariants: every fault ends, at the latest at `heal`. Damage (synced bytes lost or changed) stays
within the plan's budget. Source: assurance design; reliability design.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Final

from tests.simulation.aimed_faults import (
    BadMedia,
    FailingBuilds,
    HeldCheckpoints,
    Leaving,
    Restores,
    SecondStarts,
    Stops,
    UnsyncedDeaths,
    draw_known_synced,
    post,
)
from tests.simulation.availability.decision import SERVICE
from tests.simulation.cluster import Cluster
from tests.simulation.disk import Platter
from tests.simulation.nodes import BookieNode, ClientNode, Node
from tests.simulation.repair import Drains, RepairDeaths
from tests.simulation.restore_plan import KIND as RESTORE_ALL
from tests.simulation.unclean_closes import UncleanCloses
from tests.simulation.workloads import recover_one

Fault = Callable[[], Coroutine[None, None, None]]
FULL_ROOM_BYTES: Final = 2_000
OLD_DISK_S: Final = 30.0
OLD_DISK_WAIT_S: Final = 120.0
TAKE_OVER_S: Final = 15.0
DOWN_S: Final = (0.1, 1.0, 5.0, 20.0, 60.0)
REPLACED_S: Final = 3.0
STALL_S: Final = (0.3, 1.0, 3.0, 10.0, 40.0, 150.0)


class FaultsByRate:
    """Faults of one run, from `start` to `heal`; each kind occurs at a rate of its own."""

    def __init__(self, cluster: Cluster, rng: random.Random, stall_s: Sequence[float]) -> None:
        self.counts: dict[str, int] = {}
        self._cluster = cluster
        self._rng = rng
        self._stall_s = stall_s
        self._tasks: list[asyncio.Task[None]] = []
        self._cuts: list[tuple[str, str]] = []
        self._kinds: dict[str, Fault] = {}

    def start(self, every_s: Mapping[str, float]) -> None:
        """Start the faults, by the mean seconds between two of a kind."""
        for kind, mean_s in every_s.items():
            self._tasks.append(asyncio.create_task(self._repeat(kind, mean_s)))

    async def _end(self) -> None:
        """End the faults that last, and those of the network and of the metadata service."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        cluster = self._cluster
        cluster.store_faults.stalled_until_s = 0.0
        if cluster.store_faults.behind:
            cluster.store_faults.behind.clear()
            cluster.store_faults.behind_until_s = cluster.loop.now_s
        for source, target in self._cuts:
            cluster.network.heal(source, target)
        self._cuts.clear()

    async def _repeat(self, kind: str, every_s: float) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(1.0 / every_s))
            self._note(kind)
            await self._kinds[kind]()

    def _note(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._cluster.model.note("fault", kind)

    def _stall(self) -> float:
        """Draw how long a fault lasts, in seconds."""
        return self._rng.choice(self._stall_s) * self._rng.random()

    async def _pause(self, node: Node) -> None:
        node.pause()
        await asyncio.sleep(self._stall())
        node.resume()

    async def _cut_pairs(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        for source, target in pairs:
            self._cluster.network.cut(source, target)
        self._cuts += pairs
        await asyncio.sleep(seconds)
        for source, target in pairs:
            self._cuts.remove((source, target))
            self._cluster.network.heal(source, target)

    async def _break_connection(self) -> None:
        connections = self._cluster.network.connections()
        if connections:
            self._cluster.network.break_connection(self._rng.choice(connections))


class Faults(FaultsByRate):
    """The faults of bookies and their clients."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, random.Random(f"faults {cluster.plan.seed}"), STALL_S)
        self._plan = cluster.plan
        self._old_platters: dict[str, Platter] = {}
        self._damaged = cluster.damaged
        self._take_over_count = 0
        self._copy_count = 0
        self._second_starts = SecondStarts(cluster, random.Random(f"copies {cluster.plan.seed}"))
        self._restores = Restores(cluster)
        self._leaders_rng = random.Random(f"leaders {cluster.plan.seed}")
        self._deaths = UnsyncedDeaths(cluster, random.Random(f"deaths {cluster.plan.seed}"))
        seed = cluster.plan.seed
        self._media = BadMedia(random.Random(f"media {seed}"), self._victim)
        held_rng = random.Random(f"held checkpoints {seed}")
        self._held = HeldCheckpoints(cluster, held_rng, self._deaths)
        self._unclean = UncleanCloses(cluster, random.Random(f"unclean {cluster.plan.seed}"))
        self._kinds = {
            "kill_bookie": self._kill_bookie,
            "restart_bookie": self._restart_bookie,
            "take_over": self._take_over,
            "fail_write": self._fail_write,
            "power_cut": self._power_cut,
            "pause_bookie": self._pause_bookie,
            "kill_client": self._kill_client,
            "pause_client": self._pause_client,
            "cut_one_way": self._cut_one_way,
            "cut_both_ways": self._cut_both_ways,
            "isolate_bookie": self._isolate_bookie,
            "break_connection": self._break_connection,
            "stall_connection": self._stall_connection,
            "slow_disk": self._slow_disk,
            "fail_sync": self._fail_sync,
            "fill_disk": self._fill_disk,
            "stall_store": self._stall_store,
            "expire_session": self._expire_session,
            "suspend_session": self._suspend_session,
            "checkpoint": partial(self._administer, "/api/v1/checkpoint"),
            "clean": partial(self._administer, "/api/v1/clean"),
            "flip_log_bit": self._flip_log_bit,
            "flip_index_bit": self._flip_index_bit,
            "wipe_disk": self._wipe_disk,
            "old_disk": self._old_disk,
            "die_unsynced": self._deaths.die_unsynced,
            "fence_unsynced": self._deaths.fence_unsynced,
            "fence_within": self._held.fence_within,
            "full_sync": self._full_sync,
            "start_copy": self._start_copy,
            "replace_leader": self._replace_leader,
            "fail_build": FailingBuilds(cluster, random.Random(f"builds {seed}")).fail_build,
            "lose_sector": self._media.lose_sector,
            "leave_bookie": Leaving(cluster).leave,
            RESTORE_ALL: self._restores.restore_all,
            "unclean_close": self._unclean.close,
            "stop_within": Stops(cluster, STALL_S).stop_within,
            "kill_repair": RepairDeaths(cluster).kill,
            "drain_bookie": Drains(cluster).change,
        }

    async def heal(self) -> None:
        """End all faults, and start every machine again."""
        await self._end()
        cluster = self._cluster
        await Drains(cluster).heal()
        for node in (*cluster.bookies, *cluster.clients, *cluster.repairers):
            node.resume()
            if node.store is not None:
                node.store.resume()
        self._deaths.heal()
        self._held.heal()
        cluster.failing_builds.clear()
        self._unclean.heal()
        for bookie in cluster.bookies:
            faults = bookie.disk_faults
            faults.delay_s_max = self._plan.disk_delay_s
            faults.failing_syncs, faults.failing_writes, faults.full_syncs = 0, 0, 0
            faults.capacity_bytes, faults.index_commit_fails = 2**40, False
            bookie.is_wanted, bookie.is_on_purpose = True, False
            bookie.start()

    @property
    def damaged_hosts(self) -> list[str]:
        """Return the hosts whose synced bytes were lost or changed."""
        return list(self._damaged)

    # -- processes

    async def _kill_bookie(self) -> None:
        bookie = self._rng.choice(self._cluster.bookies)
        if bookie.is_running:
            bookie.kill(power_off=self._rng.random() < 0.5)
            bookie.start_after(self._rng.choice(DOWN_S) * self._rng.random())

    async def _restart_bookie(self) -> None:
        if (bookie := self._rng.choice(self._cluster.bookies)).is_serving:
            bookie.begin_stop()

    async def _power_cut(self) -> None:
        running = [node for node in self._cluster.bookies if node.is_running]
        share = self._rng.choice((0.5, 1.0, 1.0))
        for bookie in running:
            if self._rng.random() < share:
                bookie.kill(power_off=True)
                bookie.start_after(0.5 + 5.0 * self._rng.random())

    async def _pause_bookie(self) -> None:
        await self._pause(self._rng.choice(self._cluster.bookies))

    def _client(self) -> ClientNode:
        return self._rng.choice(self._cluster.clients)

    async def _kill_client(self) -> None:
        client = self._client()
        if client.is_running:
            client.kill(power_off=self._rng.random() < 0.5)
            self._cluster.loop.call_later(
                self._rng.random() * 5, client.start, context=self._cluster.context
            )

    async def _pause_client(self) -> None:
        await self._pause(self._client())

    async def _take_over(self) -> None:
        """Pause a writer, recover its ledger, sometimes cut the bookies' power, and resume the
        writer.
        """
        cluster = self._cluster
        live = list(cluster.live_ledgers.items())
        if not live:
            return
        ledger_id, host = self._rng.choice(live)
        writer = next(client for client in cluster.clients if client.host == host)
        is_cut_off = writer.store is not None and self._rng.random() < 0.5
        if is_cut_off and writer.store is not None:
            writer.store.suspend()  # otherwise the news of the recovery reaches the writer first
        writer.pause()
        self._take_over_count += 1
        taker = ClientNode(
            cluster, f"taker-{self._take_over_count}", recover_one(ledger_id, TAKE_OVER_S)
        )
        taker.is_on_purpose = True
        taker.start()
        await cluster.wait_until(lambda: not taker.is_running, 2 * TAKE_OVER_S)
        if self._rng.random() < 0.6:
            share = self._rng.choice((0.5, 1.0))
            for bookie in [node for node in cluster.bookies if node.is_running]:
                if self._rng.random() < share:
                    bookie.kill(power_off=self._rng.random() < 0.5)
                    bookie.start_after(0.2)
            await cluster.wait_until(lambda: all(b.is_serving for b in cluster.bookies), 20.0)
        writer.resume()
        if is_cut_off:
            await asyncio.sleep(self._rng.random() * TAKE_OVER_S)
            if writer.store is not None:
                writer.store.resume()

    # -- the network

    def _hosts(self) -> list[str]:
        return [bookie.host for bookie in (*self._cluster.bookies, *self._cluster.clients)]

    async def _cut_one_way(self) -> None:
        source = self._rng.choice(self._cluster.bookies).host
        target = self._client().host
        pair = (source, target) if self._rng.random() < 0.5 else (target, source)
        await self._cut_pairs([pair], self._stall())

    async def _cut_both_ways(self) -> None:
        bookie, client = self._rng.choice(self._cluster.bookies).host, self._client().host
        await self._cut_pairs([(bookie, client), (client, bookie)], self._stall())

    async def _isolate_bookie(self) -> None:
        host = self._rng.choice(self._cluster.bookies).host
        others = [each for each in self._hosts() if each != host]
        ways = self._rng.choice(("in", "out", "both"))
        pairs = [(other, host) for other in others if ways != "out"]
        pairs += [(host, other) for other in others if ways != "in"]
        await self._cut_pairs(pairs, self._stall())

    async def _stall_connection(self) -> None:
        connections = self._cluster.network.connections()
        if connections:
            seconds = self._stall()
            self._cluster.network.stall(self._rng.choice(connections), seconds)

    # -- disks

    async def _slow_disk(self) -> None:
        bookie = self._rng.choice(self._cluster.bookies)
        faults = bookie.disk_faults
        faults.delay_s_max = self._rng.choice((0.05, 0.3, 1.5))
        with self._cluster.network.faults.lasting(bookie.host):
            await asyncio.sleep(self._stall())
        faults.delay_s_max = self._plan.disk_delay_s

    async def _fail_sync(self) -> None:
        faults = self._rng.choice(self._cluster.bookies).disk_faults
        if self._rng.random() < 0.8:
            faults.failing_syncs = 1
        else:
            faults.index_commit_fails = True

    async def _fail_write(self) -> None:
        self._rng.choice(self._cluster.bookies).disk_faults.failing_writes = 1

    async def _full_sync(self) -> None:
        """Let a sync fail for lack of space that the writes before it had found."""
        self._rng.choice(self._cluster.bookies).disk_faults.full_syncs = 1

    async def _fill_disk(self) -> None:
        bookie = self._rng.choice(self._cluster.bookies)
        used = sum(len(name.current) for name in bookie.platter.names.values())
        bookie.disk_faults.capacity_bytes = used + self._rng.randrange(FULL_ROOM_BYTES)
        with self._cluster.network.faults.lasting(bookie.host):
            await asyncio.sleep(self._stall())
        bookie.disk_faults.capacity_bytes = 2**40

    async def _administer(self, path: str) -> None:
        addresses = self._rng.choice(self._cluster.bookies).addresses
        if addresses is not None:
            await post(addresses.admin_host, addresses.admin_port, path)

    # -- the metadata service

    async def _stall_store(self) -> None:
        seconds = self._stall()
        self._cluster.network.faults.add(SERVICE, seconds)
        faults = self._cluster.store_faults
        faults.stalled_until_s = max(faults.stalled_until_s, self._cluster.loop.now_s + seconds)

    async def _expire_session(self) -> None:
        store = self._rng.choice((*self._cluster.bookies, *self._cluster.clients)).store
        if store is not None:
            store.expire()

    async def _replace_leader(self) -> None:
        """Replace the leader of the metadata service, unnoticed by some processes' servers."""
        nodes = (*self._cluster.bookies, *self._cluster.clients)
        rng = self._leaders_rng
        share = rng.choice((0.3, 0.7))
        stores = [node.store for node in nodes if node.store and rng.random() < share]
        for store in stores:
            store.follow_replaced_leader()
        await asyncio.sleep(REPLACED_S * rng.random())
        for store in stores:
            store.leave_replaced_leader()

    async def _suspend_session(self) -> None:
        store = self._rng.choice((*self._cluster.bookies, *self._cluster.clients)).store
        if store is not None:
            store.suspend()
            await asyncio.sleep(self._rng.choice((0.5, 3.0, 30.0)) * self._rng.random())
            store.resume()

    # -- damage

    def _victim(self, rng: random.Random | None = None) -> BookieNode | None:
        """Choose the bookie to damage, within the budget."""
        bookie = (rng or self._rng).choice(self._cluster.bookies)
        if bookie.wipes and not self._plan.beyond_budget:
            # otherwise a ledger could lose two bookies: the former one and its successor
            return None
        if bookie.host not in self._damaged:
            if len(self._damaged) >= self._plan.damage_max:
                return None
            self._damaged[bookie.host] = None
        return bookie

    async def _flip_log_bit(self) -> None:
        bookie = self._victim()
        if bookie is None:
            return
        place = draw_known_synced(bookie.platter, self._rng)
        if place is not None:
            name, offset = place
            bookie.platter.flip_bit(name, offset * 8 + self._rng.randrange(8))

    async def _flip_index_bit(self) -> None:
        bookie = self._victim()
        stores = [] if bookie is None else list(bookie.platter.stores.values())
        for store in stores:
            if store.keys:
                store.flip_bit(self._rng)

    async def _wipe_disk(self) -> None:
        if (bookie := self._victim()) is not None:
            bookie.kill(power_off=True)
            bookie.platter = Platter()
            bookie.wipes += 1
            bookie.start_after(1.0 + self._rng.random() * 10)

    async def _start_copy(self) -> None:
        if (bookie := self._victim()) is not None:
            await self._second_starts.start_copy(bookie)

    async def _old_disk(self) -> None:
        """Copy a disk at any time, and replace the disk with the copy some time later.

        The process may run during the copy. A block-level copy is put back only if the process
        recorded the complete log: what it acknowledged after the last record is not protected (rule
        2.6).
        """
        bookie = self._victim()
        if bookie is None or not bookie.platter.is_formatted:
            return
        self._copy_count += 1
        label = f"copy {self._copy_count}" if self._rng.random() < 0.5 else ""
        old, wipes = bookie.platter.copied(label), bookie.wipes
        await asyncio.sleep(self._rng.random() * OLD_DISK_S)
        if not label and not await self._cluster.wait_until(
            lambda: bookie.has_recorded_all, OLD_DISK_WAIT_S
        ):
            return
        if bookie.wipes != wipes:
            return
        bookie.kill(power_off=self._rng.random() < 0.5)
        old.crash(self._rng)
        bookie.platter = old
        bookie.start_after(1.0 + self._rng.random() * 5)
