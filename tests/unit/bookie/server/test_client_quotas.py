"""Quotas of a bookie's clients: whom they hold for, what they count, and what is never held up."""

import asyncio

import pytest

from bookie.server.client_quotas import ANSWER_S, PAUSE_S_MAX
from bookie.wire.codec import Entries
from bookie.wire.messages import LacReply, ReadEntries, ReadLac, Status, WaitLac
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.security.quotas import QuotaKey, entity_of
from quire.identity.principal import ANONYMOUS
from tests.simulation.loop import simulation_loop
from tests.support.bookie.login_world import login_world, stores
from tests.support.bookie.quota_world import (
    APPENDED,
    BATCH_BYTES,
    READ,
    REPAIR_KEY,
    QuotaClient,
    QuotaWorld,
    entry,
    run,
)
from tests.until import until

ALICE, BOB = "CN=alice", "CN=bob"
SLOW = 10_000.0
"""A rate at which one batch costs more than the longest pause."""
L7 = LedgerId(7)


def read(first: int, last: int, *, fence: bool = False, bytes_max: int = 2**20) -> ReadEntries:
    return ReadEntries(L7, EntryId(first), EntryId(last), bytes_max, fence)


async def appends_freely(client: QuotaClient, ledger_id: int = 7, start: int = 0) -> bool:
    """Append three batches; return whether that took no time."""
    began_s = simulation_loop().time()
    for number in range(start, start + 3):
        assert await client.add(entry(ledger_id, number)) is Status.OK
    return not client.is_throttled and simulation_loop().time() - began_s < PAUSE_S_MAX / 2


# -- whom they hold for


def test_the_quota_of_a_user_holds_for_its_clients_together_and_for_no_other() -> None:
    async def scenario(world: QuotaWorld) -> None:
        world.limit(ALICE, APPENDED, 2.0 * BATCH_BYTES)
        one, two = [await world.client("alice", ledger) for ledger in (7, 8)]
        assert not await appends_freely(one)
        await two.add(entry(8, 0))
        assert two.is_throttled, "the rate is shared"
        assert await appends_freely(await world.client("bob", 9), 9)

    run(scenario)


def test_a_default_is_the_rate_of_each_user_alone() -> None:
    async def scenario(world: QuotaWorld) -> None:
        world.limit(None, APPENDED, 4.0 * BATCH_BYTES)
        for number, name in enumerate(("alice", "bob")):
            client = await world.client(name, number)
            assert await appends_freely(client, number)
            assert not await appends_freely(client, number, start=3)
        world.limit(BOB, APPENDED, 1e9)
        assert await appends_freely(await world.client("bob", 9), 9), "a name wins"

    run(scenario)


def test_a_default_holds_for_no_client_that_proved_nothing() -> None:
    async def scenario(world: QuotaWorld) -> None:
        world.limit(None, APPENDED, SLOW)
        client = await world.client("", 7)
        assert await appends_freely(client)
        world.limit(ANONYMOUS.name, APPENDED, SLOW)
        assert not await appends_freely(client, start=3)

    run(scenario)


@pytest.mark.parametrize("who", ["a super user", "repair"])
def test_super_users_and_repair_have_no_quota(who: str) -> None:
    async def scenario(world: QuotaWorld) -> None:
        for key in (APPENDED, READ):
            world.limit("CN=root", key, SLOW)
            world.limit(ANONYMOUS.name, key, SLOW)
        if who == "repair":
            client = await world.client("", 7, credentials=REPAIR_KEY)
        else:
            client = await world.client("root", 7)
        assert await appends_freely(client)
        await client.ask(read(0, 2))
        assert not client.is_throttled
        assert not world.counters.throttles_by_quota

    run(scenario)


async def test_a_user_that_logged_in_has_its_quota() -> None:
    async with login_world() as world:
        quotas = world.served.context.quotas
        client = await world.logged_in("alice")
        assert await stores(client)
        set_of_quotas = quotas.appends._quotas
        set_of_quotas.put(entity_of([("user", "alice")]), {APPENDED: 1.0})
        assert await stores(await world.logged_in("bob"), first=1)
        assert not world.served.counters.throttles_by_quota
        assert await stores(client, first=2)
        assert world.served.counters.throttles_by_quota == {APPENDED: 1}


# -- what they count


def test_a_change_holds_at_once_and_a_removal_too() -> None:
    async def scenario(world: QuotaWorld) -> None:
        client = await world.client("alice", 7)
        assert await appends_freely(client)
        world.limit(ALICE, APPENDED, SLOW)
        assert not await appends_freely(client, start=3)
        world.quotas.remove(entity_of([("user", ALICE)]))
        await asyncio.sleep(PAUSE_S_MAX)
        assert await appends_freely(client, start=6)

    run(scenario)


