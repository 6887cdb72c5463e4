"""Roles on ledgers: a bookie refuses what they do not allow, before it has any state."""

import asyncio
from collections.abc import AsyncIterator, Sized
from dataclasses import replace

import pytest

from bookie.server import access, attachments
from bookie.server.access import AuthorizerMode
from bookie.wire.codec import Entries
from bookie.wire.messages import (
    DetachLedger,
    EntryRanges,
    LacReply,
    ListEntries,
    Ping,
    ReadEntries,
    ReadLac,
    ReadRights,
    Refused,
    ReportLac,
    Request,
    RightsReply,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.cancelling import cancel_and_wait
from metadata.ids import EntryId, LedgerId
from metadata.paths import ledger_path
from metadata.security.client_principals import parse_principals
from metadata.security.ledger_roles import LedgerFacts, LedgerRole
from tests.support.bookie.roles_world import ALICE, ROOT, World, world_of
from tests.support.bookie.wire_client import WireClient, batch_of
from tests.until import until

SEVEN, EIGHT = LedgerId(7), LedgerId(8)
ZERO = EntryId(0)
BOB = "User:bob"
READER, WRITER, RECOVERER, ADMIN = LedgerRole
REQUESTS: dict[str, Request] = {
    "lac": ReadLac(SEVEN, fence=False),
    "fence": ReadLac(SEVEN, fence=True),
    "read": ReadEntries(SEVEN, ZERO, ZERO, 1_000, fence=False),
    "fencing read": ReadEntries(SEVEN, ZERO, ZERO, 1_000, fence=True),
    "poll": WaitLac(SEVEN, EntryId(-1), 1, 0),
    "list": ListEntries(SEVEN, ZERO),
    "write lac": WriteLac(SEVEN, ZERO),
}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async for each in world_of(AuthorizerMode.ENFORCE):
        yield each


@pytest.fixture
async def recording() -> AsyncIterator[World]:
    async for each in world_of(AuthorizerMode.RECORD):
        yield each


async def allowed(client: WireClient, ledger_id: int = 7) -> set[str]:
    """Return what a client may do with a ledger, and check that each refusal has its reason."""
    found = set()
    for name, request in REQUESTS.items():
        answer = await client.request(replace(request, ledger_id=LedgerId(ledger_id)))  # type: ignore[arg-type]
        if not isinstance(answer, Refused):
            assert isinstance(answer, LacReply | Entries | EntryRanges)
            found.add(name)
        else:
            assert answer.status is Status.UNAUTHORIZED
            assert "quire grant add" in answer.reason or "certificate" in answer.reason
    for name, recovery in (("recovery add", True), ("add", False)):
        request_id = client.send_add(batch_of(ledger_id, 0), recovery=recovery)
        if await is_refused(client, request_id) is None:
            found.add(name)
    return found


async def is_refused(client: WireClient, request_id: int) -> Refused | None:
    """Return the refusal of an add; None if it was answered by an ack."""
    while request_id not in client.acks and request_id not in client.frames:
        await client._receive()
    if client.acks.pop(request_id, None) is not None:
        return None
    answer = await client.answer(request_id)
    assert isinstance(answer, Refused)
    return answer


READS = {"lac", "read", "poll", "list"}
FENCES = {"fence", "fencing read"}
APPENDS = {"write lac", "add"}
EVERYTHING = READS | FENCES | APPENDS | {"recovery add"}


async def test_the_owner_may_do_everything_and_others_nothing(world: World) -> None:
    other = await world.client(BOB, 7)
    assert await allowed(other) == set()
    assert world.served.storage.add_count == 0
    assert await allowed(await world.client("", 7)) == set()
    assert world.served.storage.add_count == 0, "no state before the rights are known"
    assert await allowed(await world.client(ALICE, 7)) == EVERYTHING
    assert world.served.counters.refused_by_roles == 2 * len(EVERYTHING)
    assert await allowed(await world.client(ROOT, 7)) == EVERYTHING


@pytest.mark.parametrize(
    ("role", "operations"),
    [
        (READER, READS),
        (WRITER, APPENDS),
        (RECOVERER, READS | FENCES | {"recovery add"}),
        (ADMIN, EVERYTHING),
    ],
)
async def test_a_role_allows_its_operations(
    world: World, role: LedgerRole, operations: set[str]
) -> None:
    await world.roles.grant(BOB, role, "chain:orders")
    await until(lambda: world.roles.authorizer._grants.granted_to(BOB)._exact != {})
    client = await world.client(BOB, 7, 8)
    assert await allowed(client, 8) == operations
    assert await allowed(client, 7) == set()


async def test_a_client_learns_who_it_is(world: World) -> None:
    for principal in (ALICE, ""):
        _, reply = await world.greet(principal)
        assert reply.principal == principal


async def test_changes_of_grants_reach_attached_ledgers(world: World) -> None:
    client = await world.client(BOB, 7)
    assert isinstance(await client.request(REQUESTS["lac"]), Refused)
    await world.roles.grant(BOB, READER, "ledger:7")
    await until(lambda: attachment_of(world, 7).rights != 0)
    assert isinstance(await client.request(REQUESTS["lac"]), LacReply)
    assert isinstance(await client.request(REQUESTS["fence"]), Refused)
    await world.roles.revoke(BOB, READER, "ledger:7")
    await until(lambda: attachment_of(world, 7).rights == 0)
    assert isinstance(await client.request(REQUESTS["lac"]), Refused)


async def test_a_waiting_poll_ends_with_the_right_to_read(world: World) -> None:
    await (await world.client(ALICE, 7)).add(batch_of(7, 0))
    await world.roles.grant(BOB, READER, "all")
    await until(lambda: world.roles.authorizer.rights(BOB, LedgerFacts(SEVEN)) != 0)
    client = await world.client(BOB, 7)
    poll = client.send_request(WaitLac(SEVEN, EntryId(5), 60_000, 0))
    await until(lambda: world.served.counters.long_polls_now == 1)
    await until(lambda: len(parked_in(world)) == 1)
    await world.roles.revoke(BOB, READER, "all")
    answer = await client.answer(poll)
    assert isinstance(answer, Refused)
    assert answer.status is Status.UNAUTHORIZED
    assert world.served.counters.long_polls_now == 0


@pytest.mark.parametrize("is_attached_again", [False, True])
async def test_a_poll_of_a_detached_ledger_ends_with_the_right_to_read(
    world: World, *, is_attached_again: bool
) -> None:
    await (await world.client(ALICE, 7)).add(batch_of(7, 0))
    await world.roles.grant(BOB, READER, "all")
    await until(lambda: world.roles.authorizer.rights(BOB, LedgerFacts(SEVEN)) != 0)
    client = await world.client(BOB, 7)
    poll = client.send_request(WaitLac(SEVEN, EntryId(5), 60_000, 0))
    await until(lambda: len(parked_in(world)) == 1)
    client.send_request(DetachLedger(SEVEN))
    if is_attached_again:
        client.attach(7)
    await world.roles.revoke(BOB, READER, "all")
    answer = await client.answer(poll)
    assert isinstance(answer, Refused)
    assert answer.status is Status.UNAUTHORIZED
    assert world.served.counters.long_polls_now == 0


async def test_a_poll_that_begins_ends_with_the_right_to_read(world: World) -> None:
    await world.roles.grant(BOB, READER, "all")
    await until(lambda: world.roles.authorizer.rights(BOB, LedgerFacts(SEVEN)) != 0)
    client = await world.client(BOB, 7)
    world.served.storage.reads_wait.clear()
    poll = client.send_request(WaitLac(SEVEN, EntryId(5), 60_000, 0))
    await until(lambda: world.served.counters.long_polls_now == 1)
    await world.roles.revoke(BOB, READER, "all")
    await until(lambda: attachment_of(world, 7).rights == 0)
    world.served.storage.reads_wait.set()
    answer = await client.answer(poll)
    assert isinstance(answer, Refused)
    assert answer.status is Status.UNAUTHORIZED
    assert world.served.counters.long_polls_now == 0


def parked_in(world: World) -> list[object]:
    return [
        poll
        for connection in world.served.context.connections
        for poll in connection._served.polls._parked.values()  # type: ignore[attr-defined]
    ]


def attachment_of(world: World, ledger_id: int) -> attachments.Attachment:
    (connection,) = world.served.context.connections
    found = connection._attachments.find(LedgerId(ledger_id))  # type: ignore[attr-defined]
    assert isinstance(found, attachments.Attachment)
    return found


async def test_requests_wait_for_the_rights_in_order(world: World) -> None:
    world.faults.is_away = True
    client = await world.client(ALICE, 7)
    adds = [client.send_add(batch_of(7, number)) for number in range(3)]
    lac = client.send_request(ReadLac(SEVEN, fence=False))
    await until(lambda: world.served.context.storage.queued.undecided_bytes > 0)
    assert world.served.storage.add_count == 0
    world.faults.is_away = False
    assert [await client.ack(add) for add in adds] == [Status.OK] * 3
    reply = await client.answer(lac)
    assert isinstance(reply, LacReply)
    assert reply.status is Status.OK
    assert world.served.context.storage.queued.undecided_bytes == 0


async def test_attached_ledgers_go_on_while_the_metadata_service_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "READ_S_MAX", 0.05)
    client = await world.client(ALICE, 7)
    assert await client.add(batch_of(7, 0)) is Status.OK
    world.faults.is_away = True
    assert await client.add(batch_of(7, 1)) is Status.OK
    client.attach(8)
    refused = await is_refused(client, client.send_add(batch_of(8, 0)))
    assert refused is not None
    assert refused.status is Status.UNKNOWN, "nothing is decided without an answer"
    assert "could not be read" in refused.reason
    again = await world.client(ALICE, 7)
    assert await again.add(batch_of(7, 2)) is Status.OK, "the facts are known"
    world.faults.is_away = False
    refused = await is_refused(client, client.send_add(batch_of(8, 0)))
    assert refused is not None
    assert refused.status is Status.UNAUTHORIZED, "the next request reads again"


