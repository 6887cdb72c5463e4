"""Credentials prove the role of repair, or the connection is refused; only repair reads keys."""

import asyncio

import pytest

from bookie.server.access import (
    ANONYMOUS,
    KEY_KEPT_S,
    KEY_READ_INTERVAL_S,
    REPAIR,
    LedgerOperation,
    ServerAccess,
    authorize,
)
from bookie.wire import codec
from bookie.wire.messages import (
    AccessReply,
    FenceWithoutKey,
    HelloReply,
    LacReply,
    ListEntries,
    Ping,
    ReadAccess,
    Refused,
    Status,
)
from metadata.errors import StoreUnavailableError
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from tests.support.bookie.running_server import BOOKIE, RunningServer, StoredKeys
from tests.support.bookie.wire_client import KEY, WireClient, batch_of, hello

ONE = LedgerId(1)
REPAIR_KEY = bytes(range(100, 132))
WRONG = bytes(32)


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


async def greet(served: RunningServer, credentials: bytes, bookie_id: str = BOOKIE) -> WireClient:
    client = await WireClient.connect(served.address)
    reply = await client.request(hello(bookie_id, credentials=credentials))
    assert isinstance(reply, HelloReply)
    assert reply.status is Status.OK, reply.reason
    return client


async def refusal(served: RunningServer, credentials: bytes) -> HelloReply:
    client = await WireClient.connect(served.address)
    reply = await client.request(hello(BOOKIE, credentials=credentials))
    assert isinstance(reply, HelloReply)
    assert await client.is_closed_by_peer()
    return reply


# -- who is who ------------------------------------------------------------------------------------


def test_only_repair_may_read_keys() -> None:
    for operation in LedgerOperation:
        assert authorize(REPAIR, operation)
        is_open = operation not in (
            LedgerOperation.READ_ACCESS,
            LedgerOperation.FENCE_WITHOUT_KEY,
        )
        assert authorize(ANONYMOUS, operation) is is_open


async def test_credentials_are_the_stored_key_or_prove_nothing() -> None:
    keys = StoredKeys()
    keys.key = REPAIR_KEY
    access = ServerAccess(keys.read, Clock())
    assert access.authenticate(b"") == ANONYMOUS
    assert access.authenticate(REPAIR_KEY) is None, "not read yet"
    await access.start()
    assert access.authenticate(REPAIR_KEY) == REPAIR
    assert access.authenticate(b"") == ANONYMOUS
    for wrong in (WRONG, REPAIR_KEY[:-1], REPAIR_KEY + b"x", b"x"):
        assert access.authenticate(wrong) is None


async def test_unknown_keys_cause_few_reads() -> None:
    keys, clock = StoredKeys(), Clock()
    access = ServerAccess(keys.read, clock)
    await access.start()
    await asyncio.gather(*[access.learn() for _ in range(20)])
    assert keys.read_count == 2, "the first read at the start, and one for all unknown keys"
    assert "does not exist" in access.refusal
    keys.key = REPAIR_KEY
    clock.now_s += KEY_READ_INTERVAL_S - 0.1
    await access.learn()
    assert access.authenticate(REPAIR_KEY) is None
    clock.now_s += 0.2
    await access.learn()
    assert access.authenticate(REPAIR_KEY) == REPAIR
    assert "not the key of repair" in access.refusal


async def test_a_failed_read_keeps_the_known_key() -> None:
    keys, clock = StoredKeys(), Clock()
    keys.key = REPAIR_KEY
    access = ServerAccess(keys.read, clock)
    await access.start()
    keys.raises = StoreUnavailableError("memory", "the service is down")
    await access.learn()
    assert access.authenticate(REPAIR_KEY) == REPAIR
    assert "could not be checked" in access.refusal
    assert "try again" in access.refusal


async def test_a_replaced_key_proves_nothing_soon() -> None:
    keys, clock = StoredKeys(), Clock()
    keys.key = REPAIR_KEY
    access = ServerAccess(keys.read, clock)
    await access.start()
    keys.key = WRONG
    clock.now_s += KEY_KEPT_S
    assert access.authenticate(REPAIR_KEY) == REPAIR
    clock.now_s += 1.0
    assert access.authenticate(REPAIR_KEY) is None, "it is to be read again"
    keys.raises = StoreUnavailableError("memory", "the service is down")
    await access.learn()
    assert access.authenticate(REPAIR_KEY) == REPAIR, "the service did not say that it was replaced"
    keys.raises = None
    clock.now_s += KEY_KEPT_S + 1.0
    await access.learn()
    assert access.authenticate(REPAIR_KEY) is None
    assert access.authenticate(WRONG) == REPAIR


# -- on a connection -------------------------------------------------------------------------------


