"""Unclean recovery and its writer: refused while the writer lives; fences after the close."""

import asyncio

import pytest

from ledger_client import (
    ClientClosedError,
    LedgerError,
    LedgerFencedError,
    LedgerNotFoundError,
    LedgerWriter,
    Quorum,
    RecoveryUndecidedError,
    WriterAliveError,
)
from tests.support.ledger_client.cluster import TestCluster
from tests.until import until

WAIT_S = 10.0


async def end_of(writer: LedgerWriter) -> LedgerError:
    """Append until the writer has ended; return its error."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await writer.append(b"more")
            except LedgerError as error:
                return error
            await asyncio.sleep(0.02)


async def lose_all(cluster: TestCluster, writer: LedgerWriter) -> None:
    for bookie_id in writer.members:
        await cluster.bookie(bookie_id).unregister()
        await cluster.bookie(bookie_id).stop()


async def test_unclean_recovery_is_refused_while_the_writer_lives(cluster: TestCluster) -> None:
    writer = await cluster.client().create_ledger(Quorum.in_sync(2, 1))
    await writer.append(b"0")
    operator = cluster.client(read_timeout_s=0.3)

    with pytest.raises(WriterAliveError, match="even_if_writer_lives"):
        await operator.recover_ledger_unclean(writer.id)

    assert (await operator.ledger_info(writer.id)).state == "open"
    assert await writer.append(b"1") == 1
    cluster.stores[0].suspend()
    cluster.stores[0].expire()
    assert (await operator.recover_ledger_unclean(writer.id)).last_entry_id == 1


async def test_unclean_recovery_of_a_ledger_in_recovery_is_not_refused(
    cluster: TestCluster,
) -> None:
    """Its writer, a broker that no longer leads, may live for years."""
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(Quorum.in_sync(2, 1))
    await writer.append(b"0")
    await lose_all(cluster, writer)
    operator = cluster.client(read_timeout_s=0.3)
    with pytest.raises(RecoveryUndecidedError):
        await operator.recover_ledger(writer.id)

    info = await operator.recover_ledger_unclean(writer.id, gives_up_all=True)

    assert info.last_entry_id == -1


@pytest.mark.parametrize("ends", ["recovered", "deleted"])
async def test_an_idle_writer_learns_that_its_ledger_ended(cluster: TestCluster, ends: str) -> None:
    writer = await cluster.client().create_ledger(Quorum.in_sync(2, 2))
    await writer.append(b"0")
    assert writer.is_usable
    if ends == "recovered":
        await cluster.client().recover_ledger(writer.id)
    else:
        await cluster.client().delete_ledger(writer.id)

    await until(lambda: not writer.is_usable, WAIT_S)

    wanted = LedgerFencedError if ends == "recovered" else LedgerNotFoundError
    assert isinstance(await end_of(writer), wanted)


async def test_a_lost_member_is_fenced_when_it_returns(cluster: TestCluster) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(Quorum.in_sync(2, 1))
    await writer.append(b"0")
    first, second = (cluster.bookie(each) for each in writer.members)
    await lose_all(cluster, writer)
    operator = cluster.client(read_timeout_s=0.3)
    await operator.recover_ledger_unclean(writer.id, gives_up_all=True, even_if_writer_lives=True)
    held = second.ledgers[writer.id]
    assert not held.is_fenced
    with pytest.raises(TimeoutError):
        await operator.wait_for_fences(writer.id, timeout=0.01)

    for bookie in (first, second):
        await bookie.start()
        await bookie.register(cluster.stores[-1])

    assert await operator.wait_for_fences(writer.id, timeout=WAIT_S) == ()
    assert second.ledgers[writer.id].is_fenced


async def test_the_end_of_a_client_ends_its_fences(cluster: TestCluster) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(Quorum.in_sync(2, 1))
    await writer.append(b"0")
    await lose_all(cluster, writer)
    operator = cluster.client(read_timeout_s=0.3)
    await operator.recover_ledger_unclean(writer.id, gives_up_all=True, even_if_writer_lives=True)
    waiting = asyncio.ensure_future(operator.wait_for_fences(writer.id))
    await asyncio.sleep(0)

    await operator.aclose()

    with pytest.raises(ClientClosedError):
        await waiting
