"""How one listener takes connections, and who its clients are.

Leaves handshakes to `quire.server.tls_listening`, and addresses to `server.connections.listeners`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.identity.certificate_names import MappingRule, principal_of
from quire.identity.principal import ANONYMOUS, Principal
from quire.server.server_options import is_loopback

if TYPE_CHECKING:
    from broker_layer.server.access.logins import Logins
    from quire.server.tls_listening import TlsListening


@dataclass(frozen=True, slots=True)
class ListenerAccess:
    """How one listener takes connections."""

    name: str
    tls: "TlsListening | None" = None
    """None if connections begin without a handshake."""
    rules: Sequence[MappingRule] = ()
    """Rules for the principals of clients with certificates."""
    logins: "Logins | None" = None
    """Logins of clients; None if they are served without."""

    def principal_of(self, transport: asyncio.BaseTransport) -> Principal:
        """Return who the client of a new connection is, by its certificate. One that logs in is
        anonymous until then.
        """
        if self.tls is None or self.logins is not None:
            return ANONYMOUS
        return principal_of(transport.get_extra_info("peercert"), self.rules)

    def is_private(self, client_host: str) -> bool:
        """Return whether no other machine can read what a client sends."""
        return self.tls is not None or is_loopback(client_host)