async def test_repair_reads_the_key_that_a_writer_presented(served: RunningServer) -> None:
    writer = await served.client(1)
    assert await writer.add(batch_of(1, 0)) is Status.OK
    served.keys.key = REPAIR_KEY  # it was made after the bookie's start
    repair = await greet(served, REPAIR_KEY)
    assert await repair.request(ReadAccess(ONE)) == AccessReply(Status.OK, KEY)
    unknown = await repair.request(ReadAccess(LedgerId(9)))
    assert unknown == AccessReply(Status.NO_SUCH_LEDGER, b"")
    repair.attach(1, KEY)
    assert await repair.add(batch_of(1, 1), recovery=True) is Status.OK
    served.keys.answers.clear()
    again = await greet(served, REPAIR_KEY)  # a known key needs no read
    for client in (writer, repair, again):
        await client.close()


async def test_an_anonymous_client_reads_no_key(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    refused = await client.request(ReadAccess(ONE))
    assert isinstance(refused, Refused)
    assert refused.status is Status.UNAUTHORIZED
    assert refused.reason == "anonymous may not do this: read_access"
    assert await client.add(batch_of(1, 1)) is Status.OK, "the connection continues"
    await client.close()


async def test_without_a_bookie_id_repair_reads_no_key_either(served: RunningServer) -> None:
    served.keys.key = REPAIR_KEY
    client = await greet(served, REPAIR_KEY, bookie_id="")
    refused = await client.request(ReadAccess(ONE))
    assert isinstance(refused, Refused)
    assert (refused.status, "named no bookie" in refused.reason) == (Status.UNAUTHORIZED, True)
    await client.close()


async def test_repair_fences_a_ledger_without_its_key(served: RunningServer) -> None:
    served.keys.key = REPAIR_KEY
    repair = await greet(served, REPAIR_KEY)
    nothing = LacReply(Status.NO_SUCH_ENTRY, NO_ENTRY, NO_ENTRY, fenced=True)
    assert await repair.request(FenceWithoutKey(ONE)) == nothing
    repair.attach(1, WRONG)
    assert await repair.request(FenceWithoutKey(ONE)) == nothing, "no key is sent with it"
    writer = await served.client(1)
    assert await writer.add(batch_of(1, 0)) is Status.FENCED
    anonymous = await served.client(9)
    refused = await anonymous.request(FenceWithoutKey(LedgerId(9)))
    assert isinstance(refused, Refused)
    assert refused.status is Status.UNAUTHORIZED
    assert refused.reason == "anonymous may not do this: fence_without_key"
    assert await anonymous.add(batch_of(9, 0)) is Status.OK
    known = await repair.request(FenceWithoutKey(LedgerId(9)))
    assert isinstance(known, LacReply)
    assert (known.status, known.fenced) == (Status.UNAUTHORIZED, False)
    for client in (repair, writer, anonymous):
        await client.close()


async def test_a_wrong_key_is_refused_and_not_anonymous(served: RunningServer) -> None:
    served.keys.key = REPAIR_KEY
    reply = await refusal(served, WRONG)
    assert reply.status is Status.UNAUTHORIZED
    assert "not the key of repair" in reply.reason
    assert served.counters.hellos_refused == 1
    await (await greet(served, REPAIR_KEY)).close()


async def test_a_key_is_refused_while_none_is_stored(served: RunningServer) -> None:
    reply = await refusal(served, REPAIR_KEY)
    assert (reply.status, "/repair/key" in reply.reason) == (Status.UNAUTHORIZED, True)
    served.keys.key = REPAIR_KEY
    assert (await refusal(served, REPAIR_KEY)).status is Status.UNAUTHORIZED
    assert served.keys.read_count == 1, "the next read is at most once in some seconds"


async def test_a_key_that_cannot_be_checked_is_refused(served: RunningServer) -> None:
    served.keys.raises = StoreUnavailableError("memory", "the service is down")
    reply = await refusal(served, REPAIR_KEY)
    assert reply.status is Status.UNAUTHORIZED
    assert "the service is down" in reply.reason


async def test_nothing_is_served_while_the_key_is_read(served: RunningServer) -> None:
    served.keys.answers.clear()
    for early in (Ping(), hello(BOOKIE)):
        client = await WireClient.connect(served.address)
        client.send_request(hello(BOOKIE, credentials=REPAIR_KEY))
        client.send_request(early)
        assert await client.is_closed_by_peer()
    assert served.counters.bad_frames == 2


async def test_anonymous_clients_do_not_wait_for_the_key(served: RunningServer) -> None:
    served.keys.answers.clear()
    waiting = await WireClient.connect(served.address)
    waiting.send_request(hello(BOOKIE, credentials=REPAIR_KEY))
    client = await served.client(1)
    assert await client.is_offered()
    assert await client.add(batch_of(1, 0)) is Status.OK
    for wire_client in (waiting, client):
        await wire_client.close()


async def test_a_bookie_of_an_older_release_refuses_one_request(
    served: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown operation is BAD_REQUEST, and the connection continues."""
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    monkeypatch.delitem(codec._REQUESTS, 11)
    refused = await client.request(ReadAccess(ONE))
    assert isinstance(refused, Refused)
    assert refused.status is Status.BAD_REQUEST
    listed = await client.request(ListEntries(ONE, EntryId(0)))
    assert not isinstance(listed, Refused)
    await client.close()
