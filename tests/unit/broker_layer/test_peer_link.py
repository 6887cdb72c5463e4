"""Connections between brokers that are replaced, over real sockets."""

import asyncio
import contextlib
from pathlib import Path
from random import Random

import pytest

from broker_layer import peer
from broker_layer import peer as peer_link
from broker_layer.kafka.versions import ApiKey
from broker_layer.peer import PeerAddress, PeerConnection, PeerError, Peers, log_in
from quire.identity.errors import SaslError
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl_access import SaslAccess
from tests.support.broker_layer.login_setting import LoginSetting, turns
from tests.support.broker_layer.peer_logins import access_of, ask, listening, peers_of
from tests.support.security.sasl_parts import USERS, credential
from tests.until import until


class NextLogins:
    """Holds each login after the first one until the test ends it, or refuses it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peer_link, "LOGIN_USED", 0.0)
        monkeypatch.setattr(peer, "log_in", self._log_in)
        self.waiting: list[asyncio.Future[None]] = []
        self.refusal: Exception | None = None
        """How each login after the first one fails at once; None: it is held."""
        self._count = 0

    async def end(self, error: Exception | None = None) -> None:
        """End the next login: it succeeds, or fails with an error."""
        await until(lambda: bool(self.waiting))
        waiting = self.waiting.pop()
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)

    async def _log_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, access: SaslAccess
    ) -> int:
        self._count += 1
        if self._count > 1:
            if self.refusal is not None:
                raise self.refusal
            self.waiting.append(asyncio.get_running_loop().create_future())
            await self.waiting[-1]
        return await log_in(reader, writer, access)


def connection_of(peers: Peers) -> PeerConnection:
    """Return the connection that takes calls."""
    connection = peers._links[7][1].current
    assert connection is not None
    return connection


async def test_no_call_waits_for_the_next_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login is about to end. The next one begins without a call, and takes as long as it may."""
    setting, logins = LoginSetting(session_ms_max=600_000), NextLogins(monkeypatch)
    async with listening(setting) as address, peers_of(access_of(tmp_path)) as peers:
        assert await ask(peers, address) == b"User:user"
        first = connection_of(peers)
        await until(lambda: bool(logins.waiting))
        assert [await ask(peers, address) for _ in range(3)] == [b"User:user"] * 3
        assert first.is_open
        assert connection_of(peers) is first
        await logins.end()
        await until(lambda: connection_of(peers) is not first)
        assert not first.is_open
        assert await ask(peers, address) == b"User:user"
        await until(lambda: bool(logins.waiting))  # for the third connection
        assert setting.context.counters.connections_accepted == 3
        await until(lambda: len(setting.context.connections) == 2)


async def test_calls_go_on_while_the_next_login_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, logins = LoginSetting(session_ms_max=600_000), NextLogins(monkeypatch)
    async with listening(setting) as address, peers_of(access_of(tmp_path)) as peers:
        await ask(peers, address)
        first = connection_of(peers)
        for _ in range(3):
            await logins.end(SaslError("the broker refuses"))
            assert await ask(peers, address) == b"User:user"
        assert connection_of(peers) is first
        await logins.end()
        await until(lambda: connection_of(peers) is not first)
        assert await ask(peers, address) == b"User:user"


async def test_a_connection_is_not_used_beyond_its_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No other login succeeds in time. A call then fails with the reason, not by its connection."""
    setting, logins = LoginSetting(session_ms_max=100), NextLogins(monkeypatch)
    logins.refusal = SaslError("the broker refuses the user")
    async with listening(setting) as address, peers_of(access_of(tmp_path)) as peers:
        waiting = asyncio.ensure_future(ask(peers, address, ApiKey.FETCH))
        await until(lambda: len(setting.held) == 1)
        link = peers._links[7][1]
        await until(lambda: link.current is None)
        assert "broker 7: the login has ended, and no other succeeded" in caplog.text
        with pytest.raises(PeerError, match="refuses the user"):
            await ask(peers, address)
        setting.answer()
        assert await waiting == b"fetched"
        logins.refusal, link.retry_at = None, 0.0
        asking = asyncio.ensure_future(ask(peers, address))
        await logins.end()
        assert await asking == b"User:user"


async def test_a_connection_that_ended_is_not_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next login is under way. It is used by the next call, which waits for it."""
    setting, logins = LoginSetting(session_ms_max=600_000), NextLogins(monkeypatch)
    async with listening(setting) as address, peers_of(access_of(tmp_path)) as peers:
        await ask(peers, address)
        await until(lambda: bool(logins.waiting))
        connection_of(peers).close("it ended")
        asking = asyncio.ensure_future(ask(peers, address))
        await turns()
        assert not asking.done()
        await logins.end()
        assert await asking == b"User:user"
        await until(lambda: bool(logins.waiting))
        connection_of(peers).close("it ended")
        await logins.end(SaslError("the broker refuses"))
        renewal = peers._links[7][1]._renewal
        assert renewal is not None
        await until(renewal.done)
        assert setting.context.counters.connections_accepted == 3


