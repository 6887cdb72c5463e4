"""Checks after a run of topics: logs are as promised, and nothing is left of deleted topics."""

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_layer.log.ledger_list import EPOCH_METADATA, PARTITION_METADATA
from metadata.errors import NodeNotFoundError, TopicNotFoundError
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic_store import TopicStore
from tests.simulation.topics.committing import ask_offset
from tests.simulation.topics.history import GroupPlace, History, Outcome, Place, Seen
from tests.simulation.topics.kafka_client import KafkaClient, Refused, Unanswered
from tests.simulation.topics.reading import EARLIEST, LATEST, LogReader
from tests.simulation.topics.topic_cluster import TopicCluster

if TYPE_CHECKING:
    from broker_layer.log.topic_log import TopicLog


class Leaderships:
    """Check that no epoch of a partition has two leaderships.

    Invariant checked: after the end of a leader's log, the next one has another epoch (KIP-101);
    otherwise the records of the two could not be distinguished.
    """

    def __init__(self, cluster: TopicCluster) -> None:
        self._cluster = cluster
        self._seen: dict[tuple[str, int, int], TopicLog] = {}

    def look(self) -> None:
        """Compare the logs held now with earlier ones."""
        for broker in self._cluster.brokers:
            for log in broker.logs():
                place = log.topic, log.key.partition
                known = self._seen.setdefault((*place, log.leader_epoch), log)
                if known is not log:
                    text = f"epoch {log.leader_epoch} was led before it began on {broker.host}"
                    self._cluster.history.report("epochs", place, text)


LEFTOVERS_S: Final = 60.0
LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Listed:
    """Contents of a partition's list."""

    leader_epoch: int
    ledger_ids: tuple[int, ...]
    needed: tuple[int, ...]
    """Ledgers that are not to be deleted."""


async def check_leftovers(cluster: TopicCluster) -> None:
    """Wait until only listed ledgers are left.

    Check after a run that nothing is left of deleted topics.

    Invariants checked: no ledger of a deleted topic is left, and no ledger of an earlier leader
    that the partition's list does not name (left over). Every ledger in a list exists (missing).
    Source: topics design, "The mapping"; `broker_layer/control/ledger_erasing.py`.
    """
    store = MemoryMetadataStore(cluster.metadata)
    until_s = cluster.loop.now_s + LEFTOVERS_S
    try:
        while True:
            listed = await _listed(store)
            left = _left(cluster, listed)
            if not left or cluster.loop.now_s > until_s:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        if left:
            cluster.model.report("left over", "; ".join(left))
        missing = [n for each in listed.values() for n in each.needed if not _exists(cluster, n)]
        now = await _listed(store)  # retention may have moved a start in the meantime
        for partition, each in now.items():
            gone = [ledger_id for ledger_id in each.needed if ledger_id in missing]
            if gone:
                cluster.model.report("missing", f"{partition} lists ledgers {gone}")
    finally:
        await store.aclose()


def _exists(cluster: TopicCluster, ledger_id: int) -> bool:
    return cluster.model.ledger(ledger_id).metadata is not None


async def _listed(store: MemoryMetadataStore) -> dict[str, _Listed]:
    """Return the lists of all partitions of existing topics, by the partition's name in ledgers."""
    rng = random.Random(0)
    topics, partitions = TopicStore(store, rng), PartitionStore(store, rng)
    found: dict[str, _Listed] = {}
    for name in await topics.names():
        try:
            record, _ = await topics.get(name, fresh=True)
        except TopicNotFoundError:
            continue
        for partition in range(0 if record.is_deleted else len(record.partitions)):
            key = PartitionKey(record.topic_id, partition)
            try:
                held, _ = await partitions.get(key)
                segments = await partitions.segments(key, held)
            except NodeNotFoundError:
                continue
            start = held.log_start_offset
            kept = [segment for segment in segments if not segment.is_below(start)]
            needed = tuple(
                segment.ledger_id for segment in segments[-1:] if record.is_internal
            ) or tuple(segment.ledger_id for segment in kept)
            found[f"{key.topic_id.hex()}/{partition}"] = _Listed(
                held.leader_epoch, tuple(segment.ledger_id for segment in segments), needed
            )
    return found


def _left(cluster: TopicCluster, listed: dict[str, _Listed]) -> list[str]:
    left = []
    for ledger_id in cluster.ledger_ids():
        metadata = cluster.model.ledger(ledger_id).metadata
        assert metadata is not None
        partition = str(metadata.custom.get(PARTITION_METADATA))
        epoch = int(metadata.custom.get(EPOCH_METADATA, -1))
        there = listed.get(partition)
        if there is None:
            left.append(f"ledger {ledger_id} of {partition}, which is deleted")
        elif epoch < there.leader_epoch and ledger_id not in there.ledger_ids:
            left.append(f"ledger {ledger_id} of {partition}, which does not list it")
    return left


PATIENCE_S: Final = 90.0
"""Time from the end of all faults until all partitions are led and all transactions decided."""
POLL_BYTES: Final = 200_000


