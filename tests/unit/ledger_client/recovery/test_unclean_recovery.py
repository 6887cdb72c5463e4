"""Unclean recovery and its writer: refused while the writer lives; fences after the close."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from bookie.wire.messages import ReadEntries, Reply, Request
from ledger_client import (
    ClientClosedError,
    ClientConfig,
    LedgerError,
    LedgerFencedError,
    LedgerNotFoundError,
    LedgerWriter,
    Quorum,
    RecoveryUndecidedError,
    WriterAliveError,
)
from ledger_client.digest import LedgerKeys
from ledger_client.recovery.unclean_recovery import UncleanRecovery
from metadata.ids import UpdateToken
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from tests.simulation.loop import run_simulation
from tests.support.ledger_client.cluster import TestCluster, entries_of
from tests.support.ledger_client.memory_bookies import MemoryBookies
from tests.support.ledger_client.storing_bookie import StoringBookie
from tests.support.sample_ledgers import ledger_of
from tests.until import WAIT_S, until


async def end_of(writer: LedgerWriter) -> LedgerError:
    """Append until the writer has ended; return its error."""
    while True:
        try:
            await writer.append(b"more")
        except LedgerError as error:
            return error
        await asyncio.sleep(0.02)


async def lose(bookie: StoringBookie) -> None:
    await bookie.unregister()
    await bookie.stop()


async def lose_all(cluster: TestCluster, writer: LedgerWriter) -> None:
    for bookie_id in writer.members:
        await lose(cluster.bookie(bookie_id))


async def bring_back(cluster: TestCluster, bookie: StoringBookie) -> None:
    await bookie.start()
    await bookie.register(cluster.stores[-1])


async def returned_member_of_three_fragments(
    cluster: TestCluster,
) -> tuple[LedgerWriter, StoringBookie, StoringBookie]:
    """Write entries 0 and 1 to two members, and 2 and 3 to one; then the other one returns.

    Returns the writer, the member with all entries, and the returned one, to which nothing can be
    copied. The last fragment, from entry 4 on, has both.
    """
    client = cluster.client(spare_after_s=1000.0, copy_bytes_per_s=1.0)
    writer = await client.create_ledger(Quorum.in_sync(2, 1))
    await writer.append_many([b"0", b"1"])
    stays, returns = (cluster.bookie(member) for member in writer.members)
    await lose(returns)
    await writer.append_many([b"2", b"3"])
    assert writer.members == (stays.id,)

    def answer(request: Request) -> Reply | bytes | None:
        is_copied = isinstance(request, ReadEntries) and not request.fence
        return None if is_copied else stays.stored_answer(request)

    stays.answer = answer
    await bring_back(cluster, returns)
    await until(lambda: len(writer.members) == 2)
    return writer, stays, returns


async def test_a_member_that_holds_nothing_of_the_last_fragment_does_not_prevent_its_loss(
    cluster: TestCluster,
) -> None:
    """Entries 2 and 3, which the lost member alone held, are given up, and nothing else."""
    writer, stays, returns = await returned_member_of_three_fragments(cluster)
    await lose(stays)
    operator = cluster.client(read_timeout_s=0.3)
    with pytest.raises(RecoveryUndecidedError, match="entry 3") as raised:
        await operator.recover_ledger(writer.id)
    assert raised.value.is_last_fragment_empty

    info = await operator.recover_ledger_unclean(writer.id)

    assert info.last_entry_id == 1
    given_up = [(part.first_entry_id, part.ensemble) for part in info.given_up]
    assert given_up == [(2, (stays.id,)), (4, (stays.id, returns.id))]
    assert await entries_of(operator, writer.id, 1) == [b"0", b"1"]
    await writer.abort()


async def test_unclean_recovery_closes_behind_what_a_returned_member_holds(
    cluster: TestCluster,
) -> None:
    """Its entries have the length before them, so that the ledger closes and nothing is given
    up.
    """
    writer, stays, returns = await returned_member_of_three_fragments(cluster)
    assert await writer.append_many([b"4", b"5"]) == range(4, 6)
    await until(lambda: returns.ledgers[writer.id].lac == 5)
    await lose(stays)
    operator = cluster.client(read_timeout_s=0.3)

    info = await operator.recover_ledger_unclean(writer.id, even_if_writer_lives=True)

    assert (info.last_entry_id, info.length, info.given_up) == (5, 6, ())
    await writer.abort()


async def test_unclean_recovery_gives_up_nothing_that_a_returned_member_confirmed(
    cluster: TestCluster,
) -> None:
    """It does not return entry 5, which it confirmed: another start of it may."""
    writer, stays, returns = await returned_member_of_three_fragments(cluster)
    await writer.append_many([b"4", b"5"])
    await until(lambda: returns.ledgers[writer.id].lac == 5)
    await lose(stays)
    returns.damage(writer.id, 4)
    returns.damage(writer.id, 5)
    operator = cluster.client(read_timeout_s=0.3)

    with pytest.raises(RecoveryUndecidedError, match="entry 5") as raised:
        await operator.recover_ledger_unclean(writer.id, even_if_writer_lives=True)

    assert not raised.value.is_last_fragment_empty
    assert (await operator.ledger_info(writer.id)).state == "in_recovery"
    await writer.abort()


def test_an_empty_last_fragment_is_not_given_up_once_the_lost_member_is_back() -> None:
    async def main() -> None:
        metadata = replace(
            ledger_of((0, "ab"), (2, "a"), (4, "ab"), quorum=Quorum.in_sync(2, 1).spec),
            state=LedgerState.IN_RECOVERY,
        )
        keys = LedgerKeys.of(metadata, b"")
        bookies = MemoryBookies("ab", keys)
        bookies.write(0, [b"0", b"1"], lac=-1, length_before=0, to="a,b")
        bookies.write(2, [b"2", b"3"], lac=1, length_before=2, to="a")
        ledgers = LedgerStore(MemoryMetadataStore(MemoryMetadataServer()), Random(1), lambda: 0)
        await ledgers.create(metadata)
        recovery = UncleanRecovery(
            pool=bookies.pool,
            ledgers=ledgers,
            keys=keys,
            config=ClientConfig(),
            rng=Random(2),
            draw_token=lambda: UpdateToken(bytes(16)),
            is_last_fragment_empty=True,
        )

        closed = await recovery.close()

        assert (closed.last_entry_id, closed.length, closed.given_up) == (3, 4, ())
        assert closed.fragments == metadata.fragments

    run_simulation(main, 1, until_s=60)


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

    await until(lambda: not writer.is_usable)

    wanted = LedgerFencedError if ends == "recovered" else LedgerNotFoundError
    assert isinstance(await end_of(writer), wanted)


async def test_a_lost_member_is_fenced_when_it_returns(cluster: TestCluster) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(Quorum.in_sync(2, 1))
    await writer.append(b"0")
    first, second = (cluster.bookie(member) for member in writer.members)
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
