"""Rights of the clients of requests that raw handlers serve.

Leaves the decisions to `broker_layer.security`, and other requests to its guards.
"""

from broker_layer.security.authorizer import Authorizer
from broker_layer.security.rights import Rights
from broker_layer.server.exchange import Exchange


class ExchangeRights:
    """Rights by request; None for all without an authorizer."""

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer

    def of(self, exchange: Exchange) -> Rights | None:
        """Return what the client of a request may do."""
        if self._authorizer is None:
            return None
        requester = exchange.requester
        return self._authorizer.rights_of(
            requester.principal,
            requester.client_host,
            requester.listener,
            exchange.api_key,
        )
