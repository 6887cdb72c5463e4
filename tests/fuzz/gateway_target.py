"""Fuzz targets for connections to a metadata gateway: their bytes, and clients before and after a
hello.

Leaves damage to `tests.fuzz.mutations`.

A block of `quire.gateway` is an episode: clients that each send frames at random, one after the
other: hellos, requests that they may make and others, damaged frames, and pieces of frames.

Invariants checked: nothing is read, written or watched before the hello is answered; a secret is
not sent to any client; a client without a principal changes nothing, and no client changes what is
not its own. Nothing is raised out of the protocol, or on the loop, and no request fails by a
defect. Answers before a hello are bounded. After the end of a connection no task and no watch of it
is left.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from typing_extensions import override  # `typing` has it from 3.12 on

from metadata.gateway.codec import Code, decode_reply, decode_request, reply_frame, request_frame
from metadata.gateway.errors import GatewayFormatError
from metadata.gateway.frames import LENGTH_BYTES
from metadata.gateway.messages import (
    Children,
    CloseSession,
    CreateNode,
    Get,
    Hello,
    Multi,
    Ping,
    Request,
    Unwatch,
    Watch,
)
from metadata.ids import LedgerId, Version
from metadata.ledgers.codec import encode_ledger_metadata
from metadata.paths import LEDGER_IDS, LEDGERS, REPAIR_KEY, USERS, ledger_path
from metadata.security.ledger_roles import NO_GRANTS
from metadata.store.interface import (
    Cancel,
    CompareAndSet,
    Create,
    Delete,
    Operation,
    Stored,
    WatchCallback,
)
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.number_blocks import pack_block
from quire.gateway.connection import ClientConnection
from quire.gateway.gateway_context import GatewayContext
from quire.gateway.limits import GatewayCounters, GatewayLimits
from quire.gateway.requests import MetadataRequests
from quire.gateway.sessions import Sessions
from tests.fuzz.episodes import EpisodeTarget, Visits
from tests.fuzz.findings import Tally, require
from tests.fuzz.memory_transport import MemoryTransport
from tests.fuzz.mutations import Mutator
from tests.fuzz.targets import ParserTarget
from tests.fuzz.wire_targets import HOSTILE_MSGPACK
from tests.simulation.loop import simulation_loop
from tests.support.metadata.samples import open_ledger, token

CLIENTS_PER_EPISODE: Final = 48
MOVES_MAX: Final = 16
SENT_BYTES_MAX: Final = 4 * 1024
"""Bound of the answers before a hello."""
SETTLE_S: Final = 0.1
SECRET: Final = b"the key of repair, which no client gets"
ALICE: Final = "User:alice"
ZERO: Final = Version(0)
LEDGER: Final = replace(open_ledger(7), owner="User:bob")
PATH: Final = ledger_path(LedgerId(7))
CLOSED: Final = LEDGER.with_recovery_begun(token(5))

HELLO: Final = Hello(1, 1, 0, b"", 6_000, "fuzz")
REQUESTS: Final[tuple[Request, ...]] = (
    Ping(),
    Get("/"),
    Get(PATH, fresh=True),
    Get(REPAIR_KEY),
    Children(USERS, agreed=True),
    Watch(1, REPAIR_KEY, of_children=False),
    Watch(2, LEDGERS, of_children=True),
    Unwatch(2),
    CreateNode(Create(f"{LEDGERS}/0000/001", b""), make_parents=True),
    CreateNode(Create("/clients/client-1", b"x", ephemeral=True), make_parents=False),
    Multi((CompareAndSet(PATH, encode_ledger_metadata(CLOSED), ZERO),)),
    Multi((Delete(PATH, ZERO), CompareAndSet(LEDGER_IDS, pack_block(LEDGER_IDS, 9), ZERO))),
    CloseSession(),
)
FRAMES: Final = tuple(request_frame(number, each) for number, each in enumerate(REQUESTS, 1))
HELLOS: Final = (
    request_frame(0, HELLO),
    request_frame(0, replace(HELLO, session_id=5, token=bytes(16))),
    request_frame(0, replace(HELLO, version_min=2, version_max=3)),
)


def gateway_parsers() -> list[ParserTarget]:
    """Return the targets of the bytes of requests and replies."""
    requests = tuple(frame[LENGTH_BYTES:] for frame in (*FRAMES, *HELLOS))
    replies = tuple(
        each[LENGTH_BYTES:]
        for each in (
            reply_frame(Code.OK, 1, [b"value", 3, False]),
            reply_frame(Code.FAILED, 2, [1, "/a"]),
            reply_frame(Code.EVENT, 3),
        )
    )
    return [
        ParserTarget("gateway_request", _check_request, requests, HOSTILE_MSGPACK),
        ParserTarget("gateway_reply", _check_reply, replies, HOSTILE_MSGPACK, weight=0.5),
    ]


def _check_request(data: bytes, origin: bytes, is_sealed: bool) -> bool:
    del origin, is_sealed
    try:
        number, request = decode_request(data)
    except GatewayFormatError:
        return False
    again = decode_request(request_frame(number, request)[LENGTH_BYTES:])
    require(again == (number, request), "a request has one meaning")
    return True


def _check_reply(data: bytes, origin: bytes, is_sealed: bool) -> bool:
    del origin, is_sealed
    try:
        decode_reply(data)
    except GatewayFormatError:
        return False
    return True


class _WatchedStore(MemoryMetadataStore):
    """A store that requires that each call comes from a client that was greeted."""

    greeted = True

    @override
    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        require(self.greeted or path == "/", "a node is read before the hello")
        return await super().get(path, fresh=fresh, agreed=agreed)

    @override
    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        require(self.greeted, "something is written before the hello")
        return await super().multi(operations)

    @override
    def watch_value(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        require(self.greeted, "a node is watched before the hello")
        return super().watch_value(path, callback, holder=holder)


class _Transport(MemoryTransport):
    """Keeps what the gateway sent."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__(protocol)
        self.sent = bytearray()

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data


