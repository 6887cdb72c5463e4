"""Tests of calls between brokers, over real sockets of this machine."""

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from ssl import SSLContext

import pytest

from broker_layer.peer import (
    CALLS_MAX,
    FRAME_BYTES_MAX,
    PeerAccess,
    PeerAddress,
    PeerConnection,
    PeerError,
    Peers,
)
from quire.identity import tls as renewed_tls
from quire.identity.tls import RenewedContext
from tests.support.security.client_certificates import RenewedFiles

HEADER = struct.Struct(">hhih")
LONG_S = 30.0


class ScriptedBroker:
    """Broker that acts on the first byte of a request: `e`cho, `s`ilence, `c`lose, or damage."""

    def __init__(self) -> None:
        self.client_ids: list[str] = []
        self.requests: list[tuple[int, int, bytes]] = []
        self.asked = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self, ssl: SSLContext | None = None) -> PeerAddress:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=ssl)
        return PeerAddress(7, *self._server.sockets[0].getsockname()[:2])

    async def aclose(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(
            *(writer.wait_closed() for writer in self._writers), return_exceptions=True
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                self._answer(await reader.readexactly(length), writer)
        except (EOFError, OSError):
            writer.close()

    def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        key, version, number, name_length = HEADER.unpack_from(frame)
        name_end = HEADER.size + name_length
        self.client_ids.append(frame[HEADER.size : name_end].decode())
        assert frame[name_end] == 0
        body = frame[name_end + 1 :]
        self.requests.append((key, version, body))
        self.asked.set()
        head = struct.pack(">i", number)
        match body[:1]:
            case b"e":
                writer.write(struct.pack(">i", 5 + len(body)) + head + b"\0" + body)
            case b"t":  # with a tagged field: tag 3 of two bytes
                writer.write(struct.pack(">i", 9 + len(body)) + head + b"\1\3\2xy" + body)
            case b"c":
                writer.close()
            case b"w":
                writer.write(struct.pack(">ii", 5, number + 1) + b"\0")
            case b"l":
                writer.write(struct.pack(">i", FRAME_BYTES_MAX + 1))
            case b"d":
                writer.write(struct.pack(">i", 5) + head + b"\xff")
            case _:
                return


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker()
    yield broker
    await broker.aclose()


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    peers = Peers("broker-1", Random(1))
    yield peers
    await peers.aclose()


async def ask(peers: Peers, address: PeerAddress, body: bytes, timeout_s: float = LONG_S) -> bytes:
    return bytes(await peers.call(address, 27, 1, body, timeout_s=timeout_s))


async def test_many_calls_share_one_connection(broker: ScriptedBroker, peers: Peers) -> None:
    address = await broker.start()
    bodies = [b"e%d" % number for number in range(50)] + [b"tagged"]
    answers = await asyncio.gather(*(ask(peers, address, body) for body in bodies))
    assert answers == bodies
    assert broker.requests == [(27, 1, body) for body in bodies]
    assert broker.client_ids == ["broker-1#1"] * 51


@pytest.mark.parametrize("body", [b"c", b"w", b"l", b"d"])
async def test_failed_connection_is_replaced_under_new_name(
    broker: ScriptedBroker, peers: Peers, body: bytes
) -> None:
    address = await broker.start()
    waiting = asyncio.ensure_future(ask(peers, address, b"silence"))
    await asyncio.sleep(0)
    with pytest.raises(PeerError):
        await ask(peers, address, body)
    with pytest.raises(PeerError):
        await waiting
    assert await ask(peers, address, b"e") == b"e"
    assert broker.client_ids == ["broker-1#1", "broker-1#1", "broker-1#2"]


async def test_call_without_answer_closes_connection(broker: ScriptedBroker, peers: Peers) -> None:
    address = await broker.start()
    assert (
        await ask(peers, address, b"e") == b"e"
    )  # connecting may take longer than the timeout of the call
    with pytest.raises(PeerError):
        await ask(peers, address, b"silence", 0.01)
    assert await ask(peers, address, b"e") == b"e"
    assert broker.client_ids[-1] == "broker-1#2"


async def test_cancelled_call_does_not_affect_others(broker: ScriptedBroker, peers: Peers) -> None:
    address = await broker.start()
    await ask(peers, address, b"e")
    given_up = asyncio.ensure_future(ask(peers, address, b"e1"))
    other = asyncio.ensure_future(ask(peers, address, b"e2"))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await other == b"e2"
    assert broker.client_ids == ["broker-1#1"] * 3


async def test_unreachable_broker_is_retried_after_pause(peers: Peers) -> None:
    broker = ScriptedBroker()
    address = await broker.start()
    await broker.aclose()
    with pytest.raises(PeerError, match="cannot be reached"):
        await ask(peers, address, b"e")
    with pytest.raises(PeerError, match="just now"):
        await ask(peers, address, b"e")


async def test_new_address_of_broker_is_used(broker: ScriptedBroker, peers: Peers) -> None:
    first = await broker.start()
    assert await ask(peers, first, b"e") == b"e"
    moved = ScriptedBroker()
    second = await moved.start()
    assert await ask(peers, second, b"e") == b"e"
    assert moved.client_ids == ["broker-1#2"]
    await moved.aclose()


async def test_calls_are_limited(broker: ScriptedBroker) -> None:
    address = await broker.start()
    connection = PeerConnection(*await asyncio.open_connection(address.host, address.port), "x#1")
    waiting = [connection.call(27, 1, b"silence") for _ in range(CALLS_MAX)]
    with pytest.raises(PeerError, match="unanswered"):
        connection.call(27, 1, b"e")
    connection.close("enough")
    for each in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(each, PeerError)
    with pytest.raises(PeerError, match="enough"):
        connection.call(27, 1, b"e")
    await connection.wait_closed()


async def test_closed_peers_refuse_calls(broker: ScriptedBroker) -> None:
    address = await broker.start()
    peers = Peers("broker-1", Random(1))
    waiting = asyncio.ensure_future(ask(peers, address, b"silence"))
    await broker.asked.wait()
    await peers.aclose()
    with pytest.raises(PeerError):
        await waiting
    with pytest.raises(PeerError):
        await ask(peers, address, b"e")


async def test_a_new_connection_presents_a_renewed_certificate(
    broker: ScriptedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed_tls, "FILES_CHECK_S", 0.0)
    renewed = RenewedFiles(tmp_path)
    address = await broker.start(renewed.server())
    peers = Peers("broker-1", Random(1), PeerAccess(RenewedContext(renewed.files)))
    with pytest.raises(PeerError):
        await ask(peers, address, b"echo")
    renewed.renew()
    peers._links[7][1].retry_at = 0.0
    assert await ask(peers, address, b"echo") == b"echo"
    await peers.aclose()
