"""`quire topic create|list|show|grow|config|elect|trim|delete`: administration of topics.

Leaves access to brokers to `quire.operate.brokers`, finding topics to `quire.operate.topics`, the
decisions to the brokers, and the deletion of records to the partition's leader.

`trim` also skips lost ledgers: reads of a ledger that no bookie can return fail until the log
begins after it.
"""

import argparse
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker_layer.log.topic_config_table import NO_EFFECT
from broker_layer.peer import PeerAddress
from ledger_client.cluster_access import identity_of
from metadata.errors import NodeNotFoundError
from metadata.registry.cluster import open_cluster_store
from metadata.topics.partition import PartitionKey
from metadata.topics.partition_store import PartitionStore
from metadata.topics.topic import TopicId
from quire.cli.command_line import (
    host_and_port,
    metadata_address,
    require_consent,
)
from quire.cli.output import Output
from quire.errors import CommandError, ExitCode, UsageError
from quire.identity.client_file import NO_IDENTITY, ClientFile
from quire.operate.brokers import BrokerAccess, open_peers, open_registered, require
from quire.operate.fields import Json
from quire.operate.topics import (
    NO_ID,
    SEE_LIST,
    TIMEOUT_MS,
    TOPIC_RESOURCE,
    Place,
    ask_for_topic,
    leader_of,
    leaders_in,
    partition_rows,
    read_topics,
    replication_factors,
    require_topic,
    topic_metadata,
    topic_named,
    topic_settings,
)
from quire.operate.watch import registered_brokers
from quire.options import METADATA_VARIABLE

SET_STEP: Final = 0
DELETE_STEP: Final = 1
TOPIC_SOURCE: Final = 1

_Steps = IncrementalAlterConfigsRequest.AlterConfigsResource


async def create_topic(arguments: argparse.Namespace, output: Output) -> int:
    """Create a topic."""
    _require_once([name for name, _ in arguments.settings])
    async with open_brokers(arguments) as brokers:
        made = await ask_for_topic(
            brokers,
            arguments.topic,
            partitions=arguments.partitions or -1,
            replication=arguments.replication or -1,
            settings=arguments.settings,
        )
    require(made.error_code, made.error_message, try_next=_next(made.error_code, arguments.topic))
    output.record(
        {
            "topic": made.name,
            "id": str(made.topic_id),
            "partitions": made.num_partitions,
            "replication": made.replication_factor,
        }
    )
    return ExitCode.DONE


async def list_topic(arguments: argparse.Namespace, output: Output) -> int:
    """List topics."""
    async with open_brokers(arguments) as brokers:
        topics = await read_topics(brokers)
    with output.listing("topic", "partitions", "replication", "without_leader") as listing:
        for topic in sorted(topics, key=lambda each: each.name):
            if topic.is_internal and not arguments.internal:
                continue
            listing.add(
                {
                    "topic": topic.name,
                    "partitions": topic.partitions,
                    "replication": topic.replication,
                    "without_leader": topic.without_leader,
                    "internal": topic.is_internal,
                }
            )
    return ExitCode.DONE


async def show_topic(arguments: argparse.Namespace, output: Output) -> int:
    """Print one topic; ends with FINDINGS when a partition is not served or lacks replicas."""
    async with open_brokers(arguments) as brokers:
        topic = await topic_named(brokers, arguments.topic)
        settings, ineffective = await _settings(brokers, arguments.topic, is_all=False)
        rows = await partition_rows(topic, brokers)
        replication = await replication_factors(brokers, [topic])
    head: dict[str, Json] = {
        "topic": topic.name,
        "id": str(topic.topic_id),
        "internal": topic.is_internal,
        "replication": replication[topic.name or ""],
        "settings": settings,
        "settings_without_effect": ineffective,
    }
    columns = ("partition", "leader", "epoch", "replicas", "in_sync", "start", "end", "bytes")
    output.document(head | {"partitions": rows}, {"partitions": (*columns, "state")})
    if not output.as_json:
        _add_short_ledgers(rows, output)
    is_well = all(row["state"] == "served" for row in rows)
    return ExitCode.DONE if is_well else ExitCode.FINDINGS


