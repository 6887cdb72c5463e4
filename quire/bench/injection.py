"""Injector of a scenario's faults into a running cluster, which records when each one struck, and
proxies that delay connections.

Source: metadata design, "Registration".
"""

import asyncio
import contextlib
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import monotonic
from typing import Any, Final, Self

from metadata.cancelling import cancel_and_wait
from metadata.paths import BOOKIES
from metadata.registry.registration import REGISTRATION_CODEC
from metadata.store.ephemeral import pack_held, unpack_held
from metadata.store.interface import Stored
from metadata.store.uri import parse_zookeeper_uri
from metadata.store.zookeeper.store import ZooKeeperMetadataStore
from quire.addresses import join_address, split_address
from quire.bench import faults as f
from quire.bench.scenarios import Step
from quire.errors import LocalClusterError
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from quire.server.overriding import override

BEFORE_KILL_S: Final = 0.6
"""Time to read a bookie's counters before it is killed, in seconds."""
HOST: Final = "127.0.0.1"
_Held = asyncio.Queue[tuple[float, bytes]]
CHUNK_BYTES: Final = 64 * 1024
HELD_CHUNKS_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class InjectionMark:
    """Something done to the cluster; `at` is the time of the machine's monotonic clock."""

    at: float
    label: str


class DelayingProxy:
    """One listening port in front of one server.

    Bytes pass in order and unchanged; a delay does not reduce the throughput; at most
    HELD_CHUNKS_MAX reads of one direction are held.
    """

    def __init__(self, target: str) -> None:
        self.delay_s = 0.0
        self._target = split_address(target)
        self._server: asyncio.Server | None = None
        self._links: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """Address that the proxy listens on."""
        assert self._server is not None, "it was started"
        host, port = self._server.sockets[0].getsockname()[:2]
        return join_address(host, port)

    async def start(self, host: str = HOST, tls: ssl.SSLContext | None = None) -> Self:
        """Listen, with `tls` for clients that use TLS; the target gets plain bytes."""
        self._server = await asyncio.start_server(self._serve, host, 0, ssl=tls)
        return self

    async def aclose(self) -> None:
        """Stop listening, and close every connection."""
        assert self._server is not None, "it was started"
        self._server.close()
        await cancel_and_wait(*self._links)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server's connection is a task"
        self._links.append(task)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as group:
                for source, sink in ((reader, far_writer), (far_reader, writer)):
                    held: _Held = asyncio.Queue(HELD_CHUNKS_MAX)
                    group.create_task(self._read(source, held))
                    group.create_task(_write(held, sink))
        except* OSError:
            pass  # one end closed: close the other too
        finally:
            writer.close()
            far_writer.close()

    async def _read(self, source: StreamReader, held: _Held) -> None:
        while data := await source.read(CHUNK_BYTES):
            await held.put((monotonic() + self.delay_s, data))
        await held.put((monotonic() + self.delay_s, b""))