async def test_a_ledger_that_does_not_exist_is_no_state(world: World) -> None:
    client = await world.client(ALICE, 9)
    answer = await client.request(ReadLac(LedgerId(9), fence=True))
    assert isinstance(answer, Refused)
    assert answer.status is Status.DELETED
    refused = await is_refused(client, client.send_add(batch_of(9, 0)))
    assert refused is not None
    assert refused.status is Status.DELETED


async def test_waiting_requests_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "WAITING_MAX", 2)
    world.faults.is_away = True
    client = await world.client(ALICE, 7)
    waiting = [client.send_add(batch_of(7, number)) for number in range(2)]
    assert await client.add(batch_of(7, 2)) is Status.UNKNOWN
    answer = await client.request(ReadLac(SEVEN, fence=False))
    assert isinstance(answer, Refused)
    assert answer.status is Status.UNKNOWN
    world.faults.is_away = False
    assert [await client.ack(each) for each in waiting] == [Status.OK] * 2


async def test_waiting_bytes_are_bounded_and_freed_with_the_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.faults.is_away = True
    client, other = await world.client(ALICE, 7), await world.client(ALICE, 7)
    size = len(batch_of(7, 0))
    monkeypatch.setattr(attachments, "UNDECIDED_BYTES_MAX", size)
    client.send_add(batch_of(7, 0))
    await until(lambda: world.served.context.storage.queued.undecided_bytes == size)
    assert await other.add(batch_of(7, 0)) is Status.UNKNOWN
    client.abort()
    await until(lambda: world.served.context.storage.queued.undecided_bytes == 0)


