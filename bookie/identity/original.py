"""Check before a start that no other process serves as the same bookie.

Leaves the comparison of directories to `bookie.identity.identity`. Its hello is that of rule 2.3
alone, because the bookie does not import the client.

Invariants: a process that answers at the registered address with the same identity is never
replaced; a registration is replaced at once only if its process is proved dead: that process
recorded the position while it held the lock that this process holds now, on the same run of the
system. No answer proves nothing: the start then waits until the registration's session ends.

Source: protocol rules 2.3 and 2.6-2.8.
"""

import asyncio
from typing import Final, cast

from bookie.errors import OriginalLivesError, OriginalRegisteredError
from bookie.wire.codec import decode_reply, encode_message
from bookie.wire.errors import FrameError, MessageError
from bookie.wire.frames import FrameAssembler, FrameKind, frame_header
from bookie.wire.messages import WIRE_VERSION, WIRE_VERSION_MIN, Hello, HelloReply, Status
from metadata.errors import NodeNotFoundError
from metadata.ids import BookieId
from metadata.paths import bookie_path
from metadata.registry.positions import PositionRecord, PositionStore
from metadata.registry.registration import REGISTRATION_CODEC, BookieRegistration
from metadata.store.ephemeral import HeldNode, unpack_held
from metadata.store.interface import MetadataStore
from quire.server.overriding import override
from quire.server.server_log import ServerLog

SESSIONS_WAITED: Final = 3.0
"""Maximum wait for the end of a registration, in session timeouts of this process."""
WAIT_S_MIN: Final = 30.0
"""Minimum of that wait, in seconds: the other process may have a longer session timeout."""
CHECK_INTERVAL_S: Final = 0.2
HELLO_INTERVAL_S: Final = 2.0
GREETING_S_MAX: Final = 2.0
"""Maximum time for the connection and the answer together, in seconds."""
CLIENT_NAME: Final = "a starting bookie"


def registration_wait_s(session_timeout_s: float) -> float:
    """Return the maximum wait for the end of a session whose process does not answer, in
    seconds.
    """
    return max(WAIT_S_MIN, SESSIONS_WAITED * session_timeout_s)


class OriginalCheck:
    """Search for a running process of the same bookie."""

    def __init__(self, store: MetadataStore, *, wait_s: float, log: ServerLog | None) -> None:
        self._store = store
        self._wait_s = wait_s
        self._log = log

    async def run(
        self, bookie_id: BookieId, lock: str, *, is_counted: bool = False
    ) -> bytes | None:
        """Wait until no other process is registered as this bookie. Return the incarnation of a
        dead process that is still registered, or None. `lock` is the identity of the lock held
        here; `is_counted` says that this start was counted, for the error's text.

        Raises OriginalLivesError, OriginalRegisteredError, MetadataError.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._wait_s
        hello_at_s = loop.time()
        is_reported = False
        while (held := await self._registered_node(bookie_id)) is not None:
            registration = REGISTRATION_CODEC.unpack(bookie_path(bookie_id), held.content)
            if loop.time() >= hello_at_s:
                await _refuse_if_alive(bookie_id, registration, is_counted=is_counted)
                hello_at_s = loop.time() + HELLO_INTERVAL_S
            position = await PositionStore(self._store).get(bookie_id)
            if is_proved_dead(held, position.record, lock):
                return held.incarnation
            if loop.time() >= deadline_s:
                raise OriginalRegisteredError(
                    bookie_id, registration.address, self._wait_s, is_counted=is_counted
                )
            if not is_reported and self._log is not None:
                is_reported = True
                self._log.warning(
                    "waiting for the session of another process of this bookie to end",
                    bookie=bookie_id,
                    address=registration.address,
                    seconds_max=self._wait_s,
                )
            await asyncio.sleep(CHECK_INTERVAL_S)
        return None

    async def _registered_node(self, bookie_id: BookieId) -> HeldNode | None:
        path = bookie_path(bookie_id)
        try:
            return unpack_held(path, (await self._store.get(path, fresh=True)).value)
        except NodeNotFoundError:
            return None


def is_proved_dead(held: HeldNode, position: PositionRecord | None, lock: str) -> bool:
    """Return whether the process of a registration is dead: it held the lock that is held here
    now.
    """
    return (
        position is not None
        and position.incarnation == held.incarnation
        and bool(lock)
        and position.lock == lock
    )


async def _refuse_if_alive(
    bookie_id: BookieId, registration: BookieRegistration, *, is_counted: bool
) -> None:
    # Also checked if the lock proves the process dead: a virtual machine that was copied while it
    # ran has the same boot id and the same lock file.
    reply = await greet(registration.host, registration.port, bookie_id)
    if reply is None or reply.bookie_id != bookie_id or reply.status is Status.CLOSING:
        return
    raise OriginalLivesError(bookie_id, registration.address, is_counted=is_counted)


async def greet(host: str, port: int, bookie_id: BookieId) -> HelloReply | None:
    """Send a hello and return the answer; None if there is none within GREETING_S_MAX."""
    transport: asyncio.BaseTransport | None = None
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(GREETING_S_MAX):
            transport, greeting = await loop.create_connection(
                lambda: _Greeting(bookie_id), host, port
            )
            return await greeting.answered
    except (OSError, TimeoutError):
        return None
    finally:
        if transport is not None:
            cast("asyncio.Transport", transport).abort()


class _Greeting(asyncio.Protocol):
    """One connection, until its first answer or its end."""

    def __init__(self, bookie_id: BookieId) -> None:
        self.answered: asyncio.Future[HelloReply | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._bookie_id = bookie_id
        self._assembler = FrameAssembler()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        versions = (WIRE_VERSION_MIN, WIRE_VERSION)
        body = encode_message(Hello(self._bookie_id, *versions, 0, b"", CLIENT_NAME))
        frame = frame_header(FrameKind.REQUEST, 1, len(body)) + body
        cast("asyncio.Transport", transport).write(frame)

    @override
    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        rest = memoryview(data)
        try:
            while rest and not self.answered.done():
                buffer = self._assembler.get_buffer()
                count = min(len(buffer), len(rest))
                buffer[:count] = rest[:count]
                for frame in self._assembler.buffer_updated(count):
                    reply = decode_reply(frame.body)
                    self._settle(reply if isinstance(reply, HelloReply) else None)
                rest = rest[count:]
        except (FrameError, MessageError):
            self._settle(None)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._settle(None)

    def _settle(self, reply: HelloReply | None) -> None:
        if not self.answered.done():
            self.answered.set_result(reply)