def _add_short_ledgers(rows: Sequence[Mapping[str, Json]], output: Output) -> None:
    """Print the ended ledgers that lack copies, if there are any."""
    found = [
        {"partition": row["partition"], **short}
        for row in rows
        if isinstance(ledgers := row["short_ledgers"], list)
        for short in ledgers
        if isinstance(short, Mapping)
    ]
    if not found:
        return
    output.line("")
    output.table(found, "partition", "ledger", "entries", "bytes", "why")


async def grow_topic(arguments: argparse.Namespace, output: Output) -> int:
    """Add partitions to a topic."""
    asked = CreatePartitionsRequest.CreatePartitionsTopic(
        name=arguments.topic, count=arguments.partitions, assignments=None
    )
    request = CreatePartitionsRequest(topics=[asked], timeout_ms=TIMEOUT_MS, validate_only=False)
    async with open_brokers(arguments) as brokers:
        answer = await brokers.ask(request, CreatePartitionsResponse)
    (grown,) = answer.results
    try_next = _next(grown.error_code, arguments.topic)
    require(grown.error_code, grown.error_message, try_next=try_next)
    output.record({"topic": arguments.topic, "partitions": arguments.partitions})
    return ExitCode.DONE


async def config_topic(arguments: argparse.Namespace, output: Output) -> int:
    """Change settings if any are given, and print the settings."""
    _require_once([name for name, _ in arguments.settings] + arguments.unset)
    steps = [
        _Steps.AlterableConfig(name=name, config_operation=SET_STEP, value=value)
        for name, value in arguments.settings
    ]
    steps += [
        _Steps.AlterableConfig(name=name, config_operation=DELETE_STEP, value=None)
        for name in arguments.unset
    ]
    async with open_brokers(arguments) as brokers:
        if arguments.unset:
            known, _ = await _settings(brokers, arguments.topic, is_all=True)
            for name in arguments.unset:
                if name not in known:  # Kafka's protocol accepts it without effect
                    text = f"there is no topic setting {name!r}"
                    raise UsageError(text, try_next=f"quire topic config {arguments.topic} --all")
        if steps:
            resource = _Steps(
                resource_type=TOPIC_RESOURCE, resource_name=arguments.topic, configs=steps
            )
            answer = await brokers.ask(
                IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
                IncrementalAlterConfigsResponse,
            )
            (altered,) = answer.responses
            try_next = _next(altered.error_code, arguments.topic)
            require(altered.error_code, altered.error_message, try_next=try_next)
        settings, ineffective = await _settings(brokers, arguments.topic, is_all=arguments.all)
    if output.as_json:
        shown: dict[str, Json] = {"topic": arguments.topic, "settings": settings}
        output.record(shown | {"settings_without_effect": ineffective})
        return ExitCode.DONE
    with output.listing("setting", "value", "effect") as listing:
        for name, value in settings.items():
            effect = "none" if name in ineffective else ""
            listing.add({"setting": name, "value": value, "effect": effect})
    return ExitCode.DONE