@pytest.mark.parametrize("key", [APPENDED, READ])
def test_a_pause_is_counted_by_its_key_and_bounded(key: QuotaKey) -> None:
    async def scenario(world: QuotaWorld) -> None:
        world.limit(ALICE, key, 1.0)
        await world.fill(7, 2)
        client = await world.client("alice", 7)
        if key is APPENDED:
            await client.add(entry(7, 2))
        else:
            await client.ask(read(0, 0))
        assert client.is_throttled
        assert world.counters.throttles_by_quota == {key: 1}
        await asyncio.sleep(PAUSE_S_MAX)
        assert not client.is_throttled

    run(scenario)


def test_adds_of_a_recovery_count() -> None:
    """Their client marks them itself."""

    async def scenario(world: QuotaWorld) -> None:
        world.limit(ALICE, APPENDED, SLOW)
        client = await world.client("alice", 7)
        assert await client.add(entry(7, 0), recovery=True) is Status.OK
        assert client.is_throttled

    run(scenario)


@pytest.mark.parametrize("caches", [False, True])
def test_many_reads_in_one_piece_keep_the_rate(*, caches: bool) -> None:
    async def scenario(world: QuotaWorld) -> None:
        await world.fill(7, 40)
        world.storage.caches_reads = caches
        world.limit(ALICE, READ, 5.0 * BATCH_BYTES)
        client = await world.client("alice", 7)
        began_s = simulation_loop().time()
        answers = await client.ask_together([read(number, number) for number in range(40)])
        assert all(isinstance(answer, Entries) and answer.batches for answer in answers)
        took_s = simulation_loop().time() - began_s
        assert took_s == pytest.approx(40 / 5 - 1, rel=0.05), "one second is free"

    run(scenario)


def test_an_answer_is_no_larger_than_a_short_pause_can_pay_for() -> None:
    async def scenario(world: QuotaWorld) -> None:
        await world.fill(7, 10)
        world.limit(ALICE, READ, 3.5 * BATCH_BYTES / ANSWER_S)
        client = await world.client("alice", 7)
        answer = await client.ask(read(0, 9))
        assert isinstance(answer, Entries)
        assert (len(answer.batches), answer.next_entry_id) == (3, 3)
        world.limit(ALICE, READ, 1.0)
        answer = await client.ask(read(3, 9))
        assert isinstance(answer, Entries)
        assert len(answer.batches) == 1, "there is always one batch"

    run(scenario)


@pytest.mark.parametrize("caches", [False, True])
def test_a_long_poll_of_a_client_with_a_quota_returns_the_lac_alone(*, caches: bool) -> None:
    async def scenario(world: QuotaWorld) -> None:
        await world.fill(7, 3)
        world.storage.caches_reads = caches
        world.limit(ALICE, READ, SLOW)
        poll = WaitLac(L7, NO_ENTRY, 1_000, 2**20)
        for name, batch_count in (("alice", 0), ("bob", 2)):
            answer = await (await world.client(name, 7)).ask(poll)
            assert isinstance(answer, Entries)
            assert (answer.lac, len(answer.batches)) == (1, batch_count)

    run(scenario)


# -- what is never held up


def test_a_fence_passes_the_reads_that_wait_for_the_quota() -> None:
    async def scenario(world: QuotaWorld) -> None:
        await world.fill(7, 30)
        world.limit(ALICE, READ, SLOW)
        client = await world.client("alice", 7)
        fence = ReadLac(L7, fence=True)
        *_, number = await client.send_together([*[read(each, each) for each in range(30)], fence])
        began_s = simulation_loop().time()
        answer = await client.answer(number)
        assert isinstance(answer, LacReply)
        assert answer.fenced
        assert simulation_loop().time() - began_s < PAUSE_S_MAX / 2
        assert client.is_throttled

    run(scenario)


def test_a_new_connection_fences_at_once_whatever_its_user_owes() -> None:
    async def scenario(world: QuotaWorld) -> None:
        for key in (APPENDED, READ):
            world.limit(ALICE, key, SLOW)
        busy = await world.client("alice", 7)
        await busy.add(entry(7, 0))
        assert busy.is_throttled
        began_s = simulation_loop().time()
        client = await world.client("alice", 7)
        answer = await client.ask(read(0, 0, fence=True))
        assert isinstance(answer, Entries)
        assert answer.batches
        assert simulation_loop().time() - began_s < PAUSE_S_MAX / 2

    run(scenario)


def test_a_lost_connection_drops_the_reads_that_wait() -> None:
    async def scenario(world: QuotaWorld) -> None:
        await world.fill(7, 3)
        world.limit(ALICE, READ, SLOW)
        client = await world.client("alice", 7)
        await client.send_together([read(0, 0), read(1, 1)])
        await until(lambda: client.is_throttled)
        assert not client.connection.is_idle
        client.transport.close()
        await asyncio.sleep(PAUSE_S_MAX)
        assert client.connection.is_idle

    run(scenario)
