"""The open loop appends everything that was due, whatever its writers do."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from ledger_client import (
    BackpressureError,
    LedgerClient,
    LedgerClosedError,
    NotEnoughInSyncReplicasError,
    Quorum,
)
from metadata.ids import LedgerId
from quire.bench.journal import JournalWriter, read_journal
from quire.bench.open_load import Burst, OpenLoad, due_times

Take = Callable[["FakeWriter", int], None]


class FakeWriter:
    """A ledger of which the test decides the outcome of each append."""

    def __init__(self, ledger_id: LedgerId, take: Take) -> None:
        self.id = ledger_id
        self.taken: list[int] = []
        self.handles: list[asyncio.Future[int]] = []
        self.last_confirmed = self.last_pushed = self.fully_replicated_to = -1
        self.under_replicated = ()
        self.info = SimpleNamespace(fragments=[SimpleNamespace(ensemble=("a", "b"))])
        self._take = take

    def append_nowait(self, payload: bytes) -> "asyncio.Future[int]":
        self._take(self, len(self.taken))
        self.taken.append(int.from_bytes(payload[:8], "little"))
        self.handles.append(asyncio.get_running_loop().create_future())
        return self.handles[-1]

    def confirm(self) -> None:
        for entry_id, handle in enumerate(self.handles):
            if not handle.done():
                handle.set_result(entry_id)

    async def wait_fully_replicated(self, entry_id: int) -> None:
        assert entry_id >= 0

    async def abort(self) -> None:
        for handle in self.handles:
            if not handle.done():
                handle.set_exception(LedgerClosedError("aborted", ledger_id=self.id))

    async def aclose(self, *, timeout: float) -> None:
        assert timeout > 0


class FakeClient:
    """Opens the given ledgers one after the other."""

    def __init__(self, takes: list[Take]) -> None:
        self.writers: list[FakeWriter] = []
        self._takes = takes

    async def create_ledger(self, _: Quorum, *, timeout: float | None = None) -> FakeWriter:
        assert timeout is None or timeout > 0
        self.writers.append(FakeWriter(LedgerId(len(self.writers)), self._takes[len(self.writers)]))
        return self.writers[-1]

    def stats(self) -> SimpleNamespace:
        return SimpleNamespace(add_bytes_sent=0, adds_sent=0)


async def load(tmp_path: Path, takes: list[Take], count: int) -> FakeClient:
    """Run a load of appends that are all due now; return once all are acknowledged."""
    client, journal = FakeClient(takes), JournalWriter(tmp_path)
    loads = OpenLoad(cast("LedgerClient", client), Quorum.all(2), journal, 16)
    await loads.open()
    now = monotonic()
    await loads.run([(number, now) for number in range(count)], now, 30.0, ())
    await loads.close(1.0)
    journal.close()
    return client


def confirm_soon(writer: FakeWriter, _: int) -> None:
    asyncio.get_running_loop().call_soon(writer.confirm)


async def test_every_append_is_acknowledged_once_and_in_order(tmp_path: Path) -> None:
    client = await load(tmp_path, [confirm_soon], 50)
    assert client.writers[0].taken == list(range(50))
    assert [ack.number for ack in read_journal(tmp_path).acks] == list(range(50))


async def test_appends_refused_by_a_full_window_are_sent_later(tmp_path: Path) -> None:
    refused = iter([False] * 5 + [True] * 3 + [False] * 100)

    def take(writer: FakeWriter, number: int) -> None:
        if next(refused):
            raise BackpressureError("full", ledger_id=writer.id)
        confirm_soon(writer, number)

    client = await load(tmp_path, [take], 20)
    assert client.writers[0].taken == list(range(20))


async def test_appends_refused_for_too_few_replicas_are_sent_later_to_the_same_ledger(
    tmp_path: Path,
) -> None:
    refused = iter([False] * 5 + [True] * 3 + [False] * 100)

    def take(writer: FakeWriter, number: int) -> None:
        if next(refused):
            raise NotEnoughInSyncReplicasError("one is", ledger_id=writer.id)
        confirm_soon(writer, number)

    client = await load(tmp_path, [take], 20)
    assert client.writers[0].taken == list(range(20))
    assert read_journal(tmp_path).of_kind("load_ended")[0]["refused_count"] == 3


async def test_failed_appends_are_repeated_in_a_new_ledger(tmp_path: Path) -> None:
    def take(writer: FakeWriter, number: int) -> None:
        if number == 3:
            raise LedgerClosedError("ended", ledger_id=writer.id)

    client = await load(tmp_path, [take, confirm_soon], 10)
    assert client.writers[0].taken == [0, 1, 2]
    assert sorted(client.writers[1].taken) == list(range(10))
    journal = read_journal(tmp_path)
    assert sorted(ack.number for ack in journal.acks) == list(range(10))
    assert {ack.ledger_id for ack in journal.acks} == {1}
    assert journal.of_kind("load_ended")[0]["failed_appends"] == 3


async def test_appends_that_fail_together_open_one_new_ledger(tmp_path: Path) -> None:
    def take(writer: FakeWriter, number: int) -> None:
        if number == 9:
            asyncio.get_running_loop().call_soon(asyncio.ensure_future, writer.abort())

    client = await load(tmp_path, [take, *[confirm_soon] * 20], 10)
    assert len(client.writers) == 2
    assert sorted(client.writers[1].taken) == list(range(10))


RATES = st.floats(1, 5_000)
LENGTHS = st.floats(0.1, 5)


@given(RATES, LENGTHS)
def test_every_tick_of_the_rate_is_due_once(rate: float, seconds: float) -> None:
    times = due_times(rate, seconds)
    assert times == [number / rate for number in range(round(rate * seconds))]


@given(RATES, LENGTHS, st.lists(st.tuples(st.floats(0, 4), st.integers(1, 50)), max_size=4))
def test_bursts_are_added_to_the_regular_appends(
    rate: float, seconds: float, bursts: list[tuple[float, int]]
) -> None:
    times = due_times(rate, seconds, [Burst(at, count) for at, count in bursts])
    assert times == sorted(times)
    left = list(times)
    for at in due_times(rate, seconds):
        left.remove(at)
    assert left == sorted(at for at, count in bursts if at < seconds for _ in range(count))