async def test_an_attached_ledger_that_is_not_used_is_not_read(world: World) -> None:
    client = await world.client(ALICE, 7, *range(1_000, 1_500))
    assert isinstance(await client.request(REQUESTS["lac"]), LacReply)
    paths = {ledger_path(LedgerId(number)) for number in range(1_000, 1_500)}
    assert _read_of(world, paths) == set()


async def test_attaching_again_and_again_piles_up_no_reads(world: World) -> None:
    world.faults.is_away = True
    client = await world.client(ALICE, 8)
    add = client.send_add(batch_of(8, 0))
    asked = []
    for _ in range(50):
        client.attach(7)
        asked.append(client.send_request(REQUESTS["lac"]))
        client.send_request(DetachLedger(SEVEN))
    await client.request(Ping())
    reads = _reads_of(world)
    assert len(reads) == attachments.READS_MAX, "the others wait for these"
    world.faults.is_away = False
    refused = await is_refused(client, add)
    assert refused is not None
    assert refused.status is Status.UNAUTHORIZED
    assert [type(await client.answer(each)) for each in asked] == [LacReply] * 50
    await until(lambda: not reads)


async def test_ledgers_that_wait_for_their_facts_have_no_tasks(world: World) -> None:
    world.faults.gate.clear()
    missing = range(1_000, 1_500)
    client = await world.client(BOB, *missing)
    for each in missing:
        client.send_request(ReadLac(LedgerId(each), fence=False))
    await client.request(Ping())
    assert len(_reads_of(world)) == attachments.READS_MAX
    world.faults.gate.set()


