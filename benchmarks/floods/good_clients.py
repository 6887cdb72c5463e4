"""The good clients of the attacked servers: calls at a low rate, each of them timed.

Leaves the bad clients to `benchmarks.floods.flooder`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Final

from benchmarks.brokers.produce_request import PRODUCE_VERSION, produce_body
from benchmarks.floods.broker_link import BrokerLink
from benchmarks.floods.flooded_cluster import GOOD, ONE, TOPIC, FloodedCluster
from benchmarks.floods.gateway_floods import gateway_session
from benchmarks.floods.kinds import FloodKind
from benchmarks.measures import arrivals
from benchmarks.processes import host_and_port
from broker_layer.kafka.messages import SaslHandshakeRequest, SaslHandshakeResponse
from broker_layer.kafka.versions import ApiKey
from broker_layer.peer import ask_login
from ledger_client import ClientConfig, LedgerClient, LedgerError
from metadata.gateway.messages import CreateNode, Multi, Unwatch, Watch
from metadata.ids import Version
from metadata.store.interface import Create, Delete
from quire.identity.client_file import read_client_file
from quire.identity.sasl.credentials import ScramMechanism

ENTRY_BYTES: Final = 1024
PRODUCE_ERROR_AT: Final = 1 + 1 + len(TOPIC) + 1 + 4
"""Offset of the error in the answer to a Produce of one partition."""
FIRST_NAME: Final = 9_000
NAMES: Final = 1_000
"""Nodes of four digits are the first level of ledger ids: every client may create them."""
HEALTH_REQUEST: Final = b"GET /readyz HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n"
PATIENT: Final = ClientConfig(add_timeout_s=30.0, append_deadline_s=60.0)
"""A sync on a busy disk can take more than the default 5 s; what is slow is measured, not ended."""

_names = itertools.count()
"""Of the whole run: a call that was ended may have left its node."""

Call = Callable[[], Awaitable[None]]
GoodClient = AbstractAsyncContextManager[Call]


@dataclass(slots=True)
class Timed:
    """Calls of a good client in one phase."""

    seconds: list[float] = field(default_factory=list)
    failures: int = 0
    """Calls that failed, or were not answered in time; their time counts as well."""
    failure: str = ""


async def timed(call: Call, per_s: float, phase_s: float, call_s_max: float) -> Timed:
    """Call at a rate, whatever the answers take; each call is timed from when it was due."""
    times, began = Timed(), perf_counter()

    async def one(due_s: float) -> None:
        try:
            async with asyncio.timeout(call_s_max):
                await call()
        except Exception as error:  # noqa: BLE001 - whatever it is, the good client was not served
            times.failures += 1
            times.failure = f"{type(error).__name__}: {error}"[:200]
        times.seconds.append(perf_counter() - began - due_s)

    async with asyncio.TaskGroup() as group:
        for due_s in arrivals(per_s, phase_s):
            await asyncio.sleep(began + due_s - perf_counter())
            group.create_task(one(due_s))
    return times


@asynccontextmanager
async def _appends(flooded: FloodedCluster) -> AsyncIterator[Call]:
    """Append entries to a ledger; at the end, read back and compare them."""
    rng, appended = Random(2), dict[int, bytes]()
    async with LedgerClient(flooded.uri(GOOD), config=PATIENT) as client:
        ledger = await client.create_ledger(ONE)

        async def append() -> None:
            entry = rng.randbytes(ENTRY_BYTES)
            appended[await ledger.append(entry)] = entry

        yield append
        try:
            await ledger.aclose()
        except LedgerError:  # the writer has ended, and its calls failed
            await client.recover_ledger(ledger.id)
        async with client.open_ledger(ledger.id) as reader:
            last = reader.last_confirmed
            entries = [entry async for batch in reader.read(0, last) for entry in batch]
        read: dict[int, bytes] = {entry.id: entry.data for entry in entries}
        wrong = sum(read.get(number) != entry for number, entry in appended.items())
        assert not wrong, f"{wrong} of {len(appended)} acknowledged entries are missing or differ"


@asynccontextmanager
async def _new_ledgers(flooded: FloodedCluster) -> AsyncIterator[Call]:
    """Create ledgers, of each of which the bookie must know the owner before its first entry."""
    async with LedgerClient(flooded.uri(GOOD), config=PATIENT) as client:

        async def create() -> None:
            async with client.create_ledger(ONE) as ledger:
                await ledger.append(b"first")

        yield create


@asynccontextmanager
async def _produces(flooded: FloodedCluster) -> AsyncIterator[Call]:
    """Produce one record after the other."""
    files, broker = flooded.directory, flooded.target.broker
    link = BrokerLink(broker, files.client_file(GOOD))
    connection = await link.calls(link.access(GOOD, files.password_file(GOOD)))
    body = produce_body(TOPIC.encode(), [Random(2).randbytes(ENTRY_BYTES)])

    async def produce() -> None:
        answer = await connection.call(ApiKey.PRODUCE, PRODUCE_VERSION, body)
        error = int.from_bytes(answer[PRODUCE_ERROR_AT : PRODUCE_ERROR_AT + 2], "big")
        if error:
            raise RuntimeError(f"a Produce is answered with error {error}")

    try:
        yield produce
    finally:
        connection.close("the good client leaves")


@asynccontextmanager
async def _connects(flooded: FloodedCluster) -> AsyncIterator[Call]:
    """Connect to a broker, and ask for the begin of a login."""
    link = BrokerLink(flooded.target.broker, flooded.directory.client_file(GOOD))
    request = SaslHandshakeRequest(mechanism=ScramMechanism.SHA_512)

    async def connect() -> None:
        reader, writer = await link.connect()
        try:
            await ask_login(reader, writer, request, SaslHandshakeResponse)
        finally:
            writer.transport.abort()

    yield connect


@asynccontextmanager
async def _admin_requests(flooded: FloodedCluster) -> AsyncIterator[Call]:
    """Ask an admin port for its health."""
    host, port = host_and_port(flooded.target.admin)
    context = read_client_file(flooded.directory.client_file(GOOD)).context

    async def ask_for_health() -> None:
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            writer.write(HEALTH_REQUEST)
            first = await reader.readline()
        finally:
            writer.transport.abort()
        if b" 200 " not in first:
            raise RuntimeError(f"the admin port answers {first!r}")

    yield ask_for_health


@asynccontextmanager
async def _watches(flooded: FloodedCluster) -> AsyncIterator[Call]:
    """Watch a node at a gateway, create it, and wait for the event; then remove it."""
    heard: dict[int, asyncio.Event] = {}

    def on_event(number: int) -> None:
        if number in heard:
            heard[number].set()

    address, file = flooded.gateway.address, flooded.directory.client_file(GOOD)
    session = await gateway_session(address, file, on_event)

    async def watch() -> None:
        number = next(_names)
        path = f"/ledgers/{FIRST_NAME + number % NAMES}"
        event = heard[number] = asyncio.Event()
        session.send(Watch(number, path, of_children=False))
        await session.call(CreateNode(Create(path, b""), make_parents=True))
        try:
            await event.wait()
        finally:
            await session.call(Multi((Delete(path, Version(0)),)))
            session.send(Unwatch(number))
            del heard[number]

    try:
        yield watch
    finally:
        session.abort()


OFTEN_PER_S: Final = 100.0
SELDOM_PER_S: Final = 30.0
"""Rate of calls that cost a handshake, or changes of the metadata."""

GOOD_CLIENTS: Final[Mapping[FloodKind, tuple[Callable[[FloodedCluster], GoodClient], float]]] = {
    FloodKind.STUCK: (_appends, OFTEN_PER_S),
    FloodKind.READS: (_appends, OFTEN_PER_S),
    FloodKind.ATTACHES: (_new_ledgers, SELDOM_PER_S),
    FloodKind.FETCHES: (_produces, OFTEN_PER_S),
    FloodKind.SESSIONS: (_produces, OFTEN_PER_S),
    FloodKind.REQUESTS: (_produces, OFTEN_PER_S),
    FloodKind.HANDSHAKES: (_connects, SELDOM_PER_S),
    FloodKind.ADMIN: (_admin_requests, SELDOM_PER_S),
    FloodKind.WATCHES: (_watches, SELDOM_PER_S),
}
"""The good client that each flood is felt by, and the rate of its calls."""
