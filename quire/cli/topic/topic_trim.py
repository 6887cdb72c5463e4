"""`quire topic trim`: deletes the oldest records of a partition.

Leaves access to brokers to `topic_access`, and the deletion to the partition's leader.

This also skips lost ledgers: reads of a ledger that no bookie can return fail until the log begins
after it.
"""

import argparse
import os
from random import Random

from broker_layer.kafka.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from metadata.errors import NodeNotFoundError
from metadata.registry.cluster import open_cluster_store
from metadata.topics.partition import PartitionKey
from metadata.topics.partition_store import PartitionStore
from metadata.topics.topic import TopicId
from quire.cli.command_line import metadata_address, require_consent
from quire.cli.output import Output
from quire.cli.topic.topic_access import open_brokers
from quire.errors import CommandError, ExitCode, UsageError
from quire.operate.brokers import require
from quire.operate.topics import (
    TIMEOUT_MS,
    Place,
    leader_of,
    leaders_in,
    require_topic,
    topic_metadata,
)


class LedgerNotListedError(CommandError):
    """The partition does not list the ledger."""

    code = ExitCode.NOT_FOUND


async def trim_topic(arguments: argparse.Namespace, output: Output) -> int:
    """Make a partition begin at an offset, or after one of its ledgers."""
    name, partition = arguments.topic, arguments.partition
    async with open_brokers(arguments) as brokers:
        response = await topic_metadata(brokers, [name])
        topic_id = require_topic(response.topics[0], name).topic_id
        if partition not in (each.partition_index for each in response.topics[0].partitions):
            text = f"{name} has no partition {partition}"
            raise UsageError(text, try_next=f"quire topic show {name}")
        leader = leader_of(leaders_in(response), Place(name, partition))
        offset = arguments.before
        if offset is None:
            offset = await _end_of(arguments, PartitionKey(TopicId(topic_id.bytes), partition))
        plan = f"delete the records of {name}-{partition} below offset {offset}"
        require_consent(arguments, plan)
        asked = DeleteRecordsRequest.DeleteRecordsTopic
        row = asked.DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[asked(name=name, partitions=[row])], timeout_ms=TIMEOUT_MS
        )
        answer = await brokers.ask_one(leader, request, DeleteRecordsResponse)
    (deleted,) = answer.topics[0].partitions
    require(deleted.error_code, try_next=f"quire topic show {name}")
    output.record({"topic": name, "partition": partition, "start": deleted.low_watermark})
    return ExitCode.DONE


async def _end_of(arguments: argparse.Namespace, key: PartitionKey) -> int:
    """Return the offset after a ledger of a partition."""
    ledger_id, rng = arguments.ledger, Random(os.urandom(16))
    store = await open_cluster_store(metadata_address(arguments), rng=rng)
    try:
        partitions = PartitionStore(store, rng)
        record, _ = await partitions.get(key)
        segments = await partitions.segments(key, record)
    except NodeNotFoundError:
        segments = ()
    finally:
        await store.aclose()
    for segment in segments:
        if segment.ledger_id == ledger_id:
            if segment.end_offset is None:
                text = f"ledger {ledger_id} is the newest of the partition and has no end yet"
                raise CommandError(text, try_next="quire topic elect --help   (--unclean)")
            return segment.end_offset
    text = f"{arguments.topic}-{key.partition} lists no ledger {ledger_id}"
    raise LedgerNotListedError(text, try_next="find the ledger's id in the broker's log")
