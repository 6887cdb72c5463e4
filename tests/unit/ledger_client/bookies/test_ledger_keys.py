"""The master key of a ledger is found at one of its bookies, or the error says why not."""

from collections.abc import AsyncIterator

import pytest

from bookie.wire.messages import (
    AccessReply,
    Hello,
    HelloReply,
    ReadAccess,
    Refused,
    Reply,
    Request,
    Status,
)
from ledger_client.errors import NotEnoughBookiesError, QuorumTimeoutError, UnauthorizedError
from metadata.ids import BookieId
from quire.repair.attempts import read_master_key
from tests.support.ledger_client.pool_setting import KEY, LEDGER, Setting
from tests.support.ledger_client.scripted_bookie import ScriptedBookie

GONE = BookieId("bookie-gone")
HAS = AccessReply(Status.OK, KEY)
ANY = AccessReply(Status.OK, b"")
NO_LEDGER = AccessReply(Status.NO_SUCH_LEDGER, b"")
LIMBO = AccessReply(Status.UNKNOWN, b"")
ANONYMOUS = Refused(Status.UNAUTHORIZED, "anonymous may not do this")


@pytest.fixture
async def other(setting: Setting) -> AsyncIterator[ScriptedBookie]:
    other = ScriptedBookie("bookie-b")
    await other.start()
    setting.addresses.known[other.id] = other.address
    yield other
    await other.stop()


def script(bookie: ScriptedBookie, reply: Reply) -> None:
    def answer(request: Request) -> Reply | bytes | None:
        return reply if isinstance(request, ReadAccess) else bookie.usual_answer(request)

    bookie.answer = answer


async def find(setting: Setting, *bookies: ScriptedBookie) -> bytes | None:
    ids = [bookie.id for bookie in bookies]
    return await read_master_key(setting.pool, LEDGER, ids, timeout_s=5)


async def test_the_first_bookie_with_a_key_is_enough(
    setting: Setting, bookie: ScriptedBookie, other: ScriptedBookie
) -> None:
    script(bookie, HAS)
    assert await find(setting, bookie, other) == KEY
    assert other.requests == []
    hello, request = bookie.requests
    assert isinstance(hello, Hello)
    assert hello.credentials == b"token"
    assert request == ReadAccess(LEDGER)


@pytest.mark.parametrize("reply", [ANY, NO_LEDGER, LIMBO, ANONYMOUS])
async def test_the_next_bookie_is_asked(
    setting: Setting, bookie: ScriptedBookie, other: ScriptedBookie, reply: Reply
) -> None:
    script(bookie, reply)
    script(other, HAS)
    assert await find(setting, bookie, other) == KEY


async def test_no_bookie_stores_a_key(
    setting: Setting, bookie: ScriptedBookie, other: ScriptedBookie
) -> None:
    script(bookie, NO_LEDGER)
    script(other, ANY)
    assert await find(setting, bookie, other) is None


@pytest.mark.parametrize("reply", [NO_LEDGER, LIMBO])
async def test_refused_credentials(
    setting: Setting, bookie: ScriptedBookie, other: ScriptedBookie, reply: Reply
) -> None:
    script(bookie, ANONYMOUS)
    script(other, reply)
    with pytest.raises(UnauthorizedError, match="anonymous may not do this") as raised:
        await find(setting, bookie, other)
    assert raised.value.ledger_id == LEDGER


async def test_a_bookie_that_cannot_know(
    setting: Setting, bookie: ScriptedBookie, other: ScriptedBookie
) -> None:
    script(bookie, LIMBO)
    script(other, NO_LEDGER)
    with pytest.raises(NotEnoughBookiesError, match="answered UNKNOWN") as raised:
        await find(setting, bookie, other)
    assert raised.value.retriable
    assert list(raised.value.excluded) == [bookie.id]


async def test_a_bookie_that_is_away(setting: Setting, bookie: ScriptedBookie) -> None:
    script(bookie, NO_LEDGER)
    with pytest.raises(NotEnoughBookiesError, match="not registered"):
        await read_master_key(setting.pool, LEDGER, [bookie.id, GONE], timeout_s=5)


async def test_a_refused_hello(
    setting: Setting, bookie: ScriptedBookie, other: ScriptedBookie
) -> None:
    why = "not the key of repair"
    bookie.hello = lambda _: HelloReply(Status.UNAUTHORIZED, bookie.id, 1, 0, 0, 0, why, "")
    script(other, NO_LEDGER)
    with pytest.raises(UnauthorizedError, match=why):
        await find(setting, bookie, other)


async def test_a_registered_bookie_that_does_not_answer_may_answer_later(
    setting: Setting, bookie: ScriptedBookie, other: ScriptedBookie
) -> None:
    script(bookie, LIMBO)
    await other.stop()
    with pytest.raises(QuorumTimeoutError, match="answered UNKNOWN"):
        await find(setting, bookie, other)
    script(bookie, HAS)
    assert await find(setting, other, bookie) == KEY
