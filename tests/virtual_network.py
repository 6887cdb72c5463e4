"""Event loop in virtual time with a network in memory, for tests of clients and servers.

Leaves the clock to `tests.virtual_time`. Tests whose threads, processes or sockets
need the machine's clock are marked `real_time`.

Invariants: a connection is a pair of Unix sockets, which hold what was written before `write`
returns. So "nothing is ready" means that nothing is on its way, however busy the machine is, and
the clock jumps to the next timer then.
"""

import asyncio
import itertools
import socket
from collections.abc import Callable, Collection
from typing import Any, Final

import pytest
from typing_extensions import override  # `typing` has it from 3.12 on

from tests.steady_time import SteadyTimeLoop
from tests.virtual_time import VirtualTimeLoop

FIRST_PORT: Final = 20_000
HOST: Final = "127.0.0.1"

Factory = Callable[[], asyncio.BaseProtocol]
Name = tuple[str, int]


class _NamedSocket(socket.socket):
    """One end of a connection, with names and options as TCP has them."""

    own_name: Name = ("", 0)
    peer_name: Name = ("", 0)

    @override
    def getsockname(self) -> Name:
        return self.own_name

    @override
    def getpeername(self) -> Name:
        return self.peer_name

    @override
    def setsockopt(self, level: int, *option: Any) -> None:
        if level == socket.SOL_SOCKET:
            super().setsockopt(level, *option)


class _ListeningSocket:
    def __init__(self, name: Name) -> None:
        self._name = name

    def getsockname(self) -> Name:
        return self._name


class _Listener(asyncio.AbstractServer):
    """A port that accepts connections."""

    def __init__(self, loop: "VirtualNetworkLoop", factory: Factory, name: Name, tls: Any) -> None:
        self.sockets = (_ListeningSocket(name),)
        self._loop = loop
        self._factory = factory
        self._port = name[1]
        self._tls = tls
        self._accepting: set[asyncio.Task[None]] = set()

    def accept(self, accepted: socket.socket) -> None:
        """Serve a new connection."""
        task = self._loop.create_task(self._accept(accepted))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    async def _accept(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, accepted, **self._tls)
        except OSError:
            accepted.close()  # as a server does if the handshake of TLS fails

    def close(self) -> None:  # type: ignore[explicit-override]
        """Accept no more connections."""
        if self.is_serving():
            del self._loop.listeners[self._port]

    async def wait_closed(self) -> None:  # type: ignore[explicit-override]
        """Return at once: connections belong to their protocols."""

    def get_loop(self) -> asyncio.AbstractEventLoop:  # type: ignore[explicit-override]
        """Return the loop of the network."""
        return self._loop

    async def start_serving(self) -> None:  # type: ignore[explicit-override]
        """Do nothing: a port serves from the start."""

    async def serve_forever(self) -> None:  # type: ignore[explicit-override]
        """Serve until cancelled."""
        await self._loop.create_future()

    def is_serving(self) -> bool:  # type: ignore[explicit-override]
        """Return whether the port accepts connections."""
        return self._loop.listeners.get(self._port) is self


class VirtualNetworkLoop(VirtualTimeLoop):
    """Event loop on which servers and their clients share one process."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: dict[int, _Listener] = {}
        self._ports = itertools.count(FIRST_PORT)
        self._connected: dict[socket.socket, _NamedSocket] = {}
        self._bound: dict[int, tuple[socket.socket, asyncio.Queue[socket.socket]]] = {}
        """Sockets of servers that accept by themselves, by port."""

    @override
    async def create_server(  # type: ignore[override]
        self, factory: Factory, host: object = None, port: int = 0, **options: Any
    ) -> _Listener:
        assert "sock" not in options, "mark this test real_time: it has a socket of its own"
        name = (HOST, port or next(self._ports))
        if name[1] in self.listeners:
            raise OSError(98, f"{name} is in use")
        listener = _Listener(self, factory, name, _tls_of(options, ("ssl_handshake_timeout",)))
        self.listeners[name[1]] = listener
        return listener

    @override
    async def create_connection(  # type: ignore[override]
        self, factory: Factory, host: str = "", port: int = 0, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if "sock" in options:
            near = self._connected.pop(options["sock"])
        else:
            await asyncio.sleep(0)  # a server that has just started accepts first
            near = self._dial(host, port)
        tls = _tls_of(options, ("ssl_handshake_timeout", "server_hostname"))
        if tls:
            tls.setdefault("server_hostname", host)
        return await super().create_connection(factory, sock=near, **tls)

    @override
    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect for a library that makes its sockets by itself, and wraps them afterwards."""
        self._connected[sock] = self._dial(*address[:2])

    @override
    async def sock_accept(self, sock: socket.socket) -> tuple[socket.socket, Name]:
        """Accept for a server that makes its socket by itself."""
        port = sock.getsockname()[1]
        if port not in self._bound:
            self._bound[port] = sock, asyncio.Queue()
        accepted = await self._bound[port][1].get()
        return accepted, accepted.getpeername()

    def _dial(self, host: str, port: int) -> _NamedSocket:
        listener = self.listeners.get(port)
        bound, queue = self._bound.get(port, (None, None))
        if listener is None and (bound is None or bound.fileno() < 0):
            raise ConnectionRefusedError(111, f"no server listens at {host}:{port}")
        near, far = (_NamedSocket(fileno=each.detach()) for each in socket.socketpair())
        for named_socket in (near, far):
            named_socket.setblocking(False)
        near.own_name = far.peer_name = (HOST, next(self._ports))
        near.peer_name = far.own_name = (HOST, port)
        if listener is not None:
            listener.accept(far)
        elif queue is not None:
            queue.put_nowait(far)
        return near


def _tls_of(options: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    if options.get("ssl") is None:
        return {}
    return {name: options[name] for name in ("ssl", *names) if options.get(name) is not None}


def pytest_asyncio_loop_factories(
    item: pytest.Function,
) -> dict[str, type[asyncio.SelectorEventLoop]]:
    """Return the loop of a test, for the `conftest.py` of a folder."""
    if item.get_closest_marker("real_time") is not None:
        return {"real": SteadyTimeLoop}
    return {"virtual": VirtualNetworkLoop}
