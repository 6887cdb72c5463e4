"""The owner of a new ledger is who the bookies say that the client is; and a client that may not
recover a ledger changes nothing.
"""

import pytest

from bookie.wire.messages import HelloReply, Ping, ReadRights, Refused, Status
from ledger_client import LedgerClient, PrincipalUnknownError, UnauthorizedError
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.registry.registration import OWNERS_FEATURE
from tests.support.ledger_client.cluster import THREE, TestCluster

ALICE = "User:CN=alice,O=example"
WHY = "User:bob may not append to ledger 1: an administrator can give it the role"


async def name_owners(cluster: TestCluster, principal: str) -> None:
    """Make all bookies say this principal."""
    for bookie in cluster.bookies:
        bookie.principal = principal
        await bookie.unregister()
        await bookie.register(cluster._store, features=(OWNERS_FEATURE,))


async def owner_of_new(client: LedgerClient) -> str:
    async with client.create_ledger(THREE) as ledger:
        pass
    return (await client.ledger_info(ledger.id)).owner


def pings(cluster: TestCluster) -> int:
    return sum(
        isinstance(request, Ping) for bookie in cluster.bookies for request in bookie.requests
    )


async def test_a_cluster_without_principals_is_not_asked(cluster: TestCluster) -> None:
    assert await owner_of_new(cluster.client()) == ""
    assert pings(cluster) == 0


async def test_the_owner_is_who_a_bookie_says(cluster: TestCluster) -> None:
    await name_owners(cluster, ALICE)
    client = cluster.client()
    assert await owner_of_new(client) == ALICE
    assert pings(cluster) == 1
    assert await owner_of_new(client) == ALICE
    assert pings(cluster) == 1, "it is asked once"


@pytest.mark.parametrize("told", ["", "alice", "User:" + "a" * 600])
async def test_who_is_not_known_owns_nothing(cluster: TestCluster, told: str) -> None:
    await name_owners(cluster, told)
    assert await owner_of_new(cluster.client()) == ""


async def test_without_an_answer_no_ledger_is_created(cluster: TestCluster) -> None:
    await name_owners(cluster, ALICE)
    for bookie in cluster.bookies:
        bookie.is_silent = True
    client = cluster.client(read_timeout_s=0.1)
    with pytest.raises(PrincipalUnknownError, match=r"the last one: .*: correct this") as refused:
        await client.create_ledger(THREE)
    assert refused.value.retriable
    assert [ledger async for ledger in client.list_ledgers()] == []
    for bookie in cluster.bookies:
        bookie.is_silent = False
    assert await owner_of_new(client) == ALICE


async def test_a_client_that_bookies_refuse_creates_no_ledger(cluster: TestCluster) -> None:
    await name_owners(cluster, ALICE)
    why = "this bookie needs a login: write"
    refusal = HelloReply(Status.UNAUTHORIZED, "", 0, 0, 0, 0, why, "")
    for bookie in cluster.bookies:
        bookie.hello = lambda _: refusal
    client = cluster.client()
    with pytest.raises(UnauthorizedError, match=why) as refused:
        await client.create_ledger(THREE)
    assert not refused.value.retriable
    assert [ledger async for ledger in client.list_ledgers()] == []


async def test_a_recovery_without_the_right_changes_nothing(cluster: TestCluster) -> None:
    await name_owners(cluster, ALICE)
    ledger = await cluster.client().create_ledger(THREE)
    await ledger.append(b"one")
    other = cluster.client()
    for rights in (0, 1, 3, 5, 9):
        for bookie in cluster.bookies:
            bookie.rights = rights
        with pytest.raises(UnauthorizedError, match=r"may not fence it, .* recoverer ledger:1"):
            await other.recover_ledger(ledger.id)
        assert (await other.ledger_info(ledger.id)).state is LedgerState.OPEN
    await ledger.append(b"two")
    for bookie in cluster.bookies:
        bookie.rights = 13
    assert (await other.recover_ledger(ledger.id)).last_entry_id == 1


async def test_bookies_that_know_no_rights_refuse_no_recovery(cluster: TestCluster) -> None:
    await name_owners(cluster, ALICE)
    ledger = await cluster.client().create_ledger(THREE)
    await ledger.append(b"one")
    assert (await cluster.client().recover_ledger(ledger.id)).last_entry_id == 0


async def test_a_ledger_without_an_owner_is_recovered_without_a_question(
    cluster: TestCluster,
) -> None:
    ledger = await cluster.client().create_ledger(THREE)
    for bookie in cluster.bookies:
        bookie.rights = 0
    await cluster.client().recover_ledger(ledger.id)
    asked = [request for bookie in cluster.bookies for request in bookie.requests]
    assert ReadRights(LedgerId(ledger.id)) not in asked


async def test_an_append_fails_with_the_reason_of_the_bookie(cluster: TestCluster) -> None:
    client = cluster.client()
    ledger = await client.create_ledger(THREE)
    for bookie in cluster.bookies:
        bookie.add_refusal = Refused(Status.UNAUTHORIZED, WHY)
    with pytest.raises(UnauthorizedError, match=WHY) as refused:
        await ledger.append(b"one")
    assert refused.value.outcome == "unknown"
    assert "refused it" in str(refused.value)