async def test_requests_end_in_time_whose_reads_cannot_begin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "READ_S_MAX", 0.05)
    world.faults.is_away = True
    asked = range(1_000, 1_000 + 3 * attachments.READS_MAX)
    client = await world.client(ALICE, *asked)
    for each in asked:
        client.send_request(ReadLac(LedgerId(each), fence=False))
    answer = await client.request(ReadLac(LedgerId(asked[-1]), fence=False))
    assert isinstance(answer, Refused)
    assert answer.status is Status.UNKNOWN
    assert "metadata service did not answer" in answer.reason


def _reads_of(world: World) -> Sized:
    """Return the reads of facts of the only connection."""
    (connection,) = world.served.context.connections
    return connection._attachments._reading  # type: ignore[attr-defined, no-any-return]


async def test_a_closing_bookie_refuses_what_waits(world: World) -> None:
    world.faults.is_away = True
    client = await world.client(ALICE, 7)
    add = client.send_add(batch_of(7, 0))
    client.send_request(DetachLedger(SEVEN))
    await until(lambda: world.served.context.storage.queued.undecided_bytes > 0)
    closing = asyncio.get_running_loop().create_task(world.served.server.close())
    assert await client.ack(add) is Status.CLOSING
    await closing


async def test_repair_needs_no_role(world: World) -> None:
    world.served.keys.key = bytes(range(32))
    client, _ = await world.greet("", bytes(range(32)))
    client.attach(7)
    assert await allowed(client) == EVERYTHING


async def test_a_list_of_entries_needs_an_attached_ledger(world: World) -> None:
    for principal, is_allowed in ((BOB, False), (ALICE, False), (ROOT, True)):
        answer = await (await world.client(principal)).request(REQUESTS["list"])
        assert isinstance(answer, EntryRanges if is_allowed else Refused)


async def test_a_report_of_a_lac_needs_the_right_to_append(world: World) -> None:
    owner = await world.client(ALICE, 7)
    assert await owner.add(batch_of(7, 0)) is Status.OK
    other = await world.client(BOB, 7)
    other.send_request(ReportLac(SEVEN, ZERO))
    assert isinstance(await other.request(REQUESTS["lac"]), Refused)
    assert world.served.storage.lac_of(SEVEN) == -1
    owner.send_request(ReportLac(SEVEN, ZERO))
    await owner.request(REQUESTS["lac"])
    assert world.served.storage.lac_of(SEVEN) == 0


