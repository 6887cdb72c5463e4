"""Proxy between a client and one server that delays every byte in both directions, and a metadata
store that replaces the registered addresses of bookies by those of proxies.

Leaves which bookie is delayed, and when, to `injection`.

Invariants: bytes pass in order and unchanged; a delay does not reduce the throughput; at most
HELD_CHUNKS_MAX reads of one direction are held.

Source: metadata design, "Registration".
"""

import asyncio
import contextlib
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from time import monotonic
from typing import Final, Self

from metadata.cancelling import cancel_and_wait
from metadata.paths import BOOKIES
from metadata.registry.registration import REGISTRATION_CODEC
from metadata.store.ephemeral import pack_held, unpack_held
from metadata.store.interface import Stored
from metadata.store.uri import parse_zookeeper_uri
from metadata.store.zookeeper.store import ZooKeeperMetadataStore
from quire.server.overriding import override

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 * 1024
HELD_CHUNKS_MAX: Final = 1_024

_Held = asyncio.Queue[tuple[float, bytes]]


class DelayingProxy:
    """One listening port in front of one server."""

    def __init__(self, target: str) -> None:
        self.delay_s = 0.0
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._links: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """Address that the proxy listens on."""
        assert self._server is not None, "it was started"
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

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
    other = redirects.get(f"{registration.host}:{registration.port}")
    if other is None:
        return stored
    host, _, port = other.rpartition(":")
    content = REGISTRATION_CODEC.pack(
        "a registration", replace(registration, host=host, port=int(port))
    )
    return replace(stored, value=pack_held(replace(held, content=content)))
