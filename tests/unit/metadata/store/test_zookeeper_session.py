"""A new session's lease counts from the sending of the request for it, not from the answer, which
may arrive when the server has almost ended the session. The attempts to connect stay apart. An
error that kazoo does not expect ends no thread.
"""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from kazoo.retry import ForceRetryError

from metadata.store.interface import SessionState
from metadata.store.uri import parse_metadata_uri
from metadata.store.zookeeper.session import (
    RECONNECT_DELAY_MAX_S,
    RECONNECT_DELAY_S,
    LinkEvent,
    LinkUp,
    ZooKeeperSession,
    reconnect_retry,
)
from metadata.store.zookeeper.store import open_store
from tests.support.metadata.scripted_zookeeper import ScriptedZooKeeper
from tests.until import until
from tests.virtual_time import VirtualTimeLoop

TIMEOUTS_MS = (4000, 4000)


@dataclass
class SlowConnection:
    """The calls of a kazoo connection that the session wraps; a server answers after 3 s."""

    loop: VirtualTimeLoop

    def _connect(self, _host: str, _address: str, _port: int) -> tuple[int, int]:
        self.loop.advance(3.0)
        return TIMEOUTS_MS

    def _invoke(self, _timeout: float, _request: Any, _xid: Any = None) -> None:
        raise AssertionError("nothing is sent")

    def _read_socket(self, _timeout: float) -> None:
        raise AssertionError("nothing is read")

    def _expand_client_hosts(self) -> list[Any]:
        return []


async def test_a_lease_counts_from_the_request() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    events: list[LinkEvent] = []
    session = ZooKeeperSession(parse_metadata_uri("zk://h:1"), 4.0, Random(1), events.append)
    connection: Any = SlowConnection(loop)
    session._wrap_connection(connection)
    began = loop.time()
    assert connection._connect("h", "h", 1) == TIMEOUTS_MS
    await asyncio.sleep(0)
    (up,) = events
    assert isinstance(up, LinkUp)
    assert up.session_timeout_s == 6.0
    assert up.contacted_s == began
    assert loop.time() == began + 3.0


class EnoughPausesError(Exception):
    """Ends the attempts of a test."""


@pytest.mark.parametrize("run", range(20))
def test_pauses_between_attempts_to_connect_do_not_shrink(run: int) -> None:
    del run  # kazoo draws from the module random
    pauses: list[float] = []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 5_000:
            raise EnoughPausesError

    def refused() -> None:
        raise ForceRetryError("nothing listens")

    with pytest.raises(EnoughPausesError):
        reconnect_retry(sleep)(refused)
    assert min(pauses) >= RECONNECT_DELAY_S / 2
    assert max(pauses) <= RECONNECT_DELAY_MAX_S * 2


async def test_an_error_that_ends_kazoos_thread_begins_a_new_session(
    zookeeper: ScriptedZooKeeper,
) -> None:
    store = await open_store(f"{zookeeper.uri}/quire", rng=Random(7))
    states: list[SessionState] = []
    store.on_session(states.append)
    connection = store._session._client._connection

    def fail(*_: object) -> None:
        del connection._connect_attempt
        raise OSError(22, "Invalid argument")

    connection._connect_attempt = fail
    zookeeper.cut()
    await until(lambda: states[-1:] == [SessionState.CONNECTED])
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
    assert await store.create("/a", b"") == 0
    await store.aclose()