async def test_closing_ends_the_next_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, logins = LoginSetting(session_ms_max=600_000), NextLogins(monkeypatch)
    async with listening(setting) as address, peers_of(access_of(tmp_path)) as peers:
        await ask(peers, address)
        await until(lambda: bool(logins.waiting))
        await peers.aclose()
        await until(lambda: not setting.context.connections)
        assert logins.waiting[0].cancelled()


async def test_a_new_address_ends_the_next_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, moved = LoginSetting(session_ms_max=600_000), LoginSetting()
    logins = NextLogins(monkeypatch)
    async with (
        listening(setting) as address,
        listening(moved) as new_address,
        peers_of(access_of(tmp_path)) as peers,
    ):
        await ask(peers, address)
        await until(lambda: bool(logins.waiting))
        asking = asyncio.ensure_future(ask(peers, new_address))
        await until(lambda: not setting.context.connections)
        await until(lambda: len(logins.waiting) == 2)
        assert logins.waiting[0].cancelled()
        await logins.end()
        assert await asking == b"User:user"


async def test_a_replaced_connection_still_brings_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, logins = LoginSetting(session_ms_max=600_000), NextLogins(monkeypatch)
    async with listening(setting) as address, peers_of(access_of(tmp_path)) as peers:
        waiting = asyncio.ensure_future(ask(peers, address, ApiKey.FETCH))
        await until(lambda: len(setting.held) == 1)
        first = connection_of(peers)
        await logins.end()
        await until(lambda: connection_of(peers) is not first)
        assert await ask(peers, address) == b"User:user"
        assert first.is_open
        setting.answer()
        assert await waiting == b"fetched"
        await until(lambda: not first.is_open)


async def test_replaced_connections_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, logins = LoginSetting(session_ms_max=600_000), NextLogins(monkeypatch)
    async with listening(setting) as address, peers_of(access_of(tmp_path)) as peers:
        waiting = []
        for count in range(1, 5):
            waiting.append(asyncio.ensure_future(ask(peers, address, ApiKey.FETCH)))
            await until(lambda count=count: len(setting.held) == count)  # type: ignore[misc]
            used = connection_of(peers)
            await logins.end()
            await until(lambda used=used: connection_of(peers) is not used)  # type: ignore[misc]
        await until(lambda: len(setting.context.connections) == 3)  # one of them logs in
        ended = await asyncio.gather(*waiting[:3], return_exceptions=True)
        assert [str(each) for each in ended] == ["another login is due"] * 3
        assert not waiting[3].done()
        await peers.aclose()
        with pytest.raises(PeerError, match="stopping"):
            await waiting[3]
        await until(lambda: not setting.context.connections)


async def test_a_login_that_fails_later_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    setting = LoginSetting(session_ms_max=60_000)
    async with listening(setting) as address, peers_of(access_of(tmp_path)) as peers:
        await ask(peers, address)
        setting.change_password(USERS[0], credential(ScramMechanism.SHA_512, "another"))
        await until(lambda: not setting.context.connections)
        with contextlib.suppress(PeerError):  # the end of the connection may not be seen yet
            await ask(peers, address)
        with pytest.raises(PeerError, match="refuses the user"):
            await ask(peers, address)
        access_of(tmp_path, "another")
        peers._links[7][1].retry_at = 0.0
        assert await ask(peers, address) == b"User:user"


async def test_close_after_answers_without_calls_closes_at_once(tmp_path: Path) -> None:
    setting = LoginSetting()
    async with listening(setting) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        assert await log_in(reader, writer, access_of(tmp_path)) == 0
        connection = PeerConnection(reader, writer, "x#1")
        connection.close_after_answers("enough")
        assert not connection.is_open
        with pytest.raises(PeerError, match="enough"):
            connection.call(ApiKey.METADATA, 9, b"")
        await connection.wait_closed()


async def test_close_after_answers_waits_for_all_calls(tmp_path: Path) -> None:
    setting = LoginSetting()
    async with listening(setting) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        await log_in(reader, writer, access_of(tmp_path))
        connection = PeerConnection(reader, writer, "x#1")
        calls = [connection.call(ApiKey.FETCH, 12, b"") for _ in range(3)]
        await until(lambda: len(setting.held) == 3)
        connection.close_after_answers("enough")
        calls[1].cancel()
        for left in (2, 1, 0):
            assert connection.is_open
            setting.answer()
            await until(lambda left=left: len(connection._calls) == left)  # type: ignore[misc]
        assert not connection.is_open
        assert [bytes(await calls[each]) for each in (0, 2)] == [b"fetched"] * 2
        await connection.wait_closed()


@pytest.mark.real_time  # names are resolved by the machine
@pytest.mark.parametrize("host", ["kafka..example", "k" * 64])
async def test_a_broker_that_advertises_no_name_of_a_host_is_not_reached(host: str) -> None:
    peers = Peers("broker-1", Random(1))
    with pytest.raises(PeerError, match="cannot be reached"):
        await ask(peers, PeerAddress(7, host, 9092))
    await peers.aclose()
