"""Recoveries end to end, against bookies in memory, in virtual time (protocol rules 7.1-7.6)."""

import asyncio

import pytest

from bookie.wire.messages import Status
from ledger_client.bookies.pool import CallFailure
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    EntryConflictError,
    LedgerNotFoundError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    RecoveryUndecidedError,
    UnauthorizedError,
)
from metadata.ids import BookieId, EntryId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    DigestType,
    LedgerState,
)
from tests.support.ledger_client.ledger_world import LEDGER, length, payloads
from tests.support.ledger_client.recovery_world import Up, World, run

DIGESTS = pytest.mark.parametrize("digest", list(DigestType))


@DIGESTS
def test_an_empty_ledger_closes_at_nothing(digest: DigestType) -> None:
    async def scenario(world: World) -> None:
        closed = await world.recover()
        assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, -1, 0)
        fenced = [b for b, bookie in world.bookies.bookies.items() if bookie.is_fenced]
        assert len(fenced) >= 2

    run(scenario, digest=digest)


@DIGESTS
def test_an_unconfirmed_tail_on_one_bookie_is_kept_and_replicated(digest: DigestType) -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        world.bookies.write(5, payloads(5, 3), lac=4, length_before=length(5), to="b")
        closed = await world.recover()
        assert (closed.last_entry_id, closed.length) == (7, length(8))
        assert len(world.copies(7)) >= 2

    run(scenario, digest=digest)


@DIGESTS
def test_a_lac_in_the_middle_of_a_batch(digest: DigestType) -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 10), lac=-1, length_before=0, to="a,b")
        world.bookies["a"].advance(6)
        closed = await world.recover()
        assert (closed.last_entry_id, closed.length) == (9, length(10))

    run(scenario, digest=digest)


def test_the_length_of_an_idle_ledger_is_found_after_slices() -> None:
    async def scenario(world: World) -> None:
        first = 0
        while first < 300:
            batch = payloads(first, 50)
            before = length(first)
            world.bookies.write(first, batch, lac=first - 1, length_before=before, to="a,b,c")
            first += 50
        for name in "abc":
            world.bookies[name].advance(299)
        closed = await world.recover()
        assert (closed.last_entry_id, closed.length) == (299, length(300))

    run(scenario)


@pytest.mark.parametrize("count", [3, 40, 1100])
def test_the_length_of_an_idle_ledger_does_not_need_an_earlier_fragment(count: int) -> None:
    """The batch at the start of the last fragment has the length before it."""

    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 3), lac=-1, length_before=0, to="a,b,c")
        changed = world.metadata.with_ensemble_change(
            EntryId(3), (BookieId("d"), BookieId("e"), BookieId("f")), UpdateToken(bytes(16))
        )
        world.version = await world.ledgers.compare_and_set(changed, world.version)
        world.metadata = changed
        world.bookies.write(3, payloads(3, count), lac=2, length_before=length(3), to="d,e,f")
        for name in "def":
            world.bookies[name].advance(2 + count)
        for name in "abc":
            world.bookies[name].failure = CallFailure.LOST
        closed = await world.recover()
        assert (closed.last_entry_id, closed.length) == (2 + count, length(3 + count))

    run(scenario)


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 3, 3, 16), (5, 3, 2, 16), (5, 3, 2, 1)])
def test_many_unconfirmed_entries_are_recovered_in_few_round_trips(
    quorum: tuple[int, ...],
) -> None:
    ensemble = "a,b,c,d,e" if quorum[0] == 5 else "a,b,c"

    async def scenario(world: World) -> None:
        stripe = world.metadata.quorum.stripe_entries
        first = 0
        while first < 3000:
            count = min(7, stripe - first % stripe, 3000 - first)
            start = first // stripe
            size, width = world.metadata.quorum.write_quorum, world.metadata.quorum.ensemble_size
            members = ensemble.split(",")
            to = ",".join(members[(start + i) % width] for i in range(size))
            world.bookies.write(
                first, payloads(first, count), lac=-1, length_before=length(first), to=to
            )
            first += count
        closed = await world.recover()
        assert (closed.last_entry_id, closed.length) == (2999, length(3000))
        assert len(world.copies(2999)) == world.metadata.quorum.write_quorum
        reads = sum(len(bookie.reads) for bookie in world.bookies.bookies.values())
        if stripe >= 16:
            assert reads < 3000

    run(scenario, quorum=quorum, ensemble=ensemble)


def test_a_slow_bookie_that_answers_one_write_back_after_the_other_is_not_silent() -> None:
    async def scenario(world: World) -> None:
        world.up = Up("a,b,c")  # no bookie could take its place
        for first in range(12):
            world.bookies.write(
                first, payloads(first, 1), lac=-1, length_before=length(first), to="a,b,c"
            )
        world.bookies["c"].add_s = 0.5 * ClientConfig().suspect_after_max_s
        closed = await world.recover()
        assert (closed.last_entry_id, closed.length) == (11, length(12))
        assert closed.last_fragment.ensemble == ("a", "b", "c")

    run(scenario, quorum=(3, 3, 3, 1))


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_a_bookie_that_answers_no_write_back_any_more_is_replaced(answers: int) -> None:
    async def scenario(world: World) -> None:
        for first in range(4):
            world.bookies.write(
                first, payloads(first, 1), lac=-1, length_before=length(first), to="a,b,c"
            )
        world.bookies["c"].adds_left = answers
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        closed = await world.recover()
        assert loop.time() - began_s < 3 * ClientConfig().suspect_after_max_s
        assert "c" not in closed.last_fragment.ensemble

    run(scenario, quorum=(3, 3, 3, 1))


