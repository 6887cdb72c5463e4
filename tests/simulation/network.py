"""Network of a simulated cluster: hosts that listen and connect, with faults.

Leaves the bytes of a connection to `tests.simulation.transport`, and the times of faults to
`tests.simulation.faults`.

Invariants: the seed draws every delay and every split of a stream into reads. A cut between two
hosts holds data back and delivers it after the cut heals, as TCP does. The peers of a killed host
see a reset, later or never.
Source: assurance design; reliability design, "Network faults".
"""

import asyncio
import itertools
import random
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.availability.decision import FaultTime, link_of
from tests.simulation.availability.fault_history import FaultHistory
from tests.simulation.loop import NODE, SimulationLoop
from tests.simulation.transport import Endpoint, Tap

HOST: Final = ContextVar("HOST", default="outside")
"""Simulated machine that a callback runs on."""
LOOK_AGAIN_S: Final = 0.1
SILENCE_S: Final = 130.0
"""Time that the connecting side tries to reach a machine that is off, in seconds."""

MakeTaps = Callable[[Endpoint, Endpoint, asyncio.BaseProtocol], tuple[Tap, Tap] | None]


@dataclass(frozen=True, slots=True)
class NetworkOdds:
    """Delays and fault rates of the network."""

    delay_s: float = 0.0005
    slow_share: float = 0.0
    slow_delay_s: float = 0.5
    split_share: float = 0.2
    never_seen_share: float = 0.3
    """Share of a killed host's peers that get no reset."""


class _Socket:
    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name


class Listener(asyncio.AbstractServer):
    """A port that accepts connections."""

    def __init__(
        self, network: "Network", factory: Callable[[], asyncio.BaseProtocol], name: tuple[str, int]
    ) -> None:
        self.factory = factory
        self.context = copy_context()
        self.node = self.context.get(NODE, 0)
        self.host = HOST.get()
        self.sockets = (_Socket(name),)
        self._network = network
        self._name = name

    def close(self) -> None:  # type: ignore[explicit-override]
        """Accept no more connections."""
        if self.is_serving():
            del self._network.listeners[self._name]

    async def wait_closed(self) -> None:  # type: ignore[explicit-override]
        """Return at once: connections belong to their protocols."""

    def get_loop(self) -> asyncio.AbstractEventLoop:  # type: ignore[explicit-override]
        """Return the simulation's loop."""
        return self._network.loop

    async def start_serving(self) -> None:  # type: ignore[explicit-override]
        """Do nothing: a port serves from the start."""

    async def serve_forever(self) -> None:  # type: ignore[explicit-override]
        """Serve until cancelled."""
        await self._network.loop.create_future()

    def is_serving(self) -> bool:  # type: ignore[explicit-override]
        """Return whether the port accepts connections."""
        return self._network.listeners.get(self._name) is self