async def test_a_report_of_a_lac_waits_for_the_rights(world: World) -> None:
    assert await (await world.client(ALICE, 7)).add(batch_of(7, 0)) is Status.OK
    world.roles.authorizer._facts.clear()
    client = await world.client(ALICE, 7)
    client.send_request(ReportLac(SEVEN, ZERO))
    await client.request(REQUESTS["lac"])
    assert world.served.storage.lac_of(SEVEN) == 0


async def test_a_recording_bookie_refuses_nothing(recording: World) -> None:
    calls = len(recording.faults.calls)
    assert await allowed(await recording.client(BOB, 7)) == EVERYTHING
    assert len(recording.faults.calls) == calls, "it reads nothing"


async def test_facts_are_read_once(world: World) -> None:
    await allowed(await world.client(ALICE, 7))
    calls = len(world.faults.calls)
    await allowed(await world.client(ALICE, 7))
    assert len(world.faults.calls) == calls


async def test_ledgers_that_do_not_exist_keep_no_other_client_out(world: World) -> None:
    own = ledger_path(SEVEN)
    world.faults.meets = lambda call: call.path != own
    world.faults.gate.clear()
    missing = range(1_000, 1_500)
    flood = await world.client(BOB, *missing)
    for each in missing:
        flood.send_request(ReadLac(LedgerId(each), fence=False))
    paths = {ledger_path(LedgerId(each)) for each in missing}
    await until(lambda: len(_read_of(world, paths)) == access.READS_OF_PRINCIPAL_MAX)
    client = await world.client(ALICE, 7)
    assert isinstance(await client.request(REQUESTS["lac"]), LacReply)
    world.faults.gate.set()


async def test_reads_that_find_no_ledger_are_bounded_in_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MISSED_S", 60.0)
    authorizer, most = world.roles.authorizer, access.READS_OF_PRINCIPAL_MAX
    missing = [LedgerId(number) for number in range(1_000, 1_100)]
    paths = {ledger_path(ledger_id) for ledger_id in missing}
    loop = asyncio.get_running_loop()
    flood = [loop.create_task(authorizer.read_facts(ledger_id, BOB)) for ledger_id in missing]
    await until(lambda: len(_read_of(world, paths)) >= most)
    assert await authorizer.read_facts(SEVEN, ALICE) is not None
    assert len(_read_of(world, paths)) == most, "further reads wait for their places"
    await cancel_and_wait(*flood)


def _read_of(world: World, paths: set[str]) -> set[str]:
    return paths & {call.path for call in world.faults.calls}


async def test_known_facts_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "FACTS_MAX", 1)
    for ledger_id in (SEVEN, EIGHT):
        await world.roles.authorizer.read_facts(ledger_id, BOB)
    assert list(world.roles.authorizer._facts) == [EIGHT]


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_principals("User:CN=a,O=b; User:c;") == ("User:CN=a,O=b", "User:c")
    assert parse_principals("") == ()
    with pytest.raises(ValueError, match="separate several by semicolons"):
        parse_principals("alice")
    with pytest.raises(ValueError, match="at most 1000"):
        parse_principals("User:a;" * 1_001)


async def test_a_client_can_read_its_rights(world: World) -> None:
    for principal, rights in ((ALICE, 31), (BOB, 0), ("", 0), (ROOT, 31)):
        client = await world.client(principal, 7)
        assert await client.request(ReadRights(SEVEN)) == RightsReply(rights)
    await world.roles.grant(BOB, READER, "ledger:7")
    await world.roles.grant(BOB, WRITER, "ledger:7")
    client = await world.client(BOB, 7, 9)
    await until(lambda: world.roles.authorizer.rights(BOB, LedgerFacts(SEVEN)) == 3)
    assert await client.request(ReadRights(SEVEN)) == RightsReply(3)
    missing = await client.request(ReadRights(LedgerId(9)))
    assert isinstance(missing, Refused)
    assert missing.status is Status.DELETED
    unattached = await client.request(ReadRights(EIGHT))
    assert isinstance(unattached, Refused)
