"""A complete bookie in one process, with real storage, through its port and its admin port."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from bookie.errors import CookieMismatchError, CookieMissingError, DirectoryLockedError
from bookie.wire.messages import (
    EntryRanges,
    LacReply,
    ListEntries,
    ReadEntries,
    ReadLac,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.registry.directory import BookieDirectory
from quire.server.errors import CannotListenError
from tests.support.bookie.bookie_machine import Machine, Running
from tests.support.bookie.wire_client import batch_of, payloads_of

ONE = LedgerId(1)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
async def bookie(machine: Machine) -> AsyncIterator[Running]:
    await machine.format()
    running = await machine.start()
    yield running
    await running.stop()


def _read(first: int, last: int, *, fence: bool = False) -> ReadEntries:
    return ReadEntries(ONE, EntryId(first), EntryId(last), 2**20, fence)


async def test_entries_come_back_after_a_restart(machine: Machine) -> None:
    await machine.format()
    bookie = await machine.start()
    client = await bookie.client(1)
    payloads = [b"entry %d" % i for i in range(100)]
    length = 0
    for first in range(0, 100, 10):
        part = payloads[first : first + 10]
        batch = batch_of(1, first, part, lac=first - 1, length_before=length)
        assert await client.add(batch) is Status.OK
        length += sum(map(len, part))
    assert payloads_of(await client.request_entries(_read(0, 99))) == dict(enumerate(payloads))
    await client.close()
    await bookie.stop()
    again = await machine.start()
    client = await again.client(1)
    found = await client.request_entries(_read(0, 120))
    assert payloads_of(found) == dict(enumerate(payloads))
    assert (found.status, found.next_entry_id, found.lac) == (Status.NO_SUCH_ENTRY, 100, 89)
    middle = await client.request_entries(_read(15, 34))
    assert list(payloads_of(middle)) == list(range(15, 35))
    ranges = await client.request(ListEntries(ONE, EntryId(0)))
    assert ranges == EntryRanges(Status.OK, ((0, 99),), complete=True)
    await client.close()
    await again.stop()


async def test_a_fence_and_a_lac_survive_a_restart(machine: Machine) -> None:
    await machine.format()
    bookie = await machine.start()
    client = await bookie.client(1, 2)
    assert await client.add(batch_of(1, 0)) is Status.OK
    assert isinstance(await client.request(WriteLac(ONE, EntryId(0))), LacReply)
    await client.request(ReadLac(ONE, fence=True))
    never_seen = await client.request(ReadLac(LedgerId(2), fence=True))
    assert never_seen == LacReply(Status.OK, NO_ENTRY, NO_ENTRY, fenced=True)
    await client.close()
    await bookie.stop()
    again = await machine.start()
    client = await again.client(1, 2)
    assert await client.add(batch_of(1, 1)) is Status.FENCED
    assert await client.add(batch_of(2, 0)) is Status.FENCED
    assert await client.add(batch_of(1, 1), recovery=True) is Status.OK
    lac = await client.request(ReadLac(ONE, fence=False))
    assert lac == LacReply(Status.OK, EntryId(0), EntryId(1), fenced=True)
    await client.close()
    await again.stop()


async def test_refusals_have_their_own_status(bookie: Running) -> None:
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    assert await client.add(batch_of(1, 0)) is Status.OK
    assert await client.add(batch_of(1, 0, [b"other"])) is Status.CONFLICT
    damaged = batch_of(1, 1)
    damaged[-1] ^= 1
    assert await client.add(damaged) is Status.BAD_REQUEST
    intruder = await bookie.client()
    intruder.attach(1, bytes(32))
    assert await intruder.add(batch_of(1, 1)) is Status.UNAUTHORIZED
    assert (await intruder.request_entries(_read(0, 0))).status is Status.UNAUTHORIZED
    lac = await intruder.request(ReadLac(ONE, fence=True))
    assert isinstance(lac, LacReply)
    assert lac.status is Status.UNAUTHORIZED
    assert await client.add(batch_of(1, 1)) is Status.OK, (
        "an unauthorized client's fence did nothing"
    )
    missing = await client.request_entries(
        ReadEntries(LedgerId(1), EntryId(9), EntryId(9), 9, False)
    )
    assert missing.status is Status.NO_SUCH_ENTRY
    client.attach(3)
    unknown = ReadEntries(LedgerId(3), EntryId(0), EntryId(0), 9, fence=False)
    assert (await client.request_entries(unknown)).status is Status.NO_SUCH_LEDGER
    await client.close()
    await intruder.close()


async def test_a_tailing_reader_gets_entries_with_the_lac(bookie: Running) -> None:
    writer, reader = await bookie.client(1), await bookie.client(1)
    known = NO_ENTRY
    seen: list[int] = []
    for first in range(20):
        poll = reader.send_request(WaitLac(ONE, known, 30_000, 2**20))
        assert await writer.add(batch_of(1, first, lac=first - 1)) is Status.OK
        if first == 0:
            assert await writer.add(batch_of(1, 1, lac=0)) is Status.OK
        elif first == 1:
            continue
        answer = await reader.answer(poll)
        entries = payloads_of(answer)  # type: ignore[arg-type]  # checked by what it reads
        seen += entries
        known = EntryId(seen[-1])
        if known >= 18:
            break
    assert seen == list(range(len(seen)))
    assert known == 18
    await writer.close()
    await reader.close()


async def test_a_poll_is_woken_by_a_fence(bookie: Running) -> None:
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    poll = client.send_request(WaitLac(ONE, EntryId(0), 60_000, 2**20))
    assert await client.is_offered()
    await client.request(ReadLac(ONE, fence=True))
    await client.answer(poll)
    await client.close()


async def test_many_adds_share_their_acks(bookie: Running) -> None:
    client = await bookie.client(1)
    ids = [client.send_add(batch_of(1, first)) for first in range(500)]
    assert [await client.ack(each) for each in ids] == [Status.OK] * 500
    assert client.ack_frames < 250
    await client.close()


async def test_read_only_accepts_recovery_adds(bookie: Running) -> None:
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    async with aiohttp.ClientSession(bookie.admin_url) as http:
        async with http.post("/api/v1/read-only", json={"read_only": True}) as answer:
            told = await answer.json()
            assert (told["read_only"], told["writable"]) == (True, False)
            assert [each["reason"] for each in told["conditions"]] == ["operator"]
        assert await client.add(batch_of(1, 1)) is Status.READ_ONLY
        assert await client.add(batch_of(1, 1), recovery=True) is Status.OK
        assert not await client.is_offered()
        directory = BookieDirectory(bookie.store, bookie.process._rng)
        await directory.start()
        assert not directory.bookies[bookie.bookie_id].writable
        await directory.aclose()
        async with http.post("/api/v1/read-only", json={"read_only": False}) as answer:
            assert (await answer.json())["writable"]
    assert await client.add(batch_of(1, 2)) is Status.OK
    await client.close()


async def test_the_admin_port_shows_what_is_held(bookie: Running) -> None:
    client = await bookie.client(1, 2, 3)
    for ledger_id in (1, 2, 3):
        assert await client.add(batch_of(ledger_id, 0, [b"a", b"b"])) is Status.OK
    async with aiohttp.ClientSession(bookie.admin_url) as http:
        assert await _get(http, "/livez") == (200, {"status": "live"})
        assert await _get(http, "/readyz") == (200, {"status": "ready"})
        _, state = await _get(http, "/api/v1/state")
        assert (state["id"], state["ledger_count"]) == (bookie.bookie_id, 3)
        assert await _get(http, "/api/v1/ledgers?limit=2") == (
            200,
            {"ledgers": [1, 2], "next_after": 2},
        )
        assert await _get(http, "/api/v1/ledgers?after=2") == (200, {"ledgers": [3]})
        _, held = await _get(http, "/api/v1/ledgers/2/entries")
        assert (held["ranges"], held["complete"]) == ([[0, 1]], True)
        async with http.post("/api/v1/checkpoint") as answer:
            assert (await answer.json())["checkpoint_mark"] > 0
        async with http.post("/api/v1/clean") as answer:
            assert "freed_bytes" in await answer.json()
        async with http.get("/metrics") as answer:
            text = await answer.text()
    assert 'quire_bookie_adds_total{status="ok"} 3.0' in text
    assert "quire_bookie_storage_ledgers 3.0" in text
    assert 'quire_bookie_add_latency_seconds_bucket{le="+Inf"} 3.0' in text
    for name in ("storage_sync", "storage_checkpoint"):
        (counted,) = re.findall(rf"^quire_bookie_{name}_latency_seconds_count (.+)$", text, re.M)
        assert float(counted) > 0
    assert 'quire_bookie_read_only{reason="operator"} 0.0' in text
    assert "quire_bookie_limbo 0.0" in text
    await client.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/api/v1/ledgers/99/entries", 404),
        ("/api/v1/ledgers/-1/entries", 400),
        ("/api/v1/ledgers/x/entries", 400),
        ("/api/v1/ledgers/99999999999999999999/entries", 400),
        ("/api/v1/ledgers/1/entries?first=-1", 400),
        ("/api/v1/ledgers?limit=0", 400),
        ("/api/v1/ledgers?limit=" + "9" * 5000, 400),
        ("/api/v1/ledgers?after=%C2%B2", 400),
        ("/api/v1/checkpoint", 405),
    ],
)
async def test_admin_errors_are_json(bookie: Running, path: str, status: int) -> None:
    async with aiohttp.ClientSession(bookie.admin_url) as http:
        found, body = await _get(http, path)
    assert found == status
    assert body["error"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"read_only": 1}', b'{"read_only": true, "x": 1}', b"x" * 5000]
)
async def test_admin_bodies_are_checked(bookie: Running, body: bytes) -> None:
    async with (
        aiohttp.ClientSession(bookie.admin_url) as http,
        http.post("/api/v1/read-only", data=body) as answer,
    ):
        assert answer.status in (400, 413)
        assert (await answer.json())["error"]


async def test_request_from_a_web_page_is_refused(bookie: Running) -> None:
    headers = {"Origin": "https://example.org"}
    async with (
        aiohttp.ClientSession(bookie.admin_url) as http,
        http.post("/api/v1/read-only", json={"read_only": True}, headers=headers) as answer,
    ):
        assert answer.status == 403


async def test_two_processes_on_one_directory(machine: Machine, bookie: Running) -> None:
    with pytest.raises(DirectoryLockedError):
        await machine.start()


async def test_wiped_and_swapped_directories(machine: Machine) -> None:
    await machine.format("a")
    await machine.format("b")
    log_a, log_b, aside = machine.root / "a/log", machine.root / "b/log", machine.root / "aside"
    log_a.rename(aside)
    with pytest.raises(CookieMissingError, match="directory log"):
        await machine.start("a")
    log_b.rename(log_a)
    aside.rename(log_b)
    for name in ("a", "b"):
        with pytest.raises(
            CookieMismatchError, match="directory log does not belong to this bookie"
        ):
            await machine.start(name)
    shutil.rmtree(machine.root / "a")
    with pytest.raises(CookieMissingError, match="quire bookie format"):
        await machine.start("a")


async def test_old_copy_of_a_disk_answers_unknown(machine: Machine) -> None:
    bookie_id = await machine.format()
    await machine.create_ledger(1, bookie_id)
    bookie = await machine.start()
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    await client.close()
    await bookie.stop()
    shutil.copytree(machine.root / "a", machine.root / "copy")
    bookie = await machine.start()
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 1)) is Status.OK
    await client.request(ReadLac(ONE, fence=True))
    await client.close()
    await bookie.stop()
    for _ in range(2):  # and it is stored
        stale = await machine.start("copy")
        client = await stale.client(1, 2)
        found = await client.request_entries(_read(0, 1))
        assert (list(payloads_of(found)), found.status) == ([0], Status.UNKNOWN)
        unseen = ReadEntries(LedgerId(2), EntryId(0), EntryId(0), 9, fence=False)
        assert (await client.request_entries(unseen)).status is Status.UNKNOWN
        assert await client.add(batch_of(1, 2)) is Status.FENCED, "the fence may have been lost"
        assert not await client.is_offered()
        await client.close()
        await stale.stop()
    assert not (machine.root / "copy/identity/limbo").exists()


async def test_error_names_the_port_in_use(machine: Machine, bookie: Running) -> None:
    await machine.format("b")
    with pytest.raises(CannotListenError, match=f":{bookie.addresses.port}"):
        await machine.start("b", port=bookie.addresses.port)
    with pytest.raises(CannotListenError, match="admin"):
        await machine.start("b", admin_port=bookie.addresses.admin_port)


async def test_a_bookie_registers_itself_and_leaves(machine: Machine) -> None:
    bookie_id = await machine.format()
    bookie = await machine.start()
    watcher = machine.store()
    directory = BookieDirectory(watcher, machine.rng)
    await directory.start()
    registered = directory.bookies[bookie_id]
    assert (registered.host, registered.port) == (bookie.addresses.host, bookie.addresses.port)
    assert registered.admin_url == bookie.admin_url
    assert registered.writable
    await bookie.stop()
    async with asyncio.timeout(20):
        while bookie_id in directory.bookies:  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0.01)
    await directory.aclose()
    await watcher.aclose()


async def _get(http: aiohttp.ClientSession, path: str) -> tuple[int, dict[str, object]]:
    async with http.get(path) as answer:
        found: dict[str, object] = await answer.json()
        return answer.status, found


async def test_read_only_by_an_operator_survives_a_restart(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    await machine.format()
    for wanted in (True, False):
        running = await machine.start()
        try:
            async with (
                aiohttp.ClientSession(running.admin_url) as http,
                http.post("/api/v1/read-only", json={"read_only": wanted}) as answer,
            ):
                assert answer.status == 200
        finally:
            await running.stop()
        running = await machine.start()
        try:
            async with aiohttp.ClientSession(running.admin_url) as http:
                _, state = await _get(http, "/api/v1/state")
            assert state["writable"] is not wanted
            directory = BookieDirectory(running.store, machine.rng)
            await directory.start()
            (registered,) = directory.bookies.values()
            await directory.aclose()
            assert registered.features == (("condition:operator",) if wanted else ())
        finally:
            await running.stop()