async def elect_topic(arguments: argparse.Namespace, output: Output) -> int:
    """Elect leaders of some or all partitions of a topic."""
    if arguments.unclean:
        plan = f"lose acknowledged records of {arguments.topic!r} that no replica can return now"
        require_consent(arguments, plan)
    async with open_brokers(arguments) as brokers:
        topic = await topic_named(brokers, arguments.topic)
        partitions = arguments.partition or [each.partition_index for each in topic.partitions]
        row = ElectLeadersRequest.TopicPartitions(topic=arguments.topic, partitions=partitions)
        request = ElectLeadersRequest(
            election_type=int(arguments.unclean), topic_partitions=[row], timeout_ms=TIMEOUT_MS
        )
        answer = await brokers.ask(request, ElectLeadersResponse)
    is_well = True
    with output.listing("partition", "outcome", "why") as listing:
        for result in answer.replica_election_results:
            for each in result.partition_result:
                code = ErrorCode(each.error_code)
                is_well &= code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
                outcome = "elected" if code is ErrorCode.NONE else code.name.lower()
                listing.add(
                    {
                        "partition": each.partition_id,
                        "outcome": outcome.replace("_", " "),
                        "why": each.error_message,
                    }
                )
    return ExitCode.DONE if is_well else ExitCode.FINDINGS


async def delete_topic(arguments: argparse.Namespace, output: Output) -> int:
    """Delete a topic."""
    async with open_brokers(arguments) as brokers:
        topic = await topic_named(brokers, arguments.topic)
        plan = f"delete topic {arguments.topic!r} with {len(topic.partitions)} partitions"
        require_consent(arguments, plan)
        state = DeleteTopicsRequest.DeleteTopicState(name=arguments.topic, topic_id=NO_ID)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
        answer = await brokers.ask(request, DeleteTopicsResponse)
    (deleted,) = answer.responses
    try_next = _next(deleted.error_code, arguments.topic)
    require(deleted.error_code, deleted.error_message, try_next=try_next)
    output.record({"topic": arguments.topic, "deleted": True})
    return ExitCode.DONE


def _require_once(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is given more than once")


def _next(error_code: int, topic: str) -> str:
    """Return the command to run after a refusal; empty if the refusal's text is enough."""
    match error_code:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return SEE_LIST
        case ErrorCode.INVALID_CONFIG:
            return "quire topic config --help"
        case ErrorCode.INVALID_PARTITIONS | ErrorCode.TOPIC_ALREADY_EXISTS:
            return f"quire topic show {topic}"
        case _:
            return ""


async def _settings(
    brokers: BrokerAccess, name: str, *, is_all: bool
) -> tuple[dict[str, Json], list[Json]]:
    """Return a topic's own settings or all, and the names of those that have no effect."""
    found = await topic_settings(brokers, name)
    shown = [each for each in found if is_all or each.config_source == TOPIC_SOURCE]
    settings: dict[str, Json] = {each.name: each.value for each in shown}
    return settings, [
        each.name for each in shown if (each.documentation or "").startswith(NO_EFFECT)
    ]


CLIENT_NAME = "quire-topic"


@asynccontextmanager
async def open_brokers(arguments: argparse.Namespace) -> AsyncIterator[BrokerAccess]:
    """Find the brokers; close the connections to them at the end of the block.

    Raises NoBrokerError, MetadataError, UsageError, SecurityError.
    """
    rng, identity = Random(os.urandom(16)), _identity(arguments)
    opening: AbstractAsyncContextManager[BrokerAccess]
    if arguments.bootstrap:
        host, port = host_and_port(arguments.bootstrap, try_next="--bootstrap 127.0.0.1:9092")
        opening = open_peers(CLIENT_NAME, (PeerAddress(0, host, port),), (), identity, rng)
    else:
        store = await open_cluster_store(metadata_address(arguments), rng=rng)
        try:
            registrations = await registered_brokers(store, rng)
        finally:
            await store.aclose()
        listener = arguments.listener
        opening = open_registered(CLIENT_NAME, registrations, identity, rng, listener=listener)
    async with opening as brokers:
        yield brokers


def _identity(arguments: argparse.Namespace) -> ClientFile:
    """Return the client's file of the cluster, which a broker's address makes optional."""
    is_given = arguments.metadata or os.environ.get(METADATA_VARIABLE)
    if arguments.bootstrap and not is_given:
        return NO_IDENTITY
    return identity_of(metadata_address(arguments))


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