def test_a_dead_bookie_is_replaced_from_the_first_entry_that_lacks_it() -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        world.bookies.write(5, payloads(5, 5), lac=4, length_before=length(5), to="a,b,c")
        world.bookies["c"].failure = CallFailure.REFUSED
        closed = await world.recover()
        assert closed.last_entry_id == 9
        assert [f.first_entry_id for f in closed.fragments] in ([0], [0, 5])
        last = closed.last_fragment
        assert sum(9 in world.bookies[b].entries for b in last.ensemble) >= 2

    run(scenario)


def test_a_bookie_that_hangs_is_replaced_before_its_time_is_over() -> None:
    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        world.bookies["c"].failure = CallFailure.TIMEOUT
        began = loop.time()
        closed = await world.recover()
        assert loop.time() - began < ClientConfig().add_timeout_s
        assert closed.last_entry_id == 4
        assert "c" not in closed.last_fragment.ensemble
        assert len(world.copies(4).replace("c", "")) == 3

    run(scenario, quorum=(3, 3, 3))


def test_recovery_without_replacements_raises() -> None:
    async def scenario(world: World) -> None:
        world.up.bookies.clear()
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        world.bookies["b"].failure = CallFailure.REFUSED
        with pytest.raises(NotEnoughBookiesError) as raised:
            await world.recover()
        assert raised.value.seen == 0
        stored, _version = await world.ledgers.get(LEDGER)
        assert stored.state is LedgerState.IN_RECOVERY
        world.bookies["b"].failure = None
        assert (await world.recover()).last_entry_id == 4

    run(scenario, quorum=(3, 3, 3))


def test_one_spare_for_two_failed_members_is_enough_where_the_quorum_is_reached() -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        world.up = Up("a,b,c,d")
        world.bookies["b"].refuses_adds = Status.READ_ONLY
        world.bookies["c"].refuses_adds = Status.READ_ONLY
        closed = await world.recover()
        assert closed.last_entry_id == 4
        assert BookieId("d") in closed.last_fragment.ensemble
        assert world.copies(4) == "abcd"

    run(scenario)


def test_an_undecided_end_names_the_missing_bookies() -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        world.bookies["b"].failure = CallFailure.TIMEOUT
        world.bookies["c"].is_limbo = True
        with pytest.raises(RecoveryUndecidedError) as raised:
            await world.recover()
        assert sorted(raised.value.missing) == ["b", "c"]
        assert raised.value.retriable

    run(scenario)


def test_recovery_waits_for_a_bookie_that_restarts() -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        for name in "bc":
            world.bookies[name].failure = CallFailure.REFUSED

        def restart() -> None:
            world.bookies["b"].failure = None

        asyncio.get_running_loop().call_later(1.0, restart)
        assert (await world.recover()).last_entry_id == 4

    run(scenario)


def test_five_recoverers_at_once_agree() -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        world.bookies.write(5, payloads(5, 5), lac=2, length_before=length(5), to="a")
        for number, name in enumerate("abc"):
            world.bookies[name].delay_s = 0.001 * (number + 1)
        results = await asyncio.gather(*[world.recoverer().recover() for _ in range(5)])
        assert len({(metadata.last_entry_id, metadata.length, v) for metadata, v in results}) == 1
        assert world.bookies.attached == 0

    run(scenario)


def test_a_deleted_ledger_is_not_found() -> None:
    async def scenario(world: World) -> None:
        await world.ledgers.delete(LEDGER)
        with pytest.raises(LedgerNotFoundError):
            await world.recover()

    run(scenario)


def test_different_bytes_at_one_id_are_an_error() -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, [b"one"], lac=-1, length_before=0, to="a")
        world.bookies.write(0, [b"two"], lac=-1, length_before=0, to="b,c")
        with pytest.raises(EntryConflictError):
            await world.recover()

    run(scenario)


def test_recovery_without_the_metadata_service_ends_in_time() -> None:
    async def scenario(world: World) -> None:
        world.store.suspend()
        with pytest.raises(MetadataUnavailableError):
            await world.recover()

    run(scenario)


def test_every_recovery_read_fences_even_if_the_fence_was_lost() -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        world.bookies["c"].is_fence_lost = True
        closed = await world.recover()
        assert closed.last_entry_id == 4
        assert world.bookies["c"].is_fenced
        assert all(read.fence for b in "abc" for read in world.bookies[b].reads)

    run(scenario)


def test_the_old_writer_is_refused_afterwards() -> None:
    async def scenario(world: World) -> None:
        batch = world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        await world.recover()
        answers = [world.bookies[name].store(batch, recovery=False) for name in "abc"]
        assert answers.count(Status.FENCED) >= 2

    run(scenario)


def test_without_the_password_no_ledger_with_macs_is_recovered() -> None:
    async def scenario(world: World) -> None:
        world.bookies.write(0, payloads(0, 5), lac=-1, length_before=0, to="a,b,c")
        world.keys = LedgerKeys.with_master_key(world.metadata, world.keys.master_key)
        with pytest.raises(UnauthorizedError, match="--password-file"):
            await world.recover()
        assert not any(bookie.is_fenced for bookie in world.bookies.bookies.values())

    run(scenario, digest=DigestType.HMAC_SHA256)
