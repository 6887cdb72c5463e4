"""Finds who serves a request, and turns its answer into bytes.

Leaves what requests mean to the handlers, and the order of answers to `connection`.

Invariants: every request of a version that is served is answered, or its connection is closed with
a line in the log; so many requests are served at once as the connections let in.
"""

from collections.abc import Mapping

from broker_layer.counters import BrokerCounters
from broker_layer.exchange import Exchange
from broker_layer.handlers import Handler, RawHandler
from broker_layer.kafka.messages import (
    api_versions_response,
    decode_request,
    encode_response,
    refuse_api_versions,
)
from broker_layer.kafka.versions import ADVERTISED, ApiKey
from broker_layer.request_tasks import RequestTasks


class Dispatcher:
    """Serves requests from one table of handlers; belongs to one event loop."""

    def __init__(
        self,
        raw_handlers: Mapping[int, RawHandler],
        handlers: Mapping[int, Handler],
        tasks: RequestTasks,
        counters: BrokerCounters,
    ) -> None:
        """Take what serves each API; ApiVersions is served here."""
        self._raw_handlers = raw_handlers
        self._handlers = handlers
        self._counters = counters
        self._tasks = tasks

    def serve(self, exchange: Exchange) -> None:
        """Take a request; it is answered in its time."""
        self._counters.note_request(exchange.api_key)
        raw = self._raw_handlers.get(exchange.api_key)
        if raw is not None:
            raw(exchange)
        elif exchange.api_key == ApiKey.API_VERSIONS:
            _tell_versions(exchange)
        else:
            handler = self._handlers.get(exchange.api_key)
            if handler is None:
                exchange.requester.drop("not served", f"API {exchange.api_key} has no handler")
                return
            self._tasks.run(exchange, self._answer(exchange, handler))

    async def _answer(self, exchange: Exchange, handler: Handler) -> None:
        version = exchange.api_version
        request = decode_request(exchange.api_key, version, exchange.body)
        response = await handler(request, exchange.context)
        exchange.answer([encode_response(response, version)])


def _tell_versions(exchange: Exchange) -> None:
    version = exchange.api_version
    if ADVERTISED[ApiKey.API_VERSIONS].serves(version):
        decode_request(exchange.api_key, version, exchange.body)
        exchange.answer([api_versions_response(version)])
    else:
        exchange.answer([refuse_api_versions()])
