"""Benchmark of a broker's server: cost of each Produce over TCP, with a log that stores nothing.

A broker's server runs in a separate process. This process sends the same frames repeatedly over one
connection, with some requests under way, and reports the server's processor time. Leaves the codecs
to `benchmarks.brokers.kafka_codec`, and logs to benchmarks of complete clusters.

Each case runs with an authorizer too, and a thousand ACLs.

Target: 20 us of processor time for a small Produce, 1 s for each GB in batches of 1 MB.
"""

import argparse
import asyncio
import gc
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Final

from benchmarks.brokers.produce_request import PRODUCE_VERSION, produce_body
from benchmarks.measures import interleaved
from benchmarks.processes import usage_of
from benchmarks.runner import Bench, run, run_loop
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.frames import Buffer
from broker_layer.kafka.primitives import NO_TAGS
from broker_layer.kafka.record_batch import RecordBatchHeader, place
from broker_layer.kafka.versions import ApiKey
from broker_layer.log.log_reader import RecordPosition
from broker_layer.log.pending_batches import Appended, MayOpen, never_opens
from broker_layer.log.state.partition_state import ActiveProducer
from broker_layer.log.topic_log import LogReadResult
from broker_layer.security.authorizer import Authorizer, AuthorizerConfig
from broker_layer.server.broker_services import BrokerServices, ServiceParts
from broker_layer.server.connections import BrokerServer
from broker_layer.server.listeners import ListenerAddress
from broker_layer.server.server_limits import BrokerLimits
from broker_layer.transactions.values import Claim, TopicPartition
from broker_layer.transactions.verification import Confirmation
from metadata.security.acls import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from quire.identity.principal import ANONYMOUS
from quire.server.process import COLLECT_AFTER_OBJECTS
from quire.server.server_log import ServerLog

TOPIC: Final = b"topic"
SERVE: Final = "--serve"
SERVE_WITH_ACLS: Final = "--serve-with-acls"
WITH_ACLS: Final = ", with ACLs"
ACL_COUNT: Final = 1_000
GIGABYTE: Final = 1e9


