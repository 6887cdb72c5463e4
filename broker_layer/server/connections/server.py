"""Server of one broker's listeners.

Leaves deadlines and closing to `quire.server.listening`, each client's frames to `connection`, and
serving requests to `dispatch`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from broker_layer.server.access.listener_access import ListenerAccess
from broker_layer.server.connections.connection import BrokerConnection
from broker_layer.server.connections.listeners import ListenerAddress
from broker_layer.server.connections.server_context import ServerContext
from quire.server.listening import ListeningServer


class BrokerServer(ListeningServer):
    """The listeners of one broker. Call `start`, then `close`, once each."""

    _context: ServerContext

    async def start(self, listeners: tuple[ListenerAddress, ...]) -> tuple[ListenerAddress, ...]:
        """Bind the addresses and serve; return the bound ones. Raises CannotListenError."""
        taken = await self.bind(listeners, {})
        await self.serve()
        return taken

    async def bind(
        self, listeners: tuple[ListenerAddress, ...], access: Mapping[str, ListenerAccess]
    ) -> tuple[ListenerAddress, ...]:
        """Bind all addresses and return them; clients cannot connect yet. A listener that is not in
        `access` takes all clients, without TLS.

        Raises CannotListenError.
        """
        taken = []
        for each in listeners:
            how = access.get(each.name) or ListenerAccess(each.name)
            make = partial(BrokerConnection, self._context, how)
            _, port = await self._open(each.name, each.host, each.port, make, how.tls)
            taken.append(replace(each, port=port))
        return tuple(taken)