class Network:
    """All hosts of one simulation. Call `install` once."""

    def __init__(self, loop: SimulationLoop, seed: int, odds: NetworkOdds) -> None:
        self.loop = loop
        self.odds = odds
        self.context = Context()
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.connect_count = 0
        self.make_taps: MakeTaps = lambda *_: None
        self.faults = FaultHistory(lambda: loop.now_s)
        self._rng = random.Random(f"network {seed}")
        self._ports = itertools.count(20_000)
        self._endpoints: dict[Endpoint, None] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._cut_faults: dict[tuple[str, str], FaultTime] = {}
        self._unseen: dict[Endpoint, FaultTime] = {}
        """Connecting ends that do not know that the other end is gone."""
        self._kept_back: dict[Endpoint, None] = {}
        self._off_hosts: dict[str, None] = {}

    def install(self) -> None:
        """Handle the loop's `create_connection` and `create_server`."""
        loop: Any = self.loop
        loop.create_connection = self._connect
        loop.create_server = self._listen

    # -- faults

    def cut(self, source: str, target: str) -> None:
        """Block all traffic from one host to another; cuts add up."""
        pair = (source, target)
        self._cuts[pair] = self._cuts.get(pair, 0) + 1
        if pair not in self._cut_faults:
            self._cut_faults[pair] = self.faults.begin(link_of(source, target))

    def heal(self, source: str, target: str) -> None:
        """End one cut."""
        pair = (source, target)
        self._cuts[pair] -= 1
        if not self._cuts[pair]:
            del self._cuts[pair]
            self.faults.end(self._cut_faults.pop(pair))
            kept, self._kept_back = list(self._kept_back), {}
            for endpoint in kept:
                endpoint.resume()

    def kill(self, node: int, host: str, *, power_off: bool) -> None:
        """Close a process's connections; without power, the host does not even refuse new ones."""
        for name in [name for name, listener in self.listeners.items() if listener.node == node]:
            del self.listeners[name]
        if power_off:
            self._off_hosts[host] = None
        for endpoint in [each for each in self._endpoints if each.node == node]:
            peer = endpoint.peer
            endpoint.vanish()
            if peer is None or peer.is_lost:
                continue
            if self._rng.random() < self.odds.never_seen_share:
                endpoint.is_silent = True
                self._note_unseen(peer)
            else:
                peer.lose_later(self.delay_s(peer) + self._rng.random())

    def power_on(self, host: str) -> None:
        """Let a host refuse connections again, and reset those of its former process."""
        self._off_hosts.pop(host, None)

    def connections(self) -> list[Endpoint]:
        """Return the clients' ends of all connections."""
        return [endpoint for endpoint in self._endpoints if endpoint.peer in self._endpoints]

    def break_connection(self, endpoint: Endpoint) -> None:
        """Lose a connection: both ends notice it, each after a delay, or one never does."""
        peer = endpoint.peer
        assert peer is not None
        sides = [endpoint, peer]
        self._rng.shuffle(sides)
        sides[0].lose_later(0.0)
        if self._rng.random() >= self.odds.never_seen_share:
            delay_s = self._rng.random() * 2
            sides[1].lose_later(delay_s)
            self.faults.add(link_of(endpoint.host, peer.host), delay_s)
        else:
            self.faults.add(link_of(endpoint.host, peer.host))
            self._note_unseen(sides[1])

    def stall(self, endpoint: Endpoint, seconds: float) -> None:
        """Hold back what one end of a connection sends."""
        assert endpoint.peer is not None
        endpoint.stalled_until_s = self.loop.now_s + seconds
        self.faults.add(link_of(endpoint.host, endpoint.peer.host), seconds)

    # -- called by transports

    def delay_s(self, endpoint: Endpoint) -> float:
        """Draw the delay of a message."""
        draw = self._rng.random()
        if draw < self.odds.slow_share:
            delay_s = self.odds.slow_delay_s * self._rng.random()
            if endpoint.peer is not None:
                self.faults.note_delay(link_of(endpoint.host, endpoint.peer.host), delay_s)
            return delay_s
        return self.odds.delay_s * (0.5 + draw)

    def read_size(self, available: int) -> int:
        """Draw how many of the arrived bytes are read at once."""
        if available > 1 and self._rng.random() < self.odds.split_share:
            return self._rng.randint(1, available)
        return available

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether all traffic from one host to another is blocked."""
        return bool(self._cuts) and (source, target) in self._cuts

    def keep_back(self, endpoint: Endpoint) -> None:
        """Add an endpoint to call when a cut heals."""
        self._kept_back[endpoint] = None

    def forget(self, endpoint: Endpoint) -> None:
        """Record that one side of a connection ended."""
        self._endpoints.pop(endpoint, None)
        self.faults.end(self._unseen.pop(endpoint, None))

    def _note_unseen(self, endpoint: Endpoint) -> None:
        """Record that requests on a connection will fail, or wait, until that is noticed."""
        if endpoint.is_connecting and endpoint.peer is not None and endpoint not in self._unseen:
            fault = self.faults.begin(link_of(endpoint.host, endpoint.peer.host))
            self._unseen[endpoint] = fault

    # -- called by the loop

    async def _listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_options: object
    ) -> Listener:
        name = (host, port or next(self._ports))
        if name in self.listeners:
            raise OSError(98, f"{name} is in use")
        listener = Listener(self, factory, name)
        self.listeners[name] = listener
        return listener

    async def _connect(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: object = None,
        **_options: object,
    ) -> tuple[Endpoint, asyncio.BaseProtocol]:
        assert ssl is None, "the simulated network has no TLS"
        source = HOST.get()
        await self._reach(source, host)
        listener = self.listeners.get((host, port))
        await self._reach(host, source)
        if listener is None or not listener.is_serving() or not self.loop.is_alive(listener.node):
            raise ConnectionRefusedError(111, f"no server listens at {host}:{port}")
        self.connect_count += 1
        near = Endpoint(self, copy_context(), source, (host, port))
        far = Endpoint(self, listener.context, listener.host, (source, next(self._ports)))
        near.peer, far.peer = far, near
        near.is_connecting = True
        self._endpoints[near] = self._endpoints[far] = None
        protocol = factory()
        taps = self.make_taps(near, far, protocol)
        if taps is not None:
            near.tap, far.tap = taps
        self.loop.call_soon(_accept, listener, far, context=listener.context)
        near.attach(protocol)
        return near, protocol

    async def _reach(self, source: str, target: str) -> None:
        """Pass one way through the network, after any delay or cut."""
        draw = self._rng.random()
        await asyncio.sleep(self.odds.delay_s * (0.5 + draw))
        waited_s = 0.0
        while self.is_cut(source, target) or target in self._off_hosts:
            await asyncio.sleep(LOOK_AGAIN_S)
            waited_s += LOOK_AGAIN_S
            if waited_s > SILENCE_S:
                raise TimeoutError(110, f"{target} does not answer")


def _accept(listener: Listener, endpoint: Endpoint) -> None:
    if endpoint.is_lost:
        return
    if listener.is_serving():
        endpoint.attach(listener.factory())
    else:
        endpoint.abort()
