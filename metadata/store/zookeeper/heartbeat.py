"""Contact with a ZooKeeper server: requests at intervals, and leaving a server that is silent.

Leaves the connection to `session.py`, and the state of the session to `session_clock.py`.

Invariants: a server that answers nothing is left while the session can still move to another one,
also by a client that keeps sending requests. Kazoo alone does not leave it: it sends a ping only
when it has sent nothing else for a third of a session, and then waits as long again.

Source: kazoo 2.10-2.11, `_connect_attempt`; ZooKeeper's own client leaves a server after the same
time without an answer.
"""

import asyncio
from math import inf
from typing import Any, Final

from metadata.store.session_clock import SessionClock
from metadata.store.zookeeper.calls import NoAuth
from metadata.store.zookeeper.session import ZooKeeperSession

BEATS_PER_SESSION: Final = 3
GRACES_PER_SESSION: Final = 40
"""A silent server has one more fortieth of a session: after a pause of this process, its answer is
perhaps already here.
"""


async def keep_alive(session: ZooKeeperSession, clock: SessionClock, is_up: asyncio.Event) -> None:
    """Contact the server several times per session, expire the session by the clock, and cut the
    connection to a silent server, until cancelled.
    """
    loop = asyncio.get_running_loop()
    pending: asyncio.Future[Any] | None = None
    leaves_s = inf
    while True:
        now = loop.time()
        if is_up.is_set() and (pending is None or pending.done()):
            pending = _send_beat(session, clock, now)
        clock.check(now)
        if not is_up.is_set() or now < clock.silent_s:
            leaves_s = inf
        elif leaves_s == inf:
            leaves_s = now + clock.session_timeout_s / GRACES_PER_SESSION
        elif now >= leaves_s:
            session.cut()
        beats_s = now + clock.session_timeout_s / BEATS_PER_SESSION
        times = (beats_s, clock.ends_s, clock.silent_s, leaves_s)
        await asyncio.sleep(min(time for time in times if time > now) - now)


def _send_beat(
    session: ZooKeeperSession, clock: SessionClock, sent_s: float
) -> "asyncio.Future[Any]":
    def answered(future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None or isinstance(error, NoAuth):  # a refusal is an answer
            clock.contacted(sent_s, loop.time())

    loop = asyncio.get_running_loop()
    future = session.submit("exists", "/")
    future.add_done_callback(answered)
    return future