async def read_everything(cluster: TopicCluster, who: str) -> None:
    """Read all partitions at both isolation levels, and compare with the promises."""
    client = KafkaClient(cluster, who, random.Random(f"{who} {cluster.topics_plan.seed}"))
    visible: dict[bytes, None] = {}
    try:
        for place in cluster.partitions():
            seen = await read_log(cluster, client, who, place, committed=False)
            if seen is None:
                return
            check_log(cluster.history, place, seen)
            decided = await read_log(cluster, client, who, place, committed=True)
            if decided is None:
                return
            _check_committed(cluster.history, place, decided, visible)
        for group in cluster.offsets.groups:
            await _read_offset(cluster, client, who, group)
    finally:
        client.close()
    _check_transactions(cluster.history, visible)


async def read_log(
    cluster: TopicCluster, client: KafkaClient, who: str, place: Place, *, committed: bool
) -> list[Seen] | None:
    """Read a log from its start to its end, after its end is stable."""
    reader = LogReader(cluster.history, client, who, place, committed=committed)
    until_s = cluster.loop.now_s + PATIENCE_S
    seen: list[Seen] = []
    is_begun, end = False, 0
    while True:
        try:
            if not is_begun:
                reader.position = await reader.ask_offset(EARLIEST)
                end = await reader.ask_offset(LATEST)
                is_begun = True
            if reader.position >= end:
                return seen
            shown = await reader.poll(wait_ms=200, bytes_max=POLL_BYTES)
            seen += shown
        except (Unanswered, Refused) as error:
            client.doubt_leader(*place)
            await client.pause()
            why = str(error)
        else:
            why = f"it is stable up to {reader.last_stable_offset} of {end}"
        if cluster.loop.now_s > until_s:
            kind = "undecided" if is_begun else "liveness"
            cluster.history.report(kind, place, f"{who} cannot read it to its end: {why}")
            return None


async def _read_offset(
    cluster: TopicCluster, client: KafkaClient, who: str, group: GroupPlace
) -> None:
    until_s = cluster.loop.now_s + PATIENCE_S
    while True:
        try:
            await ask_offset(client, cluster, who, group)
        except (Unanswered, Refused) as error:
            await client.pause()
            if cluster.loop.now_s > until_s:
                cluster.model.report("undecided", f"{who} is not told of {group}: {error}")
                return
        else:
            return


def check_log(history: History, place: Place, seen: list[Seen]) -> None:
    log = history.log(place)
    start = log.start  # its current start: retention continued while the log was read
    read = {each.offset: each for each in seen}
    for offset, record in log.acknowledged.items():
        found = read.get(offset)
        if offset >= start and (found is None or found.record is not record):
            history.report("lost", place, f"{record.value!r} was acknowledged at {offset}")
            return
    for value, offset in log.places.items():
        if offset >= start and offset not in read:
            history.report("vanished", place, f"{value!r} was read at {offset}")
            return
    _check_stored(history, place, seen)
    last: dict[str, int] = {}
    epoch = -1
    for each in seen:
        if each.leader_epoch < epoch:
            text = f"{each.offset} is of epoch {each.leader_epoch}, behind one of {epoch}"
            history.report("epochs", place, text)
            return
        epoch, record = each.leader_epoch, each.record
        if record.is_unique and record.number <= last.get(record.producer, 0):
            text = f"{record.value!r} at {each.offset} comes behind a later one of its producer"
            history.report("reordered", place, text)
            return
        last[record.producer] = record.number


def _check_stored(history: History, place: Place, seen: list[Seen]) -> None:
    """Check that a record stored once is lost only where another leader began before it."""
    log = history.log(place)
    read = {(each.offset, each.record.value): each for each in seen}
    for stored in log.stored:
        if stored.offset < log.start or (stored.offset, stored.record.value) in read:
            continue
        behind = next((each for each in seen if each.offset >= stored.offset), None)
        epoch = max(log.by_epoch) if behind is None else behind.leader_epoch
        if epoch <= stored.epoch:
            text = f"{stored.record.value!r} was stored at {stored.offset} in {stored.epoch}"
            history.report("lost", place, f"{text}, and {epoch} goes on there")
            return


def _check_committed(
    history: History, place: Place, seen: list[Seen], visible: dict[bytes, None]
) -> None:
    """Record what readers of committed records see, and what they need not see any more."""
    for each in seen:
        visible[each.record.value] = None
    log = history.log(place)
    for record in history.records.values():
        if record.place != place or not record.is_acknowledged:
            continue
        if record.offset is not None and record.offset < log.start:
            visible[record.value] = None  # deleted by retention
        elif record.offset is None and log.start:
            continue  # it may have been in a part that retention deleted
        elif record.transaction is None and record.value not in visible:
            history.report("lost", place, f"readers of committed records miss {record.value!r}")
            return


def _check_transactions(history: History, visible: dict[bytes, None]) -> None:
    for transaction in history.transactions:
        told = [record for record in transaction.records if record.is_acknowledged]
        kept = [record for record in told if history.log(record.place).start == 0]
        shown = [record for record in kept if record.value in visible]
        is_committed = transaction.outcome is Outcome.COMMITTED or bool(transaction.seen)
        is_aborted = transaction.outcome in (Outcome.OPEN, Outcome.ABORTED)
        if is_aborted and shown:
            text = f"{transaction.name} was aborted, and {shown[0].value!r} is visible"
            history.report("atomic", shown[0].place, text)
        elif (is_committed or shown) and len(shown) < len(kept):
            missing = next(record for record in kept if record.value not in visible)
            text = f"{transaction.name} was committed, and {missing.value!r} is not visible"
            history.report("atomic", missing.place, text)