class DiscardingLog:
    """A partition that assigns offsets in a copy of each batch, commits it in the next iteration of
    the event loop, and drops it.
    """

    leader_epoch = 1
    log_start_offset = 0
    has_room = True

    def __init__(self) -> None:
        self.log_end_offset = self.high_watermark = self.last_stable_offset = 0
        self._pending: list[tuple[asyncio.Future[Appended], int]] = []

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return False: there are no transactions."""
        return False

    def append(
        self,
        header: RecordBatchHeader,
        data: Buffer,
        *,
        coordinator_epoch: int | None = None,
        may_open: MayOpen = never_opens,
        waits_for_one: bool = False,
    ) -> "asyncio.Future[Appended]":
        """Assign offsets to a batch."""
        base = self.log_end_offset
        batch = bytearray(data)
        place(batch, base, self.leader_epoch)
        self.log_end_offset = base + header.last_offset_delta + 1
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        if not self._pending:
            loop.call_soon(self._commit)
        self._pending.append((future, base))
        return future

    def note_refused(self, header: RecordBatchHeader, code: ErrorCode) -> None:
        """Do nothing: every batch is accepted."""

    def _commit(self) -> None:
        pending, self._pending = self._pending, []
        self.high_watermark = self.last_stable_offset = self.log_end_offset
        for future, base in pending:
            future.set_result(Appended(base, -1, 0))

    async def wait_for_room(self, size: int) -> None:
        """Return at once: there is always room."""

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, at_least_one: bool
    ) -> LogReadResult:
        """Refuse: nothing was stored."""
        raise TopicError(ErrorCode.OFFSET_OUT_OF_RANGE, "nothing is stored")

    async def offset_for_timestamp(self, timestamp_ms: int) -> RecordPosition | None:
        """Return None: nothing is stored."""
        return None

    async def max_timestamp(self) -> RecordPosition | None:
        """Return None: nothing is stored."""
        return None

    def end_offset_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the end of the only epoch."""
        return self.leader_epoch, self.high_watermark

    async def delete_records(self, before_offset: int) -> int:
        """Delete nothing."""
        return 0

    def active_producers(self) -> list[ActiveProducer]:
        """Return an empty list."""
        return []

    def on_progress(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Do nothing: no progress is reported."""
        return lambda: None


class DiscardingTopics:
    """One topic of one partition."""

    def __init__(self) -> None:
        self._log = DiscardingLog()

    def log_of(self, topic: str, partition: int) -> DiscardingLog:
        """Return the only log."""
        return self._log

    def opening(self, topic: str, partition: int) -> asyncio.Event | None:
        """Return None: no partition is being opened."""
        return None

    def topic_name_of(self, topic_id: bytes) -> str | None:
        """Return None: topics have no ids."""
        return None

    def leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return this broker as the leader of every partition."""
        return None

    def address_of(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return None: there are no other brokers."""
        return None

    def rack_of(self, broker_id: int) -> str | None:
        """Return None: there are no racks."""
        return None

    async def verify(
        self, claim: Claim, partition: TopicPartition, *, knows_abortable: bool = False
    ) -> Confirmation:
        """Refuse: there are no transactions."""
        raise TopicError(ErrorCode.INVALID_TXN_STATE, "there are no transactions")


class _StaticAcls:
    """ACLs of ACL_COUNT topics, of which the client's is one."""

    is_readable = True

    @property
    def bindings(self) -> Iterable[AclBinding]:
        """Return the ACLs."""
        names = [TOPIC.decode(), *(f"other-{number}" for number in range(ACL_COUNT - 1))]
        for name in names:
            yield AclBinding(
                ResourceType.TOPIC,
                PatternType.LITERAL,
                name,
                ANONYMOUS.text,
                "*",
                Operation.WRITE,
                Permission.ALLOW,
            )

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Do nothing: they do not change."""
        return lambda: None


async def _serve(*, has_acls: bool) -> None:
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
    loop = asyncio.get_running_loop()
    topics = DiscardingTopics()
    log = ServerLog(loop.time)
    authorizer = Authorizer(_StaticAcls(), AuthorizerConfig(), log.audit) if has_acls else None
    parts = ServiceParts(1, topics, topics, topics, {}, "PLAINTEXT", authorizer)
    services = BrokerServices(parts, BrokerLimits(), log, Random(1), loop.time)
    server = BrokerServer(services.context)
    (address,) = await server.start((ListenerAddress("PLAINTEXT", "127.0.0.1", 0),))
    print(address.port, flush=True)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()  # until the starting process ends
    await server.close()
    await services.close()


@dataclass(frozen=True, slots=True)
class Server:
    """A process that serves, and what the names of its cases end with."""

    process: asyncio.subprocess.Process
    port: int
    suffix: str


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of Produce, and the number under way."""

    name: str
    frame: bytes
    payload_bytes: int
    in_flight: int
    count: int
    us_wanted: float | None = None
    s_per_gb_wanted: float | None = None


def _frame(records: int, record_bytes: int) -> bytes:
    rng = Random(1)
    body = produce_body(TOPIC, [rng.randbytes(record_bytes) for _ in range(records)])
    head = struct.pack(">hhih", ApiKey.PRODUCE, PRODUCE_VERSION, 1, -1) + NO_TAGS
    return struct.pack(">i", len(head) + len(body)) + head + body


async def _send(port: int, case: Case, count: int) -> float:
    """Send one frame `count` times; return the duration in seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    started = perf_counter()
    (answer_bytes,) = (0,)
    sent = answered = 0
    while answered < count:
        burst = min(case.in_flight - (sent - answered), count - sent)
        if burst:
            writer.writelines([case.frame] * burst)
            sent += burst
            await writer.drain()
        if not answer_bytes:
            head = await reader.readexactly(4)
            answer_bytes = 4 + struct.unpack(">i", head)[0]
            await reader.readexactly(answer_bytes - 4)
            answered += 1
            continue
        take = max(1, (sent - answered) // 2)
        await reader.readexactly(answer_bytes * take)
        answered += take
    elapsed = perf_counter() - started
    writer.close()
    return elapsed


async def _measure_case(bench: Bench, server: Server, case: Case) -> None:
    port, pid, count = server.port, server.process.pid, bench.size(case.count, 50)
    await _send(port, case, min(count, 100))  # warm
    before = usage_of(pid).cpu_s
    elapsed = await _send(port, case, count)
    after = usage_of(pid).cpu_s
    figures: dict[str, object] = {
        "requests_per_s": count / elapsed,
        "MB_per_s": count * case.payload_bytes / elapsed / 1e6,
    }
    if before is not None and after is not None:
        figures["cpu_us"] = (after - before) / count * 1e6
        figures["cpu_s_per_GB"] = (after - before) / (count * case.payload_bytes) * GIGABYTE
    bench.report.sample(f"{case.name}{server.suffix}", figures)


async def _start(option: str, suffix: str) -> Server:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.brokers.broker_protocol",
        option,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    return Server(process, int(await process.stdout.readline()), suffix)


async def _measure(bench: Bench) -> None:
    cases = {
        case.name: case
        for case in (
            Case("1 x 200 B, 64 under way", _frame(1, 200), 200, 64, 100_000, us_wanted=20.0),
            Case("1 x 200 B, one under way", _frame(1, 200), 200, 1, 20_000),
            Case("1 x 1 KB, 64 under way", _frame(1, 1_000), 1_000, 64, 100_000),
            Case("1000 x 1 KB, 5 under way", _frame(1_000, 1_000), 10**6, 5, 2_000, None, 1.0),
        )
    }
    servers = [await _start(SERVE, ""), await _start(SERVE_WITH_ACLS, WITH_ACLS)]
    pairs = [(name, server) for name in cases for server in servers]
    try:
        for _, (name, server) in interleaved(pairs, bench.repetitions):
            await _measure_case(bench, server, cases[name])
    finally:
        for server in servers:
            assert server.process.stdin is not None
            server.process.stdin.close()
            await server.process.wait()
    for name, case in cases.items():
        bench.report.figure(name, "cpu_us", "us", at_most=case.us_wanted)
        bench.report.figure(name, "cpu_s_per_GB", "s", at_most=case.s_per_gb_wanted)
        samples = [bench.report.values(f"{name}{own.suffix}", "cpu_us") for own in servers]
        added = [more - less for less, more in zip(*samples, strict=True)]
        bench.report.figure(name, "acl_us", "us", values=added)


def _add_options(parser: argparse.ArgumentParser) -> None:
    for option in (SERVE, SERVE_WITH_ACLS):
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)


if __name__ == "__main__":
    if SERVE in sys.argv or SERVE_WITH_ACLS in sys.argv:
        run_loop(_serve(has_acls=SERVE_WITH_ACLS in sys.argv))
    else:
        run("broker_protocol", _measure, _add_options)
