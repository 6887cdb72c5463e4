"""Errors of calls that the client refuses or cannot complete, through the public API (4.7, 5.5,
7.3).
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bookie.wire.messages import Status
from ledger_client import (
    BackpressureError,
    BookieQuarantined,
    ClientClosedError,
    DigestMismatchError,
    EnsembleChanged,
    EntryConflictError,
    EntryNotFoundError,
    EntryTooLargeError,
    LedgerClient,
    LedgerError,
    LedgerExistsError,
    LedgerNotFoundError,
    MetadataConflictError,
    MetadataTooLargeError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    Quorum,
    QuorumTimeoutError,
    RecoveryUndecidedError,
    TooManyFragmentsError,
    UnauthorizedError,
)
from ledger_client.protocol import append
from metadata.paths import ledger_path
from tests.support.ledger_client.cluster import THREE, TestCluster, entries_of
from tests.support.metadata.scripted_faults import ScriptedFaults


async def test_not_enough_bookies(cluster: TestCluster) -> None:
    await cluster.add_bookie(writable=False)
    client = cluster.client()
    with pytest.raises(NotEnoughBookiesError) as caught:
        await client.create_ledger(Quorum.all(5))
    error = caught.value
    assert (error.needed, error.seen, error.retriable) == (5, 4, True)
    assert error.excluded == {"bookie-4": "read-only"}
    assert error.outcome == "not_written"
    assert "bookie-4: read-only" in str(error)


async def test_an_id_is_used_once(cluster: TestCluster) -> None:
    client = cluster.client()
    async with client.create_ledger(THREE, ledger_id=9):
        pass
    with pytest.raises(LedgerExistsError) as caught:
        await client.create_ledger(THREE, ledger_id=9)
    assert caught.value.ledger_id == 9


async def test_an_id_that_a_client_was_given_cannot_be_chosen(cluster: TestCluster) -> None:
    client = cluster.client()
    async with client.create_ledger(THREE) as ledger:
        pass
    await client.delete_ledger(ledger.id)
    with pytest.raises(LedgerExistsError, match="choose a much higher id"):
        await client.create_ledger(THREE, ledger_id=ledger.id)
    async with client.create_ledger(THREE, ledger_id=10**12):
        pass


async def test_ids_chosen_by_others_are_skipped(cluster: TestCluster) -> None:
    client = cluster.client()
    async with client.create_ledger(THREE, ledger_id=2):
        pass
    for expected in (1, 3):
        async with client.create_ledger(THREE) as ledger:
            assert ledger.id == expected


async def test_an_entry_that_no_bookie_takes_ends_the_writer_at_once(cluster: TestCluster) -> None:
    """An earlier version changed the ensemble on every refusal: hundreds of times until the
    deadline.
    """
    for _ in range(3):
        await cluster.add_bookie()
    for bookie in cluster.bookies:
        bookie.entry_bytes_max = 1_000_000
    client = cluster.client()
    writer = await client.create_ledger(THREE)
    await writer.append(b"small")
    with pytest.raises(LedgerError, match="entry_bytes_max"):
        await writer.append(bytes(1_000_001))
    with pytest.raises(LedgerError, match="entry_bytes_max"):
        await writer.aclose()
    changes = [event for event in cluster.events if isinstance(event, EnsembleChanged)]
    assert len(changes) <= 2
    avoided = [event.bookie_id for event in cluster.events if isinstance(event, BookieQuarantined)]
    assert avoided
    assert len(avoided) == len({*avoided}), "once each, however many adds it refused"
    info = await client.ledger_info(writer.id)
    assert (info.state, info.last_entry_id) == ("closed", 0)
    async with client.create_ledger(THREE) as other:
        assert await other.append(b"x") == 0


@pytest.mark.parametrize("ledger_id", [-1, 2**63])
async def test_ids_out_of_range(cluster: TestCluster, ledger_id: int) -> None:
    client = cluster.client()
    for call in (client.ledger_info, client.delete_ledger, client.recover_ledger):
        with pytest.raises(ValueError, match="is not a ledger id"):
            await call(ledger_id)
    with pytest.raises(ValueError, match="is not a ledger id"):
        await client.open_ledger(ledger_id)
    with pytest.raises(ValueError, match="is not a ledger id"):
        await client.create_ledger(THREE, ledger_id=ledger_id)


async def test_invalid_arguments(cluster: TestCluster) -> None:
    client = cluster.client()
    with pytest.raises(ValueError, match="md5"):
        client.create_ledger(THREE, digest="md5")
    with pytest.raises(TypeError, match="'n' does not"):
        client.create_ledger(THREE, metadata={"n": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="zk://"):
        LedgerClient("http://somewhere/")


async def test_a_lag_limit_above_the_append_deadline_is_refused(cluster: TestCluster) -> None:
    patient = Quorum.in_sync(3, 2, replica_lag_time_max=30.0)
    with pytest.raises(ValueError, match="must be below append_deadline_s"):
        await cluster.client().create_ledger(patient)


async def test_metadata_over_the_limit(cluster: TestCluster) -> None:
    with pytest.raises(MetadataTooLargeError):
        await cluster.client().create_ledger(THREE, metadata={"blob": bytes(10**6)})


async def test_an_entry_over_the_limit(cluster: TestCluster) -> None:
    client = cluster.client(entry_bytes_max=1000)
    async with client.create_ledger(THREE) as ledger:
        with pytest.raises(EntryTooLargeError) as caught:
            await ledger.append(bytes(1001))
        assert (caught.value.size, caught.value.limit) == (1001, 1000)
        assert await ledger.append(bytes(1000)) == 0


@pytest.mark.parametrize("digest", ["crc32c", "hmac-sha256"])
@pytest.mark.parametrize("closed", [True, False])
async def test_the_wrong_password(cluster: TestCluster, digest: str, closed: bool) -> None:
    client, other = cluster.client(), cluster.client()
    ledger = await client.create_ledger(THREE, digest=digest, password=b"the right password")
    await ledger.append(b"secret")
    if closed:
        await ledger.aclose()
    with pytest.raises(UnauthorizedError):
        await other.open_ledger(ledger.id, password=b"wrong")
    with pytest.raises(UnauthorizedError):
        await other.open_ledger(ledger.id)
    if not closed:
        with pytest.raises(UnauthorizedError):
            await other.recover_ledger(ledger.id, password=b"wrong")
        with pytest.raises(UnauthorizedError, match="another password"):
            await client.open_ledger(ledger.id, password=b"wrong")
    assert await entries_of(other, ledger.id, 0, b"the right password") == [b"secret"]


async def test_a_new_ledger_has_no_password_that_can_be_guessed(cluster: TestCluster) -> None:
    client = cluster.client()
    for short in (b"p", b"15 bytes of it."):
        with pytest.raises(ValueError, match=r"could be guessed: use at least 16 random ones"):
            await client.create_ledger(THREE, password=short)
    async with client.create_ledger(THREE, password=b"16 bytes of that"):
        pass


async def test_entries_that_do_not_exist(cluster: TestCluster) -> None:
    client = cluster.client()
    async with client.create_ledger(THREE) as ledger:
        await ledger.append(b"x")
    async with client.open_ledger(ledger.id) as reader:
        with pytest.raises(EntryNotFoundError):
            await reader.read_entry(1)


async def test_other_bytes_at_an_id(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        ledger = await client.create_ledger(Quorum.all(3))
        await ledger.append(b"x")
        for bookie in cluster.bookies:
            bookie.refuse_adds = Status.CONFLICT
        with pytest.raises(EntryConflictError):
            await ledger.append(b"y")


async def test_bookies_that_never_answer(cluster: TestCluster) -> None:
    client = cluster.client(append_deadline_s=0.3, suspect_after_min_s=5, suspect_after_max_s=9)
    ledger = await client.create_ledger(Quorum.all(3))
    await ledger.append(b"x")
    for bookie in cluster.bookies:
        bookie.is_silent = True
    with pytest.raises(QuorumTimeoutError) as caught:
        await ledger.append(b"y")
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.outcome == "unknown"


async def test_recovery_without_the_bookies(cluster: TestCluster) -> None:
    client, other = cluster.client(), cluster.client(call_timeout_s=3)
    ledger = await client.create_ledger(Quorum.all(3))
    await ledger.append(b"x")
    for bookie in cluster.bookies:
        await bookie.stop()
    with pytest.raises(RecoveryUndecidedError) as caught:
        await other.recover_ledger(ledger.id)
    assert caught.value.retriable
    assert sorted(caught.value.missing) == sorted(ledger.info.bookies)
    assert (await other.ledger_info(ledger.id)).state == "in_recovery"


# -- metadata that does not answer ----------------------------------------------------------------


@pytest.fixture
async def stalling() -> AsyncIterator[tuple[TestCluster, ScriptedFaults]]:
    faults = ScriptedFaults()
    cluster = TestCluster(faults)
    for _ in range(3):
        await cluster.add_bookie()
    yield cluster, faults
    faults.gate.set()
    await cluster.aclose()


async def test_metadata_that_never_answers(stalling: tuple[TestCluster, ScriptedFaults]) -> None:
    cluster, faults = stalling
    client = cluster.client(call_timeout_s=0.3, metadata_timeout_s=0.3)
    ledger = await client.create_ledger(THREE)
    faults.gate.clear()
    assert await ledger.append(b"x") == 0, "appending needs no metadata"
    for call in (client.ledger_info(1), client.delete_ledger(1), client.recover_ledger(1)):
        with pytest.raises(MetadataUnavailableError) as caught:
            await call
        assert caught.value.retriable
        assert "memory" in str(caught.value), "the address is named"
    with pytest.raises(MetadataUnavailableError) as caught:
        await client.create_ledger(THREE, timeout=0.1)
    assert caught.value.outcome == "unknown"
    with pytest.raises(MetadataUnavailableError):
        await client.open_ledger(ledger.id, timeout=0.1)


async def test_a_start_without_an_answer_ends(
    stalling: tuple[TestCluster, ScriptedFaults],
) -> None:
    cluster, faults = stalling
    faults.gate.clear()
    client = cluster.client(metadata_timeout_s=0.1)
    with pytest.raises(MetadataUnavailableError):
        await client.__aenter__()


async def test_a_create_whose_answer_is_lost_is_decided(
    stalling: tuple[TestCluster, ScriptedFaults],
) -> None:
    cluster, faults = stalling
    client = cluster.client()
    with pytest.raises(LedgerNotFoundError):
        await client.ledger_info(1)
    faults.acts = ["lost"]
    async with client.create_ledger(THREE, ledger_id=12) as ledger:
        assert await ledger.append(b"x") == 0
    assert not faults.acts


async def test_closing_while_starting(stalling: tuple[TestCluster, ScriptedFaults]) -> None:
    cluster, faults = stalling
    faults.gate.clear()
    client = cluster.client()
    call = asyncio.create_task(client.ledger_info(1))
    await asyncio.sleep(0.02)
    await client.aclose()
    with pytest.raises(ClientClosedError):
        await call


# -- damage, limits, pressure ---------------------------------------------------------------------


@pytest.mark.parametrize("digest", ["crc32c", "hmac-sha256"])
async def test_damage_at_every_replica(cluster: TestCluster, digest: str) -> None:
    client = cluster.client()
    async with client.create_ledger(Quorum.all(3), digest=digest) as ledger:
        await ledger.append(b"precious")
    for bookie in cluster.bookies:
        bookie.damage(ledger.id, 0)
    async with client.open_ledger(ledger.id) as reader:
        with pytest.raises(DigestMismatchError) as caught:
            await reader.read_entry(0)
    assert caught.value.ledger_id == ledger.id


async def test_damage_at_one_replica_does_not_fail_a_read(cluster: TestCluster) -> None:
    client = cluster.client()
    async with client.create_ledger(Quorum.all(3)) as ledger:
        await ledger.append(b"precious")
    cluster.bookie(ledger.info.bookies[0]).damage(ledger.id, 0)
    assert await entries_of(client, ledger.id, 0) == [b"precious"]


async def test_a_full_window(cluster: TestCluster) -> None:
    client = cluster.client(window_entries_max=2)
    ledger = await client.create_ledger(Quorum.all(3))
    handles = [ledger.append_nowait(b"x"), ledger.append_nowait(b"y")]
    with pytest.raises(BackpressureError) as caught:
        ledger.append_nowait(b"z")
    assert (caught.value.retriable, caught.value.outcome) == (True, "not_written")
    assert await asyncio.gather(*handles) == [0, 1]
    assert await ledger.append(b"z") == 2, "append waits instead"


async def test_unreadable_metadata(cluster: TestCluster) -> None:
    client = cluster.client()
    async with client.create_ledger(THREE) as ledger:
        pass
    path = ledger_path(ledger.id)
    stored = await cluster.stores[0].get(path)
    await cluster.stores[0].compare_and_set(path, b"garbage", stored.version)
    with pytest.raises(MetadataConflictError, match="cannot be read"):
        await client.ledger_info(ledger.id)


async def test_a_ledger_with_too_many_fragments(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "FRAGMENTS_MAX", 1)
    client = cluster.client()
    ledger = await client.create_ledger(THREE)
    await ledger.append(b"x")
    await cluster.bookie(ledger.info.bookies[0]).stop()
    with pytest.raises(TooManyFragmentsError):
        while True:
            await ledger.append(b"y")


async def test_ids_of_another_type(cluster: TestCluster) -> None:
    client = cluster.client()
    with pytest.raises(TypeError, match=r"a ledger id is an int, not the str '7': use int"):
        client.open_ledger("7")  # type: ignore[arg-type]


async def test_a_ledger_that_is_not_open_yet_says_so(cluster: TestCluster) -> None:
    client = cluster.client()
    opening = client.create_ledger(THREE)
    with pytest.raises(AttributeError, match=r"no 'append': write `await` before the call"):
        opening.append(b"x")  # type: ignore[attr-defined]
    async with opening as ledger:
        assert await ledger.append(b"x") == 0
