"""Server of one broker's listeners.

Leaves deadlines and closing to `serving.listening`, each client's frames to `connection`, and
serving requests to `dispatch`.
"""

from dataclasses import replace
from functools import partial

from broker_layer.server.connections.connection import BrokerConnection
from broker_layer.server.connections.listeners import ListenerAddress
from broker_layer.server.connections.server_context import ServerContext
from serving.listening import ListeningServer


class BrokerServer(ListeningServer):
    """The listeners of one broker. Call `start`, then `close`, once each."""

    _context: ServerContext

    async def start(self, listeners: tuple[ListenerAddress, ...]) -> tuple[ListenerAddress, ...]:
        """Bind the addresses and serve; return the bound ones. Raises CannotListenError."""
        taken = await self.bind(listeners)
        await self.serve()
        return taken

    async def bind(self, listeners: tuple[ListenerAddress, ...]) -> tuple[ListenerAddress, ...]:
        """Bind all addresses and return them; clients cannot connect yet.

        Raises CannotListenError.
        """
        taken = []
        for each in listeners:
            make = partial(BrokerConnection, self._context, each.name)
            _, port = await self._open(each.name, each.host, each.port, make)
            taken.append(replace(each, port=port))
        return tuple(taken)
