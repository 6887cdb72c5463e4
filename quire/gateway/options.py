"""Options of one gateway."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from metadata.server_options import metadata_option, principals_option, session_timeout_option
from metadata.store.uri import GATEWAY_PORT_DEFAULT
from quire.gateway.limits import GatewayLimits
from quire.options import OptionTable, option, with_options
from quire.server.overriding import override
from quire.server.server_options import (
    Listener,
    SecurityOptions,
    admin_host_option,
    admin_port_option,
    connections_option,
    connections_per_address_option,
    drain_timeout_option,
    host_option,
    port_option,
)

_LIMITS: Final = GatewayLimits()


@dataclass(frozen=True, slots=True)
class GatewayOptions(SecurityOptions):
    """Options of one gateway. Read them with GATEWAY."""

    metadata: str = metadata_option("the cluster's ZooKeeper")
    host: str = host_option()
    port: int = port_option(GATEWAY_PORT_DEFAULT)
    admin_host: str = admin_host_option()
    admin_port: int = admin_port_option()
    super_users: str = principals_option("principals that may read and change all metadata")
    session_timeout_s: float = session_timeout_option(
        "how long ZooKeeper keeps the registrations of clients of a dead gateway; no client's"
        " session is longer"
    )
    connections_max: int = connections_option(_LIMITS.connections_max, 100_000)
    connections_per_address_max: int = connections_per_address_option(100_000)
    sessions_max: int = option(
        _LIMITS.sessions_max,
        "maximum number of sessions, with those whose connection is lost",
        low=1,
        high=1_000_000,
    )
    sessions_per_principal_max: int = option(
        _LIMITS.sessions_per_principal_max,
        "maximum number of sessions of one principal; 0: no limit",
        low=0,
        high=1_000_000,
    )
    requests_running_max: int = option(
        _LIMITS.requests_running_max,
        "maximum number of running requests of one connection",
        low=1,
        high=10_000,
    )
    watches_max: int = option(
        _LIMITS.watches_max, "maximum number of watches of one connection", low=1, high=1_000_000
    )
    unread_bytes_max: int = option(
        _LIMITS.unread_bytes_max,
        "unsent bytes of one connection above which it is cut",
        low=2**20,
        high=2**30,
    )
    drain_timeout_s: float = drain_timeout_option(_LIMITS.drain_timeout_s, "gateway")

    @property
    def limits(self) -> GatewayLimits:
        """Limits of the server, with the options of the same names."""
        return with_options(_LIMITS, self)

    @override
    def addresses(self) -> Iterable[Listener]:
        """See `ServerOptions`."""
        yield Listener("port", self.host, self.port)
        yield Listener("admin_port", self.admin_host, self.admin_port)

    @override
    def contradictions(self) -> Iterator[str]:
        """See `Options`."""
        yield from SecurityOptions.contradictions(self)
        yield from self.open_listening("host", self.host)
        yield from self.open_admin(self.admin_host)


GATEWAY: Final = OptionTable("gateway", GatewayOptions)
