"""Access to the brokers of a cluster, as a client of Kafka's protocol.

Invariant: any broker may be asked, so one that does not respond is not a failure while another
does.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import ApiMessage
from broker_layer.kafka.versions import ADVERTISED, ApiKey
from broker_layer.peer import PeerAccess, PeerAddress, PeerError, Peers
from metadata.brokers.broker_registration import BrokerRegistration
from quire.addresses import join_address
from quire.errors import CommandError, ExitCode
from quire.identity.client_file import NO_IDENTITY, ClientFile

TIMEOUT_S: Final = 30.0
CHECK_LOGS: Final = "check the brokers' logs, then retry"

MessageT = TypeVar("MessageT", bound="ApiMessage")

_NOT_FOUND: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_UNAVAILABLE: Final = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class NoBrokerError(CommandError):
    """No broker can be reached."""

    code = ExitCode.UNAVAILABLE


class TopicRefusedError(CommandError):
    """A broker refused a request."""

    def __init__(self, error_code: int, text: str | None, *, try_next: str = "") -> None:
        kind = ErrorCode(error_code)
        super().__init__(text or kind.name.lower().replace("_", " "), try_next=try_next)
        if kind in _NOT_FOUND:
            self.code = ExitCode.NOT_FOUND
        elif kind in _UNAVAILABLE:
            self.code = ExitCode.UNAVAILABLE


def require(error_code: int, text: str | None = None, *, try_next: str = "") -> None:
    """Raise TopicRefusedError for anything but success."""
    if error_code != ErrorCode.NONE:
        raise TopicRefusedError(error_code, text, try_next=try_next)


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """Brokers that may be asked; `registrations` is empty when one was given by address."""

    addresses: tuple[PeerAddress, ...]
    registrations: tuple[BrokerRegistration, ...]
    peers: Peers
    identity: ClientFile = NO_IDENTITY
    """What this client proves to brokers, and at their admin ports."""
    timeout_s: float = TIMEOUT_S
    """Time for one answer of one broker."""

    async def ask(self, request: ApiMessage, answer: type[MessageT]) -> MessageT:
        """Ask the first broker that responds, in the newest version. Raises NoBrokerError."""
        failure: PeerError | None = None
        for address in self.addresses:
            try:
                return await self._ask_at(address, request, answer)
            except PeerError as error:
                failure = error
        raise NoBrokerError(f"no broker responds: {failure}", try_next=CHECK_LOGS)

    async def ask_one(
        self, address: PeerAddress, request: ApiMessage, answer: type[MessageT]
    ) -> MessageT:
        """Ask one broker, in the newest version. Raises NoBrokerError."""
        try:
            return await self._ask_at(address, request, answer)
        except PeerError as error:
            text = f"broker {address.broker_id} does not respond: {error}"
            raise NoBrokerError(text, try_next="check its log, then retry") from error

    async def ask_each(
        self, request: ApiMessage, answer: type[MessageT]
    ) -> dict[PeerAddress, MessageT | None]:
        """Ask all brokers at once; None is one that does not respond, or that refuses. Raises
        NoBrokerError if none responds.
        """

        async def ask(address: PeerAddress) -> MessageT | None:
            try:
                reply = await self.ask_one(address, request, answer)
            except NoBrokerError:
                return None
            return None if getattr(reply, "error_code", ErrorCode.NONE) else reply

        answers = await asyncio.gather(*map(ask, self.addresses))
        if all(reply is None for reply in answers):
            raise NoBrokerError("no broker responds", try_next=CHECK_LOGS)
        return dict(zip(self.addresses, answers, strict=True))

    async def _ask_at(
        self, address: PeerAddress, request: ApiMessage, answer: type[MessageT]
    ) -> MessageT:
        version = ADVERTISED[ApiKey(request.API_KEY)].max
        return await self.peers.ask(address, request, answer, version, self.timeout_s)

    @property
    def bootstrap(self) -> list[str]:
        """Return the addresses for `bootstrap.servers` of Kafka's clients."""
        return [join_address(peer.host, peer.port) for peer in self.addresses]


@asynccontextmanager
async def open_peers(
    client_name: str,
    addresses: tuple[PeerAddress, ...],
    registrations: tuple[BrokerRegistration, ...],
    identity: ClientFile,
    rng: Random,
    timeout_s: float = TIMEOUT_S,
) -> AsyncIterator[BrokerAccess]:
    """Make brokers known by their addresses; close the connections to them at the end of the
    block.
    """
    peers = Peers(client_name, rng, PeerAccess(identity.contexts, identity.sasl))
    try:
        yield BrokerAccess(addresses, registrations, peers, identity, timeout_s)
    finally:
        await peers.aclose()


def open_registered(
    client_name: str,
    registrations: tuple[BrokerRegistration, ...],
    identity: ClientFile,
    rng: Random,
    *,
    timeout_s: float = TIMEOUT_S,
    listener: str | None = None,
) -> AbstractAsyncContextManager[BrokerAccess]:
    """Open brokers at their first listener, or at the one with a name. Raises NoBrokerError."""
    addresses = tuple(_addresses(registrations, listener))
    if not addresses:
        where = f" with a listener {listener!r}" if listener else ""
        raise NoBrokerError(f"no broker is up{where}", try_next="quire broker run --help")
    return open_peers(client_name, addresses, registrations, identity, rng, timeout_s)


def _addresses(
    registrations: tuple[BrokerRegistration, ...], listener: str | None
) -> list[PeerAddress]:
    addresses = []
    for registration in registrations:
        for endpoint in registration.listeners:
            if listener in (None, endpoint.name):
                addresses.append(PeerAddress(registration.broker_id, endpoint.host, endpoint.port))
                break
    return addresses
