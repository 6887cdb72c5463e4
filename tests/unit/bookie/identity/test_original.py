"""A start never replaces a running process of its bookie, and waits for a silent one (rule 2.8)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bookie.errors import OriginalLivesError, OriginalRegisteredError
from bookie.files.disk_calls import file_identity, is_same_file
from bookie.identity import original
from bookie.identity.original import OriginalCheck, registration_wait_s
from metadata.paths import bookie_path
from metadata.registry.positions import NO_POSITION, PositionRecord, PositionStore
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.store.ephemeral import HeldNode, pack_held
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.bookie.running_server import BOOKIE, LIMITS, RunningServer, serve

RUN, LOCK = b"r" * 16, "boot:1:2"
UNUSED = ("127.0.0.1", 1)


class Registered:
    """A metadata service with a registered bookie whose process may be dead."""

    def __init__(self) -> None:
        server = MemoryMetadataServer()
        self.store = MemoryMetadataStore(server)
        self.other = MemoryMetadataStore(server)

    async def register(self, address: tuple[str, int]) -> None:
        content = REGISTRATION_CODEC.pack("a registration", BookieRegistration(BOOKIE, *address))
        value = pack_held(HeldNode(RUN, 1, content))
        await self.other.create(bookie_path(BOOKIE), value, ephemeral=True)

    async def record(self, run: bytes, lock: str) -> None:
        record = PositionRecord(run, 5, files=("1", "2", "3"), lock=lock)
        await PositionStore(self.store).put(BOOKIE, record, NO_POSITION)

    async def check(self, lock: str = LOCK, *, wait_s: float = 0.0) -> bytes | None:
        return await OriginalCheck(self.store, wait_s=wait_s, log=None).run(BOOKIE, lock)


@pytest.fixture
async def served() -> AsyncIterator[RunningServer]:
    made = await serve(LIMITS)
    yield made
    await made.server.close()


@pytest.fixture
async def registered() -> AsyncIterator[Registered]:
    made = Registered()
    yield made
    await made.store.aclose()
    await made.other.aclose()


async def test_start_without_a_registration_does_not_wait(registered: Registered) -> None:
    await registered.record(RUN, LOCK)
    assert await registered.check() is None


async def test_original_that_answers_is_never_replaced(
    registered: Registered, served: RunningServer
) -> None:
    await registered.register(served.address)
    await registered.record(RUN, LOCK)  # as in a machine that was copied while it ran
    with pytest.raises(OriginalLivesError, match=str(served.address[1])):
        await registered.check()


async def test_a_silent_original_whose_lock_is_held_here_is_dead(registered: Registered) -> None:
    await registered.register(UNUSED)
    await registered.record(RUN, LOCK)
    assert await registered.check() == RUN


@pytest.mark.parametrize(
    ("run", "recorded_lock", "held_lock"),
    [
        (RUN, LOCK, "boot:1:3"),
        (RUN, LOCK, "another-boot:1:2"),
        (RUN, "", ""),
        (b"x" * 16, LOCK, LOCK),
    ],
)
async def test_no_answer_does_not_prove_a_process_dead(
    registered: Registered, run: bytes, recorded_lock: str, held_lock: str
) -> None:
    await registered.register(UNUSED)
    await registered.record(run, recorded_lock)
    with pytest.raises(OriginalRegisteredError, match="Nothing was changed"):
        await registered.check(held_lock, wait_s=0.3)


async def test_start_waits_for_the_session_of_a_silent_original(
    registered: Registered,
) -> None:
    await registered.register(UNUSED)
    looking = asyncio.create_task(registered.check(wait_s=30.0))
    await asyncio.sleep(0.3)
    assert not looking.done()
    await registered.other.aclose()
    assert await looking is None


async def test_start_waits_for_an_original_that_closes(
    registered: Registered, served: RunningServer
) -> None:
    await registered.register(served.address)
    served.context.is_closing = True
    with pytest.raises((OriginalRegisteredError, OriginalLivesError)) as caught:
        await registered.check(wait_s=0.1)
    assert caught.type is OriginalRegisteredError


async def test_another_bookie_at_the_address_proves_nothing(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    await registered.register(server.sockets[0].getsockname())
    monkeypatch.setattr(original, "HELLO_INTERVAL_S", 0.0)
    with pytest.raises(OriginalRegisteredError):
        await registered.check(wait_s=0.3)
    server.close()
    await server.wait_closed()


def test_the_wait_covers_the_session_timeout() -> None:
    assert registration_wait_s(1.0) == original.WAIT_S_MIN
    assert registration_wait_s(300.0) == 300.0 * original.SESSIONS_WAITED


def test_the_identity_of_a_copied_file_differs(tmp_path: Path) -> None:
    one, two, three = tmp_path / "one", tmp_path / "two", tmp_path / "three"
    one.write_text("x")
    two.write_text("x")
    before = file_identity(one)
    assert not is_same_file(before, file_identity(two))
    one.rename(three)
    assert is_same_file(before, file_identity(three)), "a name is not part of it"
    assert is_same_file("12@345", "12"), "an older system reports no birth time"
    assert not is_same_file("12@345", "12@346")
    assert not is_same_file("12", "13")