class Injector:
    """Injector of the faults of one run.

    After `heal` no process is stopped and no byte is held back; a killed process stays down unless
    a step starts it again.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        members: Sequence[LocalBookie],
        proxies: Mapping[str, DelayingProxy],
        kill_writer: Callable[[], None],
    ) -> None:
        self.marks: list[InjectionMark] = []
        self._cluster = cluster
        self._members = members
        self._proxies = proxies
        self._kill_writer = kill_writer
        self._slowing: list[asyncio.Task[None]] = []
        self._starting: list[asyncio.Task[None]] = []

    async def run(
        self, steps: Sequence[Step], start: float, before: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Perform every step at its time after `start`; call `before` ahead of the kill of a
        bookie.
        """
        for step in steps:
            if isinstance(step.fault, f.KillBookie):
                await asyncio.sleep(max(0.0, start + step.at_s - monotonic() - BEFORE_KILL_S))
                await before()
            await asyncio.sleep(max(0.0, start + step.at_s - monotonic()))
            await self._perform(step.fault)
        await asyncio.gather(*self._starting)

    async def heal(self) -> None:
        """Resume everything that still runs, at full speed."""
        await self._end_slowness()
        for bookie in self._members:
            if bookie.is_running:
                bookie.resume()

    async def _perform(self, fault: f.Fault) -> None:
        self.marks.append(InjectionMark(monotonic(), f.describe(fault)))
        match fault:
            case f.PauseBookie(member):
                self._members[member].pause()
            case f.ResumeBookie(member):
                self._members[member].resume()
            case f.KillBookie(member):
                self._members[member].kill()
            case f.RestartBookie(member):
                self._starting.append(asyncio.ensure_future(self._start_again(member)))
            case f.SlowBookie(member, stopped_s, period_s):
                bookie = self._members[member]
                self._slow(bookie.pause, bookie.resume, stopped_s, period_s)
            case f.DelayNetwork(member, delay_s):
                self._proxies[self._members[member].address].delay_s = delay_s
            case f.SlowZooKeeper(stopped_s, period_s):
                server = self._cluster.zookeeper
                self._slow(server.pause, server.resume, stopped_s, period_s)
            case f.PauseZooKeeper():
                self._cluster.zookeeper.pause()
            case f.HealSlowness():
                await self._end_slowness()
            case f.KillWriter():
                self._kill_writer()

    async def _start_again(self, member: int) -> None:
        await self._members[member].restart()
        self.marks.append(InjectionMark(monotonic(), f"bookie {member + 1} serves again"))

    def _slow(
        self,
        stop: Callable[[], None],
        resume: Callable[[], None],
        stopped_s: float,
        period_s: float,
    ) -> None:
        self._slowing.append(asyncio.ensure_future(_alternate(stop, resume, stopped_s, period_s)))

    async def _end_slowness(self) -> None:
        await cancel_and_wait(*self._slowing)
        self._slowing.clear()
        for proxy in self._proxies.values():
            proxy.delay_s = 0.0
        self._cluster.zookeeper.resume()


async def _alternate(
    stop: Callable[[], None], resume: Callable[[], None], stopped_s: float, period_s: float
) -> None:
    """Stop and resume a process until cancelled; it runs at the end."""
    try:
        while True:
            begun = monotonic()
            stop()
            await asyncio.sleep(stopped_s)
            resume()
            await asyncio.sleep(max(0.0, begun + period_s - monotonic()))
    finally:
        with contextlib.suppress(LocalClusterError, AssertionError):  # it has ended
            resume()


async def _write(held: _Held, sink: StreamWriter) -> None:
    while True:
        due, data = await held.get()
        await asyncio.sleep(max(0.0, due - monotonic()))
        if not data:
            with contextlib.suppress(OSError):
                _end(sink)
            return
        sink.write(data)
        await sink.drain()


def _end(sink: StreamWriter) -> None:
    """Tell the other end that nothing more comes; TLS can do that only for both directions."""
    if sink.can_write_eof():
        sink.write_eof()
    else:
        sink.close()


class RedirectingStore(ZooKeeperMetadataStore):
    """A store in ZooKeeper that replaces addresses in registrations."""

    def __init__(self, uri: str, rng: Random, redirects: Mapping[str, str]) -> None:
        super().__init__(parse_zookeeper_uri(uri), rng)
        self._redirects = redirects

    @override
    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        """Read a node; in a registration, replace the address."""
        stored = await super().get(path, fresh=fresh, agreed=agreed)
        return redirected(path, stored, self._redirects)


def redirected(path: str, stored: Stored, redirects: Mapping[str, str]) -> Stored:
    """Return a node with the address replaced, if it is the registration of a redirected bookie."""
    if not path.startswith(f"{BOOKIES}/"):
        return stored
    held = unpack_held(path, stored.value)
    registration = REGISTRATION_CODEC.unpack(path, held.content)
    other = redirects.get(registration.address)
    if other is None:
        return stored
    host, port = split_address(other)
    content = REGISTRATION_CODEC.pack("a registration", replace(registration, host=host, port=port))
    return replace(stored, value=pack_held(replace(held, content=content)))