class _Episode(Visits):
    """One gateway, and its clients."""

    name = "gateway"
    visits = CLIENTS_PER_EPISODE

    def __init__(
        self, rng: random.Random, tally: Tally, block: str, data: bytes | None = None
    ) -> None:
        super().__init__(rng, tally, block, data)
        self._mutator = Mutator(rng, (*FRAMES, *HELLOS))
        self._principal = ""
        self._server = MemoryMetadataServer()
        self._store = _WatchedStore(self._server)
        self._context: GatewayContext

    async def run(self) -> None:
        """Serve all clients."""
        store = self._store
        await store.create(REPAIR_KEY, SECRET)
        await store.create(PATH, encode_ledger_metadata(LEDGER))
        limits, counters = GatewayLimits(), GatewayCounters()
        sessions = Sessions(store, self.rng, limits, counters, lambda: 6.0)
        requests = MetadataRequests(store, lambda _: NO_GRANTS, (), limits, "fuzz")
        context = GatewayContext(
            store,
            sessions,
            requests,
            lambda _: self._principal,
            limits,
            counters,
            self.log,
            simulation_loop().time,
        )
        self._context = context
        await self.receive_visits()
        await context.aclose()
        await store.aclose()

    @override
    async def visit(self, stream: bytearray) -> None:
        context, store, server = self._context, self._store, self._server
        self._principal = self.rng.choice(("", ALICE))
        before = server.tree.change_count
        connection = ClientConnection(context)
        transport = _Transport(connection)
        connection.connection_made(transport)
        store.greeted = False
        moves = [self.data] if self.data is not None else self._moves()
        for data in moves:
            stream += data
            self.tally.frames += 1
            await transport.deliver(data, self.rng)
            await asyncio.sleep(SETTLE_S)
            store.greeted = connection._session is not None
            if not store.greeted:
                require(len(transport.sent) <= SENT_BYTES_MAX, "answers are bounded")
            if transport.is_closing():
                break
        self.tally.accepted += store.greeted
        store.greeted = True  # what runs ends
        transport.abort()
        await asyncio.sleep(SETTLE_S)
        require(SECRET not in transport.sent, "a secret is sent")
        require(not connection._tasks, "a task is left")
        require(not connection._watches and not context.counters.watches_now, "a watch is left")
        if not self._principal:
            require(server.tree.change_count == before, "an unknown client changes something")
        require(server.tree.get(PATH).version == 0, "a ledger of another client is changed")

    def _moves(self) -> list[bytes]:
        """Return deliveries: often a good hello first, then anything."""
        rng = self.rng
        moves = [HELLOS[0]] if rng.random() < 0.5 else []
        for _ in range(1 + int(rng.random() * MOVES_MAX)):
            chance = rng.random()
            if chance < 0.1:
                moves.append(rng.choice(HELLOS))
            elif chance < 0.7:
                moves.append(rng.choice(FRAMES))
            elif chance < 0.8:
                moves.append(b"".join(rng.choices(FRAMES, k=4)))
            else:
                moves.append(bytes(self._mutator.mutate(self._mutator.pick())))
        return moves


GATEWAY: Final = EpisodeTarget(_Episode.name, 0.25, _Episode)
