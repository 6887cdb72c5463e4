"""Run of one seed with topics: faults while promises are checked, then healing and a final read.

Leaves the campaign over many seeds to `tests.simulation.topics.__main__`.

Invariant: the same seed and code give the same history, for any hash seed of the process.
Source: assurance design, "Deterministic simulation".
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final
from unittest.mock import patch

from broker_layer import broker_process
from broker_layer.control import partition_opener
from broker_layer.control.control_config import ControlConfig
from broker_layer.groups.group_host import GroupHost
from broker_layer.groups.values import GroupsConfig
from broker_layer.kafka.messages import CreateTopicsRequest, CreateTopicsResponse
from broker_layer.kafka.versions import ApiKey
from broker_layer.log.state_log import OpenDurableLog, StateLog
from broker_layer.log.topic_configs import LogConfig, TopicDefaults, log_config
from broker_layer.options import BrokerOptions
from tests.simulation.checkers.stored_metadata import watched_recoveries
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.simulation.network import HOST
from tests.simulation.repair import check_removal, start_repair
from tests.simulation.run import Result, forget, run_to_end, undisturbed
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.classic_members import share_classically
from tests.simulation.topics.committing import audit_offsets, commit_offsets
from tests.simulation.topics.consumer_members import share
from tests.simulation.topics.deleting import recreate, trim
from tests.simulation.topics.ending import Leaderships, check_leftovers, read_everything
from tests.simulation.topics.kafka_client import KafkaClient, Unanswered
from tests.simulation.topics.producing import produce, produce_carelessly
from tests.simulation.topics.reading import read
from tests.simulation.topics.topic_cluster import TopicCluster
from tests.simulation.topics.topic_faults import MidwayFaults, TopicFaults
from tests.simulation.topics.topic_plan import TopicsPlan, make_topics_plan
from tests.simulation.topics.transacting import transact

START_S_MAX: Final = 60.0
LOAD_DELAY_S_MAX: Final = 1.0
FINISH_S_MAX: Final = 90.0
UNTIL_S: Final = 10_000.0
LOOK_EVERY_S: Final = 0.5
SWEEP_INTERVAL_S: Final = 8.0
MESSAGES_MAX: Final = 6_000
"""Number of messages after which a run goes to its healing."""
CREATE_TOPICS_VERSION: Final = 4
TOPIC_EXISTS: Final = 36


def run_topics_seed(seed: int, *, trace: bool = False) -> Result:
    """Run one seed to its end."""
    plan = make_topics_plan(seed)
    with undisturbed():
        loop = SimulationLoop(seed)
        model = Model(loop, trace=trace)
        model.note("plan", repr(plan))
        run = _Run(loop, plan, model)
        with _hastened(plan), _watched(run), run.midway.watched():
            run_to_end(loop, model, run.main(), UNTIL_S, trace=trace)
        result = run.result(loop.now_s)
        del run  # its contents are discarded with the loop
        forget(loop)
    return result


@contextmanager
def _hastened(plan: TopicsPlan) -> Iterator[None]:
    """Make brokers do within seconds what they do within minutes, and fill small ledgers."""
    original, original_groups = broker_process.control_config, broker_process.groups_config

    def config(options: BrokerOptions) -> ControlConfig:
        return replace(
            original(options),
            retention_interval_s=plan.retention_interval_s,
            rebalance_interval_s=plan.rebalance_interval_s,
            settled_s=2.0,
            assembly_s=0.5,
            sweep_interval_s=SWEEP_INTERVAL_S,
        )

    def lively(options: BrokerOptions) -> GroupsConfig:
        return replace(
            original_groups(options),
            group_session_timeout_min_ms=500,
            group_initial_rebalance_delay_ms=300,
            new_member_join_timeout_ms=8_000,
            consumer_session_timeout_ms=plan.groups.session_timeout_ms,
        )

    def small(stored: Mapping[str, str], defaults: TopicDefaults) -> LogConfig:
        found = log_config(stored, defaults)
        size = plan.state_segment_bytes if found.is_compacted else plan.segment_bytes
        return replace(found, segment_bytes=size)

    with (
        patch.object(broker_process, "control_config", config),
        patch.object(broker_process, "groups_config", lively),
        patch.object(broker_process, "_warm_up", _warm),
        patch.object(partition_opener, "log_config", small),
    ):
        yield


@contextmanager
def _watched(run: "_Run") -> Iterator[None]:
    """Record every coordinator of groups that has loaded a partition, some as late as of a large
    log.
    """
    original = GroupHost.load

    async def load(host: GroupHost, open_log: OpenDurableLog) -> None:
        await asyncio.sleep(run.load_delay_s())
        await original(host, open_log)
        log = host._log
        assert isinstance(log, StateLog)
        run.note_coordinator(host.number, log.leader_epoch)

    with patch.object(GroupHost, "load", load):
        yield


async def _warm() -> None:
    """Skip the warm-up of the codecs: they are compiled at their first use, in no virtual time."""


class _Run:
    def __init__(self, loop: SimulationLoop, plan: TopicsPlan, model: Model) -> None:
        self._loop = loop
        self._plan = plan
        self._model = model
        self._cluster: TopicCluster | None = None
        self._faults: TopicFaults | None = None
        self.midway = MidwayFaults(plan.seed, plan.midway_share)
        self._load_rng = random.Random(f"loads {plan.seed}")

    def load_delay_s(self) -> float:
        """Return how much longer a coordinator takes to load the next partition."""
        return self._load_rng.choice((0.0, 0.0, LOAD_DELAY_S_MAX * self._load_rng.random()))

    def note_coordinator(self, partition: int, epoch: int) -> None:
        """Record that the broker that runs now serves the groups of a partition."""
        if self._cluster is not None:
            self._cluster.note_coordinator(HOST.get(), partition, epoch)

    def result(self, now_s: float) -> Result:
        """Return the results of the run."""
        cluster, model = self._cluster, self._model
        return Result(
            seed=self._plan.seed,
            violations=tuple(str(violation) for violation in model.violations),
            messages=model.message_count,
            metadata_messages=0 if cluster is None else cluster.store_faults.message_count,
            simulated_s=now_s,
            entries=0 if cluster is None else cluster.history.acknowledged_count,
            ledgers=len(model.ledgers),
            trace_hash=model.trace_hash,
            faults={} if self._faults is None else self._faults.counts,
            errors=dict(model.error_counts),
            trace=tuple(model.trace or ()),
        )

    async def main(self) -> None:
        cluster = self._cluster = TopicCluster(self._loop, self._plan, self._model)
        if not await self._start(cluster):
            return
        self._add_users(cluster)
        for user in cluster.users:
            user.start()
        faults = self._faults = TopicFaults(cluster)
        faults.start(cluster.topics_plan.fault_every_s)
        self.midway.begin(faults)
        with watched_recoveries(cluster.writer_nodes):
            await self._suffer(Leaderships(cluster))
        self._model.note("phase", "healing")
        self.midway.heal()
        await faults.heal()
        cluster.store_faults.odds = type(cluster.store_faults.odds)()
        cluster.network.odds = type(cluster.network.odds)()
        cluster.is_over = True
        if self._model.violations:
            return
        users = cluster.users
        if not await cluster.wait_until(lambda: not any(u.is_running for u in users), FINISH_S_MAX):
            stuck = [node.host for node in users if node.is_running]
            self._model.report("liveness", f"{', '.join(stuck)} cannot finish")
            return
        await read_everything(cluster, "last reader")
        if self._model.violations:
            return
        for broker in cluster.brokers:
            broker.kill(power_off=False)
            broker.start()
        await read_everything(cluster, "reader after restart")
        await check_leftovers(cluster)
        if not self._model.violations:
            without = partial(read_everything, cluster, "reader without a bookie")
            await check_removal(cluster, without)

    async def _start(self, cluster: TopicCluster) -> bool:
        bookies, brokers = cluster.bookies, cluster.brokers
        for bookie in bookies:
            bookie.start()
        await cluster.wait_until(lambda: all(node.is_serving for node in bookies), START_S_MAX)
        for broker in brokers:
            broker.start()
        if not await cluster.wait_until(lambda: all(b.is_serving for b in brokers), START_S_MAX):
            self._model.report("liveness", "the brokers did not start")
            return False
        if not await self._create_topics(cluster):
            self._model.report("liveness", "the topics were not created")
            return False
        await start_repair(cluster)
        return True

    async def _create_topics(self, cluster: TopicCluster) -> bool:
        client = KafkaClient(cluster, "creator", random.Random(0))
        kind, plan = CreateTopicsRequest.CreatableTopic, cluster.topics_plan
        topics = [*plan.topics, *([plan.group_topic] if plan.groups.has_members else [])]
        request = CreateTopicsRequest(
            topics=[
                kind(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=plan.replicas,
                    assignments=[],
                    configs=[
                        kind.CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.configs
                    ],
                )
                for topic in topics
            ],
            timeout_ms=5_000,
            validate_only=False,
        )
        until_s = cluster.loop.now_s + START_S_MAX
        while cluster.loop.now_s < until_s:
            try:
                broker = client.rng.randrange(len(cluster.brokers))
                response = await client.ask(
                    broker, ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, request
                )
                assert isinstance(response, CreateTopicsResponse)
                errors = [topic.error_code for topic in response.topics]
                self._model.note("create", str([topic.error_message for topic in response.topics]))
                if all(code in (0, TOPIC_EXISTS) for code in errors):
                    client.close()
                    return True
            except Unanswered:
                pass
            await client.pause()
        return False

    def _add_users(self, cluster: TopicCluster) -> None:
        work, groups = cluster.topics_plan.work, cluster.topics_plan.groups
        has_offsets = work.committers + work.transactors + groups.has_members
        for kind, count, run in (
            ("producer", work.producers, produce),
            ("reader", work.readers, read),
            ("transactor", work.transactors, transact),
            ("committer", work.committers, commit_offsets),
            ("member", groups.classic_members, share_classically),
            ("worker", groups.consumer_members, share),
            ("careless", work.careless_producers, produce_carelessly),
            ("trimmer", work.trimmers, trim),
            ("recreator", work.recreators, recreate),
            ("auditor", min(1, has_offsets), audit_offsets),
        ):
            for number in range(count):
                cluster.users.append(KafkaNode(cluster, f"{kind}-{number}", run))

    async def _suffer(self, leaderships: Leaderships) -> None:
        """Wait for the faults until there are enough of them or an invariant is violated."""
        until_s = self._loop.now_s + self._plan.base.duration_s
        while self._loop.now_s < until_s:
            await asyncio.sleep(LOOK_EVERY_S)
            leaderships.look()
            if self._model.violations or self._model.message_count > MESSAGES_MAX:
                return
