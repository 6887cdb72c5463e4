"""An exception inside an append, after entries got their ids: the writer ends with a typed error,
and no entry is confirmed by the confirmation of another one.
"""

import asyncio
from typing import Any

import pytest

from bookie.wire.batch import build_batch
from ledger_client import LedgerError, LedgerWriter
from ledger_client.encryption.keys import Encryption
from ledger_client.writing import outbox
from ledger_client.writing.outbox import SentBatch
from tests.support.ledger_client.cluster import THREE, TestCluster

ENCRYPTIONS = [None, Encryption(lambda _: bytes(range(32)), "k1")]


class Fault:
    """Makes one call fail, with MemoryError; keeps what was reported to the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.reported: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: self.reported.append(what["exception"]))

    def set_in(self, name: str, works: Any, *, after: int = 0) -> None:
        """Let one call of a function of the outbox fail, after some that do not."""
        left = [after]

        def failing(*args: object) -> object:
            left[0] -= 1
            if left[0] == -1:
                raise MemoryError("injected")
            return works(*args)

        self._monkeypatch.setattr(outbox, name, failing)


@pytest.fixture
async def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    return Fault(monkeypatch)


async def opened(cluster: TestCluster, encryption: Encryption | None) -> LedgerWriter:
    writer = await cluster.client().create_ledger(THREE, encryption=encryption)
    assert await writer.append(b"zero") == 0
    return writer


async def check_ended(writer: LedgerWriter, fault: Fault, *, last: int) -> None:
    assert not writer.is_usable
    assert [type(error) for error in fault.reported] == [MemoryError]
    async with asyncio.timeout(5):
        with pytest.raises(LedgerError, match="MemoryError: injected") as refused:
            await writer.append(b"later")
        assert refused.value.outcome == "not_written"
        with pytest.raises(LedgerError, match="continue in a new one"):
            await writer.aclose()
    assert (writer.info.state, writer.info.last_entry_id) == ("closed", last)


@pytest.mark.parametrize("encryption", ENCRYPTIONS)
@pytest.mark.parametrize(
    ("name", "works"), [("build_batch", build_batch), ("SentBatch", SentBatch)]
)
async def test_no_id_of_a_lost_entry_is_used_again(
    cluster: TestCluster, fault: Fault, encryption: Encryption | None, name: str, works: object
) -> None:
    writer = await opened(cluster, encryption)
    fault.set_in(name, works)
    first = [asyncio.create_task(writer.append(b"lost %d" % n)) for n in range(3)]
    done, _ = await asyncio.wait(first, timeout=5)
    assert len(done) == 3
    for number, task in enumerate(first):
        error = task.exception()
        assert isinstance(error, LedgerError)
        assert (error.entry_id, error.outcome) == (1 + number, "unknown")
        assert isinstance(error.__cause__, MemoryError)
    await check_ended(writer, fault, last=0)


async def test_entries_of_a_second_batch_are_not_lost_silently(
    cluster: TestCluster, fault: Fault
) -> None:
    writer = await cluster.client(batch_entries_max=2).create_ledger(THREE)
    fault.set_in("build_batch", build_batch, after=1)
    handles = [writer.append_nowait(b"entry %d" % n) for n in range(6)]
    done, _ = await asyncio.wait(handles, timeout=5)
    assert len(done) == 6
    assert all(isinstance(handle.exception(), LedgerError) for handle in handles)
    await check_ended(writer, fault, last=-1)


async def test_append_many_raises_the_error_that_ended_the_writer(
    cluster: TestCluster, fault: Fault
) -> None:
    writer = await opened(cluster, None)
    fault.set_in("build_batch", build_batch)
    waiting = writer.append_nowait(b"waits for the same window")
    await asyncio.sleep(0)
    with pytest.raises(LedgerError, match="MemoryError: injected"):
        await writer.append_many([b"lost"] * 10)
    assert isinstance(waiting.exception(), LedgerError)
    await check_ended(writer, fault, last=0)


async def test_another_writer_of_the_client_continues(cluster: TestCluster, fault: Fault) -> None:
    client = cluster.client()
    failing, other = await client.create_ledger(THREE), await client.create_ledger(THREE)
    fault.set_in("build_batch", build_batch)
    lost, kept = failing.append_nowait(b"lost"), other.append_nowait(b"kept")
    assert await kept == 0
    assert isinstance(lost.exception(), LedgerError)
    await other.aclose()
    await check_ended(failing, fault, last=-1)
