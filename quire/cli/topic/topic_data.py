"""`quire topic produce|consume`: records between pipes and topics.

Leaves the protocol to kafka-python's clients, and topics to `quire.operate.topics`. If brokers
acknowledge nothing for some seconds, `MissingAnswers` says why, as far as the metadata shows it; it
only reads, and a cluster that cannot be read is one of the reasons.

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
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from broker_layer.coordinator_partitions import INTERNAL_TOPICS
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import open_cluster
from metadata.errors import InvalidTopicNameError, MetadataError
from metadata.ids import BookieId
from metadata.registry.registration import BookieRegistration
from metadata.topics.topic import check_topic_name
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.topic.topic_manage import open_brokers
from quire.errors import CommandError, ExitCode, UsageError
from quire.identity.errors import SecurityError
from quire.identity.kafka_settings import kafka_settings
from quire.operate.as_json import data_as_json
from quire.operate.brokers import CHECK_LOGS
from quire.operate.fields import Json
from quire.operate.findings import names
from quire.operate.topics import SEE_LIST, make_if_missing, topic_named
from quire.options import METADATA_VARIABLE
from quire.server.overriding import override

POLL_MS: Final = 500
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
    partitions = [TopicPartition(arguments.topic, each) for each in wanted]
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
                shown = [each for each in records if each.offset >= least][:left]
                left = None if left is None else left - len(shown)
                _print(shown, as_json=output.as_json)
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
        return settings, sorted(each.partition_index for each in topic.partitions)


def _lines(separator: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        value = line.removesuffix(b"\n")
        if separator is None:
            yield None, value
            continue
        key, found, rest = value.partition(separator.encode())
        if not found:
            raise UsageError(
                f"line {number} has no {separator!r} after its key; the lines before it were sent",
                try_next="--key-separator with the text that ends the keys",
            )
        yield key, rest


def _require_partitions(topic: str, wanted: Sequence[int], known: Container[int]) -> None:
    missing = [each for each in wanted if each not in known]
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
        for each in partitions:
            offset, place = max(int(start), starts[each]), f"{each.topic}-{each.partition}"
            if offset > int(start):
                output.remark(f"{place} begins at {offset}: earlier records are deleted")
            if offset > ends[each]:
                output.remark(f"{place} ends at {ends[each]}: it has no record {offset} yet")
            consumer.seek(each, min(offset, ends[each]))
        return int(start)
    else:
        raise UsageError(f"--from must be earliest, latest or an offset, not {start!r}")
    return 0


def _is_done(consumer: KafkaConsumer, ends: dict[TopicPartition, int] | None) -> bool:
    if ends is None:
        return False
    return all(consumer.position(each) >= end for each, end in ends.items())


def _print(records: Sequence[ReceivedRecord], *, as_json: bool) -> None:
    for record in records:
        line = _as_json(record) if as_json else record.value or b""
        sys.stdout.buffer.write(line + b"\n")


def _as_json(record: ReceivedRecord) -> bytes:
    row: dict[str, Json] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        row |= {name: None} if data is None else data_as_json(name, data)
    return json.dumps(row).encode()


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
            answers = await asyncio.gather(*(_answers(pool, each.bookie_id) for each in asked))
        finally:
            await pool.aclose()
    return _reason_of(up, [each for each, answer in zip(asked, answers, strict=True) if not answer])


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
        shown = names([each.bookie_id for each in silent])
        return f"{len(silent)} of {len(up)} bookies do not answer ({shown}): see quire bookie list"
    writable = sum(each.writable for each in up)
    if not writable:
        return f"none of {len(up)} bookies takes new entries: quire cluster health says why"
    return f"{writable} bookies take new entries: if a topic needs more, start more; {SEE_LOGS}"
