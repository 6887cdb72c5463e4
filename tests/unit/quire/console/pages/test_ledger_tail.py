"""Live tail of a ledger, with a reader that a test moves on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from ledger_client import LedgerError, LedgerNotFoundError, UnauthorizedError
from quire.console.entries import ENTRIES_MAX
from quire.console.options import ConsoleOptions
from quire.console.pages import ledger_page as ledger_tail
from tests.support.quire.console import open_console
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import open_ledger

OPTIONS = ConsoleOptions(metadata="zk://nowhere:1/cluster", port=0)


class Reader:
    """A reader of a ledger whose last confirmed entry jumps."""

    def __init__(self, *jumps: int, error: LedgerError | None = None) -> None:
        self._jumps = list(jumps)
        self._error = error
        self.last_confirmed = self._jumps.pop(0)
        self.is_closed = False
        self.read_ids: list[int] = []

    async def learn_last_confirmed(self) -> int:
        return self.last_confirmed

    async def wait_confirmed(self, beyond: int, *, timeout: float) -> int:
        assert timeout == ledger_tail.IDLE_S
        if self.last_confirmed <= beyond and self._jumps:
            self.last_confirmed = self._jumps.pop(0)
        elif self.last_confirmed <= beyond:
            if self._error is not None:
                raise self._error
            self.is_closed = True
        return self.last_confirmed

    async def read(
        self, first: int, last: int, *, timeout: float
    ) -> AsyncIterator[list[SimpleNamespace]]:
        assert timeout > 0
        self.read_ids += range(first, last + 1)
        yield [
            SimpleNamespace(id=number, data=b"<b>%d\n" % number)
            for number in range(first, last + 1)
        ]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_tail, "PAUSE_S", 0.0)


def use(monkeypatch: pytest.MonkeyPatch, reader: Reader) -> None:
    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[Reader]:
        yield reader

    monkeypatch.setattr(ledger_tail, "open_reader", opened)


def events_of(text: str) -> list[dict[str, str]]:
    """Return the fields of each event."""
    blocks = [part for part in text.split("\n\n") if part.startswith("event:")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


async def events(query: str = "", **headers: str) -> list[dict[str, str]]:
    async with open_console(OPTIONS) as (_, browser):
        answer = await browser.get(f"/ledgers/7/tail{query}", **headers)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    return events_of(answer.text)


@pytest.fixture
async def _ledger(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b", "c")
    await memory_cluster.add(open_ledger("abc"))


@pytest.mark.usefixtures("_ledger")
async def test_new_entries_until_the_ledger_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Reader(30, 32))
    first, second, end = await events()
    value = json.loads(first["data"])
    assert [each["id"] for each in value["entries"]] == list(range(21, 31))
    assert value["entries"][0] == {"id": 21, "text": "<b>21\n", "length": 6, "cut": False}
    assert value["skipped"] == 0
    assert [load["id"] for load in json.loads(second["data"])["entries"]] == [31, 32]
    assert second["id"] == "32"
    assert end == {"event": "end", "data": "The ledger is closed: its last entry is 32."}


@pytest.mark.usefixtures("_ledger")
async def test_entries_that_come_too_fast_are_counted_and_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader(0, 1_000)
    use(monkeypatch, reader)
    _, fast, _ = await events()
    assert json.loads(fast["data"])["skipped"] == 1_000 - ENTRIES_MAX
    assert len(reader.read_ids) == 1 + ENTRIES_MAX


@pytest.mark.usefixtures("_ledger")
async def test_a_browser_that_comes_back_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Reader(30))
    first, _ = await events("?after=3", Last_Event_ID="28")
    assert [load["id"] for load in json.loads(first["data"])["entries"]] == [29, 30]
    use(monkeypatch, Reader(30))
    first, _ = await events("?after=29&as=hex")
    (entry,) = json.loads(first["data"])["entries"]
    assert entry["text"].startswith("00000000  3c 62 3e")


@pytest.mark.usefixtures("_ledger")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnauthorizedError("refused"), ledger_tail.PASSWORD_NEEDED),
        (LedgerNotFoundError("it was\ndeleted"), "it was deleted"),
    ],
)
async def test_failures_end_the_stream_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: LedgerError, said: str
) -> None:
    use(monkeypatch, Reader(-1, error=error))
    (end,) = await events()
    assert end == {"event": "end", "data": said}


@pytest.mark.usefixtures("_ledger")
async def test_the_number_of_streams_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_tail, "STREAMS_MAX", 1)
    began, may_end = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[Reader]:
        began.set()
        await may_end.wait()
        yield Reader(-1)

    monkeypatch.setattr(ledger_tail, "open_reader", opened)
    async with open_console(OPTIONS) as (_, browser), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(browser.get("/ledgers/7/tail"))
        await began.wait()
        refused = await browser.get("/ledgers/7/tail")
        may_end.set()
        await first
        again = await browser.get("/ledgers/7/tail")
    assert ledger_tail.TOO_MANY in refused.text
    assert "is closed" in first.result().text
    assert "is closed" in again.text


@pytest.mark.usefixtures("_ledger")
async def test_a_stream_ends_so_that_a_login_is_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_tail, "STREAM_S", 0.01)

    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[Reader]:
        await asyncio.Event().wait()
        yield Reader(-1)

    monkeypatch.setattr(ledger_tail, "open_reader", opened)
    assert await events() == []


async def test_no_such_ledger(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    async with open_console(OPTIONS) as (_, browser):
        assert (await browser.get("/ledgers/7/tail")).status == 404
