"""`quire topic create|list|show|grow|config|elect|trim|delete|produce|consume`: topics, and records
between pipes and topics.

`trim` also skips lost ledgers: reads of a ledger that no bookie can return fail until the log
begins after it.

Invariant: a topic is created only with --create, never because of a mistyped name.

Format: a line is a record's value without its newline. With -o json a record is one line,
`{"partition": 0, "offset": 5, "timestamp_ms": 1, "key": null, "value": "text"}`, or `"key_base64"`
and `"value_base64"` if they are not UTF-8.
"""

import argparse
import asyncio
import json
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from broker_layer.coordinator_partitions import INTERNAL_TOPICS
from broker_layer.kafka.client_codecs import use_own_codecs
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
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import identity_of, open_cluster
from metadata.errors import InvalidTopicNameError, MetadataError, NodeNotFoundError
from metadata.ids import BookieId
from metadata.registry.cluster import open_cluster_store
from metadata.registry.registration import BookieRegistration
from metadata.topics.partition import PartitionKey
from metadata.topics.partition_store import PartitionStore
from metadata.topics.topic import TopicId, check_topic_name
from quire.cli.command_line import (
    host_and_port,
    metadata_address,
    require_consent,
)
from quire.cli.output import Output
from quire.errors import CommandError, ExitCode, UsageError
from quire.identity.client_file import NO_IDENTITY, ClientFile, kafka_settings
from quire.identity.errors import SecurityError
from quire.operate.as_json import data_as_json
from quire.operate.brokers import CHECK_LOGS, BrokerAccess, open_peers, open_registered, require
from quire.operate.fields import Json, describe_time
from quire.operate.findings import names
from quire.operate.topics import (
    NO_ID,
    SEE_LIST,
    TIMEOUT_MS,
    TOPIC_RESOURCE,
    Place,
    ask_for_topic,
    leader_of,
    leaders_in,
    make_if_missing,
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
from quire.server.overriding import override

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
        for topic in sorted(topics, key=lambda row: row.name):
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
        _add_future_records(topic.name or "", rows, output)
    is_well = all(row["state"] == "served" for row in rows)
    return ExitCode.DONE if is_well else ExitCode.FINDINGS


def _add_short_ledgers(rows: Sequence[Mapping[str, Json]], output: Output) -> None:
    """Print the ended ledgers that lack copies, if there are any."""
    listed = [
        {"partition": row["partition"], **short}
        for row in rows
        if isinstance(ledgers := row["short_ledgers"], list)
        for short in ledgers
        if isinstance(short, Mapping)
    ]
    if not listed:
        return
    output.line("")
    output.table(listed, "partition", "ledger", "entries", "bytes", "why")


def _add_future_records(topic: str, rows: Sequence[Mapping[str, Json]], output: Output) -> None:
    """Print where records with times in the future hold up retention, if there are any."""
    for row in rows:
        offset, until_ms = row["future_offset"], row["future_until_ms"]
        if not isinstance(until_ms, int):
            continue
        what = f"partition {row['partition']}: times in the future keep all records from offset"
        trim = (
            f"quire topic trim {topic} --partition {row['partition']} --before {row['end']} --yes"
        )
        output.line("")
        output.line(f"{what} {offset} on until {describe_time(until_ms)}; to remove them: {trim}")


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
        partitions = arguments.partition or [row.partition_index for row in topic.partitions]
        row = ElectLeadersRequest.TopicPartitions(topic=arguments.topic, partitions=partitions)
        request = ElectLeadersRequest(
            election_type=int(arguments.unclean), topic_partitions=[row], timeout_ms=TIMEOUT_MS
        )
        answer = await brokers.ask(request, ElectLeadersResponse)
    is_well = True
    with output.listing("partition", "outcome", "why") as listing:
        for result in answer.replica_election_results:
            for partition_result in result.partition_result:
                code = ErrorCode(partition_result.error_code)
                is_well &= code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
                outcome = "elected" if code is ErrorCode.NONE else code.name.lower()
                listing.add(
                    {
                        "partition": partition_result.partition_id,
                        "outcome": outcome.replace("_", " "),
                        "why": partition_result.error_message,
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
    results = await topic_settings(brokers, name)
    shown = [row for row in results if is_all or row.config_source == TOPIC_SOURCE]
    settings: dict[str, Json] = {row.name: row.value for row in shown}
    return settings, [row.name for row in shown if (row.documentation or "").startswith(NO_EFFECT)]


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
        if partition not in (row.partition_index for row in response.topics[0].partitions):
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


POLL_MS: Final = 500
NULL_VALUE: Final = b"null"
"""The line of a record without a value, as Kafka's console consumer prints it."""
REQUEST_BYTES_MAX: Final = 9 * 1024 * 1024
"""Maximum request size, above the largest batch that any topic may allow: brokers check sizes by
the topic's settings."""
SEND_TIMEOUT_S: Final = 120.0
UNANSWERED_MAX: Final = 100_000
"""Maximum number of unacknowledged records; at the limit, reading the input waits."""


SEE_HEALTH: Final = "quire cluster health"


class ReceivedRecord(Protocol):
    """A record as kafka-python returns it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class TopicDataError(CommandError):
    """Records could not be moved: they were refused, or the brokers did not respond in time."""

    def __init__(self, text: str, error: KafkaError, try_next: str = CHECK_LOGS) -> None:
        is_retriable = bool(error.retriable)
        super().__init__(text, try_next=try_next if is_retriable else "")
        self.code = ExitCode.UNAVAILABLE if is_retriable else ExitCode.REFUSED


def produce_topic(arguments: argparse.Namespace, output: Output) -> int:
    """Append the lines of the standard input."""
    if arguments.key_separator == "":
        raise UsageError("--key-separator is empty", try_next="quire topic produce --help")
    _check_name(arguments.topic)
    try_next = f"quire topic create {arguments.topic}   (or add --create)"
    settings, known = asyncio.run(_found(arguments, try_next, creates=arguments.create))
    if arguments.partition is not None:
        _require_partitions(arguments.topic, [arguments.partition], known)
    acks = arguments.acks if arguments.acks == "all" else int(arguments.acks)
    producer = KafkaProducer(
        **settings,
        acks=acks,
        allow_auto_create_topics=False,
        enable_idempotence=acks == "all",
        max_request_size=REQUEST_BYTES_MAX,
    )
    acknowledged = 0
    unanswered: deque[Any] = deque()
    watch = MissingAnswers(unanswered, lambda: reason_of_silence(arguments), output.remark)
    watch.start()
    try:
        for key, value in _lines(arguments.key_separator):
            unanswered.append(
                producer.send(arguments.topic, value, key=key, partition=arguments.partition)
            )
            while unanswered and (unanswered[0].is_done or len(unanswered) > UNANSWERED_MAX):
                unanswered[0].get(timeout=SEND_TIMEOUT_S)
                unanswered.popleft()
                acknowledged += 1
        producer.flush(timeout=SEND_TIMEOUT_S)
        while unanswered:
            unanswered[0].get(timeout=SEND_TIMEOUT_S)
            unanswered.popleft()
            acknowledged += 1
    except KafkaError as error:
        text = f"writing failed: {acknowledged} records were acknowledged, and perhaps more: "
        try_next = SEE_HEALTH if watch.reason else CHECK_LOGS
        raise TopicDataError(f"{text}{watch.reason or error}", error, try_next) from error
    finally:
        watch.end()
        producer.close(timeout=5)
    output.record({"topic": arguments.topic, "records": acknowledged})
    return ExitCode.DONE


def consume_topic(arguments: argparse.Namespace, output: Output) -> int:
    """Print records of some or all partitions."""
    _check_name(arguments.topic)
    settings, known = asyncio.run(_found(arguments, SEE_LIST))
    wanted = known if arguments.partition is None else arguments.partition
    _require_partitions(arguments.topic, wanted, known)
    partitions = [TopicPartition(arguments.topic, number) for number in wanted]
    use_own_codecs()
    consumer = KafkaConsumer(
        **settings,
        enable_auto_commit=False,
        isolation_level="read_committed" if arguments.committed else "read_uncommitted",
        allow_auto_create_topics=False,
        auto_offset_reset="earliest",
    )
    try:
        consumer.assign(partitions)
        least = _seek(consumer, partitions, arguments.start, output)
        ends = None if arguments.follow else consumer.end_offsets(partitions)
        left: int | None = arguments.count
        while left != 0 and not _is_done(consumer, ends):
            for records in consumer.poll(timeout_ms=POLL_MS, max_records=left).values():
                shown = [record for record in records if record.offset >= least][:left]
                left = None if left is None else left - len(shown)
                _print(shown, output)
            sys.stdout.buffer.flush()
    except KafkaError as error:
        raise TopicDataError(str(error), error) from error
    finally:
        consumer.close(autocommit=False)
    return ExitCode.DONE


def _check_name(topic: str) -> None:
    try:
        check_topic_name(topic)
    except InvalidTopicNameError as error:
        raise UsageError(str(error)) from error
    if topic in INTERNAL_TOPICS:
        text = f"{topic} holds the coordinators' state and can be neither read nor written"
        raise CommandError(text, try_next=SEE_LIST)


async def _found(
    arguments: argparse.Namespace, try_next: str, *, creates: bool = False
) -> tuple[dict[str, Any], list[int]]:
    """Return how clients of Kafka connect, and the topic's partitions. Raises TopicRefusedError."""
    async with open_brokers(arguments) as brokers:
        if creates:
            await make_if_missing(brokers, arguments.topic)
        topic = await topic_named(brokers, arguments.topic, try_next=try_next)
        settings = {"bootstrap_servers": brokers.bootstrap, **kafka_settings(brokers.identity)}
        return settings, sorted(partition.partition_index for partition in topic.partitions)


def _lines(separator: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        value = line.removesuffix(b"\n")
        if separator is None:
            yield None, value
            continue
        key, cut, rest = value.partition(separator.encode())
        if not cut:
            raise UsageError(
                f"line {number} has no {separator!r} after its key; the lines before it were sent",
                try_next="--key-separator with the text that ends the keys",
            )
        yield key, rest


def _require_partitions(topic: str, wanted: Sequence[int], known: Container[int]) -> None:
    missing = [number for number in wanted if number not in known]
    if missing:
        raise UsageError(
            f"{topic} has no partition {missing[0]}", try_next=f"quire topic show {topic}"
        )


def _seek(
    consumer: KafkaConsumer, partitions: Sequence[TopicPartition], start: str, output: Output
) -> int:
    """Go to where reading begins; return the least offset of the records to print. A partition that
    ends before the start is read from its end on, and its records below the start are left out.
    """
    if start == "earliest":
        consumer.seek_to_beginning(*partitions)
    elif start == "latest":
        consumer.seek_to_end(*partitions)
    elif start.isdecimal():
        starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        for part in partitions:
            offset, place = max(int(start), starts[part]), f"{part.topic}-{part.partition}"
            if offset > int(start):
                output.remark(f"{place} begins at {offset}: earlier records are deleted")
            if offset > ends[part]:
                output.remark(f"{place} ends at {ends[part]}: it has no record {offset} yet")
            consumer.seek(part, min(offset, ends[part]))
        return int(start)
    else:
        raise UsageError(f"--from must be earliest, latest or an offset, not {start!r}")
    return 0


def _is_done(consumer: KafkaConsumer, ends: dict[TopicPartition, int] | None) -> bool:
    if ends is None:
        return False
    return all(consumer.position(partition) >= end for partition, end in ends.items())


def _print(records: Sequence[ReceivedRecord], output: Output) -> None:
    for record in records:
        if output.as_json:
            line = _as_json(record) + b"\n"
        else:
            line = output.data_line(NULL_VALUE if record.value is None else record.value)
        sys.stdout.buffer.write(line)


def _as_json(record: ReceivedRecord) -> bytes:
    row: dict[str, Json] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
    }
    row |= _field_as_json("key", record.key) | _field_as_json("value", record.value)
    row["headers"] = [{"key": key} | _field_as_json("value", data) for key, data in record.headers]
    return json.dumps(row).encode()


def _field_as_json(name: str, data: bytes | None) -> dict[str, Json]:
    return {name: None} if data is None else data_as_json(name, data)


QUIET_S: Final = 3.0
"""Time without an acknowledgement after which the reason is looked up."""
LOOK_S: Final = 0.5
PING_S: Final = 1.0
"""Time for the answer of one bookie."""
BOOKIES_ASKED_MAX: Final = 64
LOOK_UP_S: Final = 10.0
"""Maximum time of looking up the reason."""
SEE_LOGS: Final = "the brokers' logs may say why"


class Answer(Protocol):
    """A record on its way: what a producer of kafka-python returns."""

    @property
    def is_done(self) -> bool:
        """Whether it was acknowledged or refused."""


AnswerT = TypeVar("AnswerT", bound=Answer)


class MissingAnswers(threading.Thread, Generic[AnswerT]):
    """Thread that says once why the oldest record is not acknowledged.

    `waiting` are the records on their way, oldest first; `remark` prints a sentence.
    """

    def __init__(
        self,
        waiting: deque[AnswerT],
        find_reason: Callable[[], str],
        remark: Callable[[str], None],
        quiet_s: float = QUIET_S,
    ) -> None:
        super().__init__(name="missing-answers", daemon=True)
        self._waiting = waiting
        self._find_reason = find_reason
        self._remark = remark
        self._quiet_s = quiet_s
        self._ended = threading.Event()
        self.reason = ""
        """The printed reason; empty if none was printed."""

    @override
    def run(self) -> None:
        """Watch until the reason was printed, or until `end`."""
        oldest: AnswerT | None = None
        quiet_s = 0.0
        while not self._ended.wait(LOOK_S):
            first = _first(self._waiting)
            quiet_s = quiet_s + LOOK_S if first is oldest else 0.0
            oldest = first
            if oldest is None or oldest.is_done or quiet_s < self._quiet_s:
                continue
            reason = self._find_reason()
            if not oldest.is_done:
                self.reason = reason
                silence = f"no record was acknowledged for {quiet_s:g} s"
                self._remark(f"{silence}: {reason}; it is still being sent")
            return

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()


def _first(waiting: deque[AnswerT]) -> AnswerT | None:
    try:
        return waiting[0]
    except IndexError:
        return None


def reason_of_silence(arguments: argparse.Namespace) -> str:
    """Return why brokers may acknowledge nothing, as far as the metadata shows it."""
    if arguments.bootstrap and not (arguments.metadata or os.environ.get(METADATA_VARIABLE)):
        return SEE_LOGS
    try:
        return asyncio.run(_read_reason(metadata_address(arguments)))
    except TimeoutError:
        return f"the metadata was not read in {LOOK_UP_S:g} s either"
    except MetadataError as error:
        return f"the metadata cannot be read: {error}"


async def _read_reason(address: str) -> str:
    async with asyncio.timeout(LOOK_UP_S), open_cluster(address) as cluster:
        up = list(cluster.directory.bookies.values())
        pool = cluster.open_pool()
        try:
            asked = up[:BOOKIES_ASKED_MAX]
            answers = await asyncio.gather(*(_answers(pool, row.bookie_id) for row in asked))
        finally:
            await pool.aclose()
    return _reason_of(up, [row for row, answer in zip(asked, answers, strict=True) if not answer])


async def _answers(pool: BookiePool, bookie_id: BookieId) -> bool:
    try:
        await pool.ping(bookie_id, timeout_s=PING_S)
    except (BookieCallError, SecurityError):
        return False
    return True


def _reason_of(up: Sequence[BookieRegistration], silent: Sequence[BookieRegistration]) -> str:
    if not up:
        return "no bookie is up: start bookies (quire bookie run --help)"
    if silent:
        shown = names([registration.bookie_id for registration in silent])
        return f"{len(silent)} of {len(up)} bookies do not answer ({shown}): see quire bookie list"
    writable = sum(registration.writable for registration in up)
    if not writable:
        return f"none of {len(up)} bookies takes new entries: quire cluster health says why"
    return f"{writable} bookies take new entries: if a topic needs more, start more; {SEE_LOGS}"
